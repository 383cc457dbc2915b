package lab

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"
)

// Spec describes a machine.
type Spec struct {
	Name    string // its host name
	Systemd bool   // systemd is its first process; otherwise there is only sshd
	Disk    int64  // writable space in bytes; 0: no limit
	// Addr is the machine's address, within Network; if invalid, the lowest free one.
	Addr netip.Addr
	// Files are files of root on its disk: contents by path without the leading "/". They replace
	// the lab's own.
	Files map[string]string
	// Layers are folders of files over the image's root, the first on top.
	Layers []string
	// Program is a program with its arguments that runs on the machine instead of sshd, as a child of the
	// first process. Such a machine has the files of the test process instead of a disk and an image of its
	// own, so of the other fields only Name, Addr and Env count. When the program ends, the machine
	// crashes.
	Program []string
	Env     []string // the program's environment
	// Syncs lets SetSync treat what the program writes to its disk.
	Syncs bool
}

// Machine is one light machine. Its disk, address and host key exist until it is destroyed; its
// processes until it crashes or is destroyed.
type Machine struct {
	Name    string
	Addr    netip.Addr
	HostKey ssh.PublicKey

	lab    *Lab
	dir    string
	spec   Spec
	freeze string // file that freezes its group; "" if it cannot be frozen
	syncs  syncs

	mu  sync.Mutex
	cmd *exec.Cmd // nil: not running
}

// Start creates a machine and boots it. It returns when the machine's network is up.
func (l *Lab) Start(ctx context.Context, spec Spec) (*Machine, error) {
	m := &Machine{Name: spec.Name, lab: l, spec: spec}
	if err := l.reserve(m); err != nil {
		return nil, err
	}
	err := m.format()
	if err == nil {
		err = m.Boot(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("light machine %s: %w", m.Name, err), m.Destroy())
	}
	return m, nil
}

// format writes the machine's own files to its disk.
func (m *Machine) format() error {
	if err := os.MkdirAll(m.dir, 0o755); err != nil || len(m.spec.Program) > 0 {
		return err
	}
	if m.spec.Disk > 0 {
		if err := mount("tmpfs", m.dir, "tmpfs", 0, "mode=755,size="+strconv.FormatInt(m.spec.Disk, 10)); err != nil {
			return err
		}
	}
	hostKey, signer, err := newKey()
	if err != nil {
		return err
	}
	m.HostKey = signer.PublicKey()
	authorized := string(ssh.MarshalAuthorizedKey(m.lab.signer.PublicKey()))
	const debian = 1000 // the image's user
	type file struct {
		name, content string
		mode          os.FileMode
		owner         int
	}
	files := []file{
		{"etc/hostname", m.Name + "\n", 0o644, 0},
		{"etc/hosts", hosts(m.Name), 0o644, 0},
		{"etc/machine-id", fmt.Sprintf("%x\n", sha256.Sum256([]byte(hostKey)))[:32] + "\n", 0o444, 0},
		{"etc/ssh/ssh_host_ed25519_key", string(hostKey), 0o600, 0},
		{"etc/ssh/sshd_config.d/lab.conf", "HostKey /etc/ssh/ssh_host_ed25519_key\nUseDNS no\n", 0o644, 0},
		{aptSource, string(m.lab.aptSource()), 0o644, 0},
		{"root/.ssh/authorized_keys", authorized, 0o600, 0},
		{"home/debian/.ssh/authorized_keys", authorized, 0o600, debian},
	}
	for name, content := range m.spec.Files {
		files = append(slices.DeleteFunc(files, func(f file) bool { return f.name == name }), file{name, content, 0o644, 0})
	}
	for _, f := range files {
		path := filepath.Join(m.dir, "upper", f.name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(f.content), f.mode),
			os.Chown(path, f.owner, f.owner)); err != nil {
			return err
		}
	}
	return errors.Join(
		os.Chmod(filepath.Join(m.dir, "upper/root"), 0o700), os.Chmod(filepath.Join(m.dir, "upper/root/.ssh"), 0o700),
		os.Chown(filepath.Join(m.dir, "upper/home/debian"), debian, debian),
		os.Chown(filepath.Join(m.dir, "upper/home/debian/.ssh"), debian, debian), os.Chmod(filepath.Join(m.dir, "upper/home/debian/.ssh"), 0o700),
		os.Mkdir(filepath.Join(m.dir, "work"), 0o755), os.Mkdir(filepath.Join(m.dir, "merged"), 0o755),
	)
}

