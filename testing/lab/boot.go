package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// The file descriptors that a machine's first process inherits.
const (
	bootSocket = 3 // sends the network device, receives the order to continue, reports readiness
	bootPlan   = 4 // the machine's bootSpec
)

// bootSpec describes the machine to its first process.
type bootSpec struct {
	Hostname string
	Address  string // with the length of the network's prefix: 10.77.0.2/16
	Gateway  string
	MAC      [6]byte
	Lower    string // the image's root
	Dir      string // the machine's own folder: upper, work, merged
	Systemd  bool
	Program  []string // with Env, runs in the files of the test process
	Env      []string
	Syncs    bool   // the lab treats the program's calls of fsync
	Root     string // the image's root, for its tools
}

// boot is the machine's first process until it executes Debian's: it runs in the machine's
// namespaces and builds the machine. It returns only if that fails.
func boot() error {
	var spec bootSpec
	if err := json.NewDecoder(os.NewFile(bootPlan, "plan")).Decode(&spec); err != nil {
		return err
	}
	err := build(&spec)
	if err != nil {
		_, _ = unix.Write(bootSocket, []byte(err.Error()))
	}
	return err
}

func build(spec *bootSpec) error {
	tap, err := openTAP("eth0")
	if err != nil {
		return err
	}
	if err := sendFD(bootSocket, tap); err != nil {
		return fmt.Errorf("hand the network device over: %w", err)
	}
	unix.Close(tap)
	// Meanwhile the lab moves this process into its control groups.
	if n, err := unix.Read(bootSocket, make([]byte, 1)); n != 1 {
		return fmt.Errorf("the lab is gone: %w", err)
	}
	if err := unix.Sethostname([]byte(spec.Hostname)); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	tools := "" // where the machine's tools are
	if len(spec.Program) > 0 {
		tools, err = spec.Root, errors.Join(mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""))
	} else {
		err = enterRoot(spec)
	}
	if err != nil {
		return err
	}
	lines := append(device("eth0", spec.Address, spec.MAC), "link set lo up", "route add default via "+spec.Gateway)
	// IPv6 is off, because neighbour discovery would only add frames to the wire.
	_ = os.WriteFile("/proc/sys/net/ipv6/conf/all/disable_ipv6", []byte("1"), 0)
	if err := ip(tools, lines...); err != nil {
		return err
	}
	if _, err := unix.Write(bootSocket, []byte("r")); err != nil {
		return err
	}
	if spec.Syncs {
		questions, err := filterSyncs()
		if err == nil {
			err = errors.Join(sendFD(bootSocket, questions), unix.Close(questions))
		}
		if err != nil {
			return err
		}
	}
	unix.CloseOnExec(bootSocket)
	unix.CloseOnExec(bootPlan)
	if len(spec.Program) > 0 {
		cmd := exec.Command(spec.Program[0], spec.Program[1:]...)
		cmd.Env, cmd.Stdout, cmd.Stderr = spec.Env, os.Stdout, os.Stderr
		return reap(cmd)
	}
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "container=coopr-lab"}
	if spec.Systemd {
		return syscall.Exec("/lib/systemd/systemd", []string{"systemd", "--show-status=false", "--log-target=console"}, env)
	}
	// sshd is an ordinary daemon, so that it can be restarted.
	return syscall.Exec("/usr/bin/tini", []string{"tini", "--", "/bin/sh", "-c", "/usr/sbin/sshd && exec sleep infinity"}, env)
}

// overlay returns the options of a file system whose changes are in a folder. It is volatile:
// nobody inside waits for the disk of the host, as dpkg does after every step of every
// package. A host that loses its power loses the test, too.
func overlay(lower, dir string) (options string, err error) {
	work := filepath.Join(dir, "work")
	// The kernel's mark that the folder was in use, which a machine that crashed leaves behind.
	if err := os.RemoveAll(filepath.Join(work, "work", "incompat")); err != nil {
		return "", err
	}
	return fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s,volatile", lower, filepath.Join(dir, "upper"), work), nil
}

// enterRoot assembles the machine's root file system and makes it the root.
func enterRoot(spec *bootSpec) error {
	root := filepath.Join(spec.Dir, "merged")
	at := func(name string) string { return filepath.Join(root, name) }
	const safe = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	layers, err := overlay(spec.Lower, spec.Dir)
	if err != nil {
		return err
	}
	if err := errors.Join(
		mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		mount("overlay", root, "overlay", 0, layers),
		mount("proc", at("proc"), "proc", safe, ""),
		mount("sysfs", at("sys"), "sysfs", safe|unix.MS_RDONLY, ""),
		mount("tmpfs", at("dev"), "tmpfs", unix.MS_NOSUID, "mode=755,size=4m"),
		mount("tmpfs", at("run"), "tmpfs", unix.MS_NOSUID, "mode=755"),
		mount("tmpfs", at("tmp"), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777"),
	); err != nil {
		return err
	}
	for name, minor := range map[string]uint32{"null": 3, "zero": 5, "full": 7, "random": 8, "urandom": 9} {
		if err := errors.Join(unix.Mknod(at("dev/"+name), unix.S_IFCHR|0o666, int(unix.Mkdev(1, minor))),
			os.Chmod(at("dev/"+name), 0o666)); err != nil {
			return fmt.Errorf("make /dev/%s: %w", name, err)
		}
	}
	if err := errors.Join(
		unix.Mknod(at("dev/tty"), unix.S_IFCHR|0o666, int(unix.Mkdev(5, 0))), os.Chmod(at("dev/tty"), 0o666),
		os.Mkdir(at("dev/pts"), 0o755), os.Mkdir(at("dev/shm"), 0o1777),
		os.Symlink("pts/ptmx", at("dev/ptmx")), os.Symlink("/proc/self/fd", at("dev/fd")),
		os.Symlink("/proc/self/fd/0", at("dev/stdin")), os.Symlink("/proc/self/fd/1", at("dev/stdout")),
		os.Symlink("/proc/self/fd/2", at("dev/stderr")),
		os.Mkdir(at("run/sshd"), 0o755), os.Mkdir(at("run/lock"), 0o1777),
	); err != nil {
		return err
	}
	if err := errors.Join(
		mount("devpts", at("dev/pts"), "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620"),
		mount("tmpfs", at("dev/shm"), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=64m"),
	); err != nil {
		return err
	}
	if spec.Systemd {
		// The machine's own group becomes the root of its hierarchy.
		if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
			return fmt.Errorf("a view of control groups of its own: %w", err)
		}
		if err := errors.Join(
			mount("tmpfs", at("sys/fs/cgroup"), "tmpfs", safe, "mode=755"),
			os.Mkdir(at("sys/fs/cgroup/systemd"), 0o755),
			mount("cgroup", at("sys/fs/cgroup/systemd"), "cgroup", safe, "none,name=systemd,xattr"),
		); err != nil {
			return err
		}
	}
	if err := errors.Join(os.Chdir(root), unix.PivotRoot(".", "."), unix.Unmount(".", unix.MNT_DETACH), os.Chdir("/")); err != nil {
		return fmt.Errorf("enter the machine's root: %w", err)
	}
	return nil
}

// hosts returns a machine's /etc/hosts.
func hosts(name string) string {
	return strings.Join([]string{"127.0.0.1 localhost", "127.0.1.1 " + name, ""}, "\n")
}
