package confine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Rights of Landlock.
const (
	readFile  = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE
	readDir   = readFile | unix.LANDLOCK_ACCESS_FS_READ_DIR
	writeFile = readFile | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
	writeDir  = writeFile | readDir | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_SYM | unix.LANDLOCK_ACCESS_FS_REFER
	// device are the rights on devices and terminals.
	device = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	// handled are the rights that are refused where no rule grants them.
	handled = writeDir | unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
)

// knownTo returns the rights that a version of Landlock knows.
func knownTo(abi int) uint64 {
	known := uint64(handled)
	for right, since := range map[uint64]int{
		unix.LANDLOCK_ACCESS_FS_REFER: 2, unix.LANDLOCK_ACCESS_FS_TRUNCATE: 3, unix.LANDLOCK_ACCESS_FS_IOCTL_DEV: 5,
	} {
		if abi < since {
			known &^= right
		}
	}
	return known
}

// abi returns the version of Landlock of this kernel, or 0 if it has none.
func abi() int {
	n, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(n)
}

// system are the files of the system that every program may read and execute. What else is in /etc may
// be secret.
var system = append([]string{
	"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/sys/fs/cgroup", "/sys/devices/system", "/sys/kernel/mm",
	"/run/systemd/resolve", "/var/lib/ca-certificates", "/nix/store", "/run/current-system",
}, under("/etc", "alternatives", "ansible", "bash.bashrc", "ca-certificates", "ca-certificates.conf", "crypto-policies", "debian_version",
	"default/locale", "gai.conf", "gitconfig", "group", "host.conf", "hostname", "hosts", "inputrc", "krb5.conf", "ld.so.cache", "ld.so.conf",
	"ld.so.conf.d", "ld.so.preload", "locale.alias", "locale.conf", "localtime", "mime.types", "networks", "nsswitch.conf", "os-release",
	"passwd", "pki", "profile", "profile.d", "protocols", "python3", "resolv.conf", "services", "ssh/ssh_config", "ssh/ssh_config.d",
	"ssh/ssh_known_hosts", "ssl", "terminfo", "timezone")...)

// secrets are folders of the system whose files only their owner may read, and that of the agent's configuration. If the program
// runs as root, it is the owner.
var secrets = []string{"/etc/ssl/private", "/etc/pki/tls/private", "/etc/coopr"}

// devices are those that every program may use.
var devices = under("/dev", "null", "zero", "full", "random", "urandom", "ptmx", "pts")

func under(dir string, names ...string) []string {
	for i, name := range names {
		names[i] = filepath.Join(dir, name)
	}
	return names
}

// domain is a set of rules that is not in force yet.
type domain struct {
	fd    int
	known uint64
}

// newDomain opens everything that the profile grants. It is called while the process may still open it
// and before it runs as another user.
func newDomain(p *Profile, program *os.File) (*domain, error) {
	version := abi()
	if version == 0 {
		return nil, errors.New("this kernel has no Landlock")
	}
	d := &domain{known: knownTo(version)}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: d.known}
	if version >= 6 {
		attr.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
		if p.Lasting {
			attr.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
		}
	}
	// An older kernel accepts fields that it does not know if they are 0.
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return nil, fmt.Errorf("create a Landlock ruleset: %w", errno)
	}
	d.fd = int(fd)
	if program != nil {
		if err := d.add(int(program.Fd()), readFile); err != nil {
			return nil, fmt.Errorf("%s: %w", p.Program, err)
		}
	}
	protected := append(resolved(p.Protected), resolved(secrets)...)
	java, _ := filepath.Glob("/etc/java-*") // Debian has parts of a Java there
	for _, path := range slices.Concat(system, java, p.Reads) {
		for _, at := range without(path, protected) {
			if err := d.grant(at, readDir); err != nil {
				return nil, err
			}
		}
	}
	for _, path := range devices {
		if err := d.grant(path, device|unix.LANDLOCK_ACCESS_FS_READ_DIR); err != nil {
			return nil, err
		}
	}
	for _, path := range p.Writes {
		if at := without(path, protected); len(at) != 1 {
			if _, err := os.Stat(path); err == nil {
				return nil, fmt.Errorf("%s contains a protected folder, so it cannot be granted for writing", path)
			}
		}
		if err := d.grant(path, writeDir); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// grant grants rights on a file or on everything in a folder. A missing path is skipped.
func (d *domain) grant(path string, rights uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	defer unix.Close(fd)
	if err := d.add(fd, rights); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func (d *domain) add(fd int, rights uint64) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= writeFile | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	attr := unix.LandlockPathBeneathAttr{Allowed_access: rights & d.known, Parent_fd: int32(fd)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(d.fd), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&attr)), 0, 0, 0)
	if errno != 0 {
		return fmt.Errorf("add a Landlock rule: %w", errno)
	}
	return nil
}

// enter puts the rules in force for the calling thread and for what it executes. It cannot be undone.
func (d *domain) enter() error {
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(d.fd), 0, 0); errno != 0 {
		return fmt.Errorf("enter a Landlock domain: %w", errno)
	}
	return nil
}

// resolved returns paths without symbolic links. A path that does not exist is returned as it is.
func resolved(paths []string) []string {
	out := make([]string, 0, len(paths))
	for _, p := range paths {
		if r, err := filepath.EvalSymlinks(p); err == nil {
			p = r
		}
		out = append(out, p)
	}
	return out
}

// without returns the parts of a path that contain no protected folder: the path itself, or what is
// in it now. A path below a protected folder is returned unchanged, because somebody has named it.
func without(path string, protected []string) []string {
	at := resolved([]string{path})[0]
	open := true
	for _, p := range protected {
		if p == at {
			return nil
		}
		open = open && !strings.HasPrefix(p, strings.TrimSuffix(at, "/")+"/")
	}
	if open {
		return []string{path}
	}
	entries, err := os.ReadDir(at)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		out = append(out, without(filepath.Join(at, e.Name()), protected)...)
	}
	return out
}