// Boot starts a stopped machine with its existing disk.
func (m *Machine) Boot(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cmd != nil {
		return fmt.Errorf("machine %s is running", m.Name)
	}
	ours, theirs, err := socketPair()
	if err != nil {
		return err
	}
	defer ours.Close()
	defer theirs.Close()
	stop := context.AfterFunc(ctx, func() { _ = ours.SetDeadline(time.Now()) })
	defer stop()
	cmd, err := m.spawn(theirs)
	if err != nil {
		return err
	}
	theirs.Close()
	err = m.attach(ours, cmd.Process.Pid)
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		m.lab.Net.Detach(m.Addr)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	m.cmd = cmd
	return nil
}

// spawn starts the machine's first process in namespaces of its own.
func (m *Machine) spawn(socket *os.File) (*exec.Cmd, error) {
	plan, err := os.OpenFile(filepath.Join(m.dir, "plan.json"), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	defer plan.Close()
	if err := json.NewEncoder(plan).Encode(bootSpec{
		Hostname: m.Name, Address: netip.PrefixFrom(m.Addr, prefix.Bits()).String(), Gateway: m.lab.Gateway.String(), MAC: macOf(m.Addr),
		Lower: m.lower(), Dir: m.dir, Systemd: m.spec.Systemd, Program: m.spec.Program, Env: m.spec.Env, Syncs: m.spec.Syncs,
		Root: m.lab.image.root(),
	}); err != nil {
		return nil, err
	}
	if _, err := plan.Seek(0, 0); err != nil {
		return nil, err
	}
	console, err := os.OpenFile(m.console(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer console.Close()
	cmd := again(roleMachine)
	cmd.Env = append(cmd.Env, "GOMAXPROCS=1")
	cmd.Stdout, cmd.Stderr = console, console
	cmd.ExtraFiles = []*os.File{socket, plan}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWNET,
		Setsid:     true,
	}
	return cmd, cmd.Start()
}

// attach completes the start of a machine: it connects its network device to the switch, moves the
// machine into its groups, and waits until it is ready.
func (m *Machine) attach(socket *os.File, pid int) error {
	fd, err := receiveFD(socket)
	if err != nil {
		return err
	}
	m.lab.Net.Attach(m.Addr, os.NewFile(uintptr(fd), "tap"))
	kinds := []string{"cgroup2"}
	if m.spec.Systemd {
		kinds = append(kinds, "systemd")
	}
	for _, kind := range kinds {
		dir, err := m.lab.groups.make(kind, m.Name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
		}
		switch {
		case kind == "cgroup2" && err == nil:
			m.freeze = filepath.Join(dir, "cgroup.freeze")
		case kind == "systemd" && err != nil:
			return fmt.Errorf("a machine with systemd needs a control group of its own: %w", err)
		}
	}
	if _, err := socket.Write([]byte("g")); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	n, err := socket.Read(answer)
	if err != nil {
		return fmt.Errorf("its first process ended: %w", err)
	}
	if string(answer[:n]) != "r" {
		return errors.New(string(answer[:n]))
	}
	if m.spec.Syncs {
		fd, err := receiveFD(socket)
		if err != nil {
			return err
		}
		m.syncs.serve(os.NewFile(uintptr(fd), "syncs"))
	}
	return nil
}

// Crash is a power failure: all processes end at once, the disk stays as it is. A stopped machine
// stays stopped.
func (m *Machine) Crash() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cmd == nil {
		return nil
	}
	// A pid namespace ends with its first process.
	if err := m.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	_ = m.cmd.Wait()
	m.cmd = nil
	m.syncs.wait()
	m.lab.Net.Detach(m.Addr)
	for _, kind := range []string{"cgroup2", "systemd"} {
		if top, ok := hierarchy(kind); ok {
			removeGroup(filepath.Join(top, m.lab.groups.name, m.Name))
		}
	}
	return nil
}

// Destroy removes the machine and its disk.
func (m *Machine) Destroy() error {
	err := m.Crash()
	if m.spec.Disk > 0 {
		err = errors.Join(err, unix.Unmount(m.dir, unix.MNT_DETACH))
	}
	m.lab.forget(m)
	return errors.Join(err, os.RemoveAll(m.dir), os.RemoveAll(m.console()))
}

// Freeze stops the machine like a stalled hypervisor: no process runs and nothing answers, but
// nothing is lost. Thaw continues it.
func (m *Machine) Freeze() error { return m.setFrozen(true) }

// Thaw ends Freeze.
func (m *Machine) Thaw() error { return m.setFrozen(false) }

func (m *Machine) setFrozen(frozen bool) error {
	if m.freeze == "" {
		return errors.New("machines cannot be frozen here: no control groups of version 2 are mounted")
	}
	value := "0"
	if frozen {
		value = "1"
	}
	m.lab.Net.setDown(m.Addr, frozen)
	return os.WriteFile(m.freeze, []byte(value), 0)
}

// Processes returns the pids of the processes of a running machine, its first process included.
func (m *Machine) Processes() ([]int, error) {
	if m.freeze == "" {
		return nil, errors.New("the processes of a machine are not known here: no control groups of version 2 are mounted")
	}
	list, err := os.ReadFile(filepath.Join(filepath.Dir(m.freeze), "cgroup.procs"))
	if err != nil {
		return nil, err
	}
	var pids []int
	for f := range strings.FieldsSeq(string(list)) {
		pid, err := strconv.Atoi(f)
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// Running reports whether the first process of the machine runs. It ends with the program of Spec.Program.
func (m *Machine) Running() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cmd == nil {
		return false
	}
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, m.cmd.Process.Pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == nil && info.Signo == 0
}

// WaitSSH waits until the machine's sshd answers.
func (m *Machine) WaitSSH(ctx context.Context) error {
	var dialer net.Dialer
	for {
		conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(m.Addr.String(), "22"))
		if err == nil {
			stop := context.AfterFunc(ctx, func() { conn.Close() })
			_, err = conn.Read(make([]byte, 4))
			stop()
			conn.Close()
			if err == nil {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("sshd of machine %s does not answer: %w", m.Name, errors.Join(context.Cause(ctx), err))
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// Run runs a command in the machine as root, without SSH, to inspect it from outside. It returns
// the output, including error output.
func (m *Machine) Run(ctx context.Context, args ...string) (string, error) {
	m.mu.Lock()
	cmd := m.cmd
	m.mu.Unlock()
	if cmd == nil {
		return "", fmt.Errorf("machine %s is not running", m.Name)
	}
	enter := exec.CommandContext(ctx, "nsenter",
		append([]string{"--target", strconv.Itoa(cmd.Process.Pid), "--mount", "--uts", "--ipc", "--net", "--pid", "--"}, args...)...)
	enter.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8"}
	out, err := enter.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%v on %s: %w: %s", args, m.Name, err, out)
	}
	return string(out), err
}

// PID returns the pid of the first process of a running machine, or 0.
func (m *Machine) PID() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cmd == nil {
		return 0
	}
	return m.cmd.Process.Pid
}

// Console returns the output of the machine's first process.
func (m *Machine) Console() string {
	b, _ := os.ReadFile(m.console())
	return string(b)
}

func (m *Machine) console() string { return filepath.Join(m.lab.dir, m.Name+".console") }

// socketPair returns two connected sockets that preserve message boundaries.
func socketPair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "lab"), os.NewFile(uintptr(fds[1]), "machine"), nil
}
