package lab

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The roles of the test binary's processes, passed in this variable.
const (
	roleVar     = "COOPR_LAB_ROLE"
	roleArena   = "arena"   // the first process of the arena
	roleInside  = "inside"  // the tests
	roleMachine = "machine" // the first process of a machine, until it executes Debian's
	roleEngine  = "engine"  // a Docker engine, until it executes Debian's
)

// errMissing is the reason why there is no arena; nil inside one.
var errMissing = errors.New("lab.Enter was not called by this package's TestMain")

// Enter moves the test process into an arena. It is the first call of TestMain. It returns inside
// the arena, or outside if no arena is possible or -short is set; then New skips the test.
//
// The process that go test started stays outside and ends with the exit status of the tests.
func Enter() {
	switch os.Getenv(roleVar) {
	case roleMachine:
		runtime.LockOSThread()
		fail(boot())
	case roleEngine:
		runtime.LockOSThread()
		fail(becomeEngine())
	case roleArena:
		runtime.LockOSThread()
		fail(arena())
	case roleInside:
		os.Unsetenv(roleVar)
		errMissing = nil
	default:
		if flag.Parse(); testing.Short() {
			errMissing = errors.New("-short leaves light machines out: make test-all runs this test")
			return
		}
		if errMissing = Possible(); errMissing == nil {
			status, err := outside()
			if err == nil {
				os.Exit(status)
			}
			errMissing = err
		}
	}
}

// fail ends a process that has another role than the tests.
func fail(err error) {
	fmt.Fprintln(os.Stderr, "lab:", err)
	os.Exit(125)
}

// Possible returns the reason why this machine cannot run light machines, or nil.
// It does not look for the layers of Layer and Engine.
func Possible() error {
	if os.Geteuid() != 0 {
		return errors.New("light machines need root: run the tests as root")
	}
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("light machines need network devices of their own: %w", err)
	}
	f.Close()
	_, err = findImage()
	return err
}

// Missing returns the reason why New would skip a test, or nil.
func Missing() error { return errMissing }

// again returns a command that runs this binary in another role.
func again(role string, args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), roleVar+"="+role)
	return cmd
}

// outside starts the arena, waits for its end and returns its exit status. An error means that no
// arena is possible.
func outside() (int, error) {
	// The kernel ends the arena with this thread.
	runtime.LockOSThread()
	cmd := again(roleArena, os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL,
	}
	groups := cgroups{name: fmt.Sprintf("coopr-lab-%d", os.Getpid())}
	if around := os.Getenv(groupVar); around != "" {
		// In an arena within an arena, processes outside are invisible, so stale groups cannot be
		// recognised.
		groups.name = fmt.Sprintf("%s-%d", around, os.Getpid())
	} else {
		groups.removeStale()
	}
	cmd.Env = append(cmd.Env, groupVar+"="+groups.name)
	defer groups.remove()
	if err := cmd.Start(); err != nil {
		// A container may forbid it, for example.
		return 0, fmt.Errorf("light machines need namespaces of their own: %w", err)
	}
	passSignals(cmd.Process)
	if err := cmd.Wait(); cmd.ProcessState == nil {
		return 0, err
	}
	return status(cmd.ProcessState.Sys().(syscall.WaitStatus)), nil
}

// passSignals passes all further signals of this process on to another one.
func passSignals(to *os.Process) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP)
	go func() {
		for s := range signals {
			_ = to.Signal(s)
		}
	}()
}

// status returns the exit status that a shell would report.
func status(ws syscall.WaitStatus) int {
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}

// arena is the arena's first process: it prepares the namespaces, starts the tests, and reaps
// orphans.
func arena() error {
	image, err := findImage()
	if err != nil {
		return err
	}
	if err := errors.Join(
		mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""),
		// The disks of machines vanish with the namespace.
		mount("tmpfs", image.run(), "tmpfs", 0, "mode=700"),
	); err != nil {
		return err
	}
	if err := ip(image.root(), "link set lo up"); err != nil {
		return err
	}
	cmd := again(roleInside, os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return reap(cmd)
}

// reap runs a command as the first process of a pid namespace does: it passes signals on, reaps orphans, which
// become children of this process, and exits with the command's status. It returns only if that fails.
func reap(cmd *exec.Cmd) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	passSignals(cmd.Process)
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return err
		case pid == cmd.Process.Pid:
			os.Exit(status(ws))
		}
	}
}

// ip configures the network of the calling process's namespace, with the image's own tool. The
// lines are those of "ip -batch".
func ip(root string, lines ...string) error {
	cmd := exec.Command("/sbin/ip", "-batch", "-")
	if root != "" {
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	}
	cmd.Dir = "/"
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(lines, "; "), err, out)
	}
	return nil
}

// mount is mount(2), with an error that names the mount.
func mount(source, target, kind string, flags uintptr, data string) error {
	if err := unix.Mount(source, target, kind, flags, data); err != nil {
		return fmt.Errorf("mount %s at %s: %w", kind, target, err)
	}
	return nil
}

// groupVar holds the name of the arena's control groups.
const groupVar = "COOPR_LAB_GROUP"

// cgroups are the control groups of one arena: one in each hierarchy that machines use.
type cgroups struct{ name string }

// hierarchy returns where a hierarchy is mounted: "cgroup2", or a named one of version 1.
func hierarchy(name string) (string, bool) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", false
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 10 {
			continue
		}
		rest := f[len(f)-3:] // type, source, options
		switch {
		case name == "cgroup2" && rest[0] == "cgroup2",
			name != "cgroup2" && rest[0] == "cgroup" && strings.HasSuffix(rest[2], "name="+name):
			return f[4], true
		}
	}
	return "", false
}

// make creates the group of a machine in a hierarchy and returns its folder.
func (g cgroups) make(kind, machine string) (string, error) {
	top, ok := hierarchy(kind)
	if !ok {
		return "", fmt.Errorf("no control groups of the kind %s are mounted here", kind)
	}
	dir := filepath.Join(top, g.name, machine)
	return dir, os.MkdirAll(dir, 0o755)
}

// remove removes the arena's groups, whose processes have ended.
func (g cgroups) remove() {
	for _, top := range hierarchies() {
		removeGroup(filepath.Join(top, g.name))
	}
}

// hierarchies returns where control groups of all kinds are mounted.
func hierarchies() []string {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	var tops []string
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) >= 10 && (f[len(f)-3] == "cgroup" || f[len(f)-3] == "cgroup2") {
			tops = append(tops, f[4])
		}
	}
	return tops
}

// removeGroup removes a group with its subgroups.
func removeGroup(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			removeGroup(filepath.Join(dir, e.Name()))
		}
	}
	_ = os.Remove(dir)
}

// removeStale removes the groups of arenas whose outside process was killed.
func (g cgroups) removeStale() {
	for _, top := range hierarchies() {
		found, _ := filepath.Glob(filepath.Join(top, "coopr-lab-*"))
		for _, dir := range found {
			pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), "coopr-lab-"), "-")
			if _, err := os.Stat(filepath.Join("/proc", pid)); err != nil {
				removeGroup(dir)
			}
		}
	}
}
