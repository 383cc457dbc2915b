package confine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Descriptors of the launcher.
const (
	profileFD = 3
	programFD = 4
)

// ExitCode is the exit code of a launcher that could not become its program.
const ExitCode = 126

// command is the argument that makes a program the launcher. It is no command for people.
const command = "confine"

// hooked is set once this program has called Hook, so that it can be its own launcher.
var hooked atomic.Bool

// Hook is the first call of a program that starts plugins. If the program was started as the launcher,
// it does not return.
func Hook() {
	if len(os.Args) == 2 && os.Args[1] == command {
		launch()
	}
	hooked.Store(true)
}

// launch is the main function of the launcher: it applies the profile that it reads from descriptor 3
// and executes the program.
func launch() {
	// Most of a profile applies to one thread. The same thread executes the program.
	runtime.LockOSThread()
	fmt.Fprintln(os.Stderr, "coopr-agent confine:", run())
	os.Exit(ExitCode)
}

func run() error {
	p, err := readProfile()
	if err != nil {
		return fmt.Errorf("read the profile: %w", err)
	}
	var program *os.File
	if p.Checked {
		program = os.NewFile(programFD, p.Program)
	}
	var rules *domain
	if p.Landlock {
		if rules, err = newDomain(p, program); err != nil {
			return err
		}
	}
	if err := setLimits(p); err != nil {
		return fmt.Errorf("set limits: %w", err)
	}
	if err := unix.Chdir(p.Dir); err != nil {
		return fmt.Errorf("change to folder %s: %w", p.Dir, err)
	}
	if err := dropRights(p.User); err != nil {
		return err
	}
	if err := tie(p); err != nil {
		return err
	}
	// Only the standard descriptors stay open.
	if err := closeRest(); err != nil {
		return fmt.Errorf("close descriptors: %w", err)
	}
	if rules != nil {
		if err := rules.enter(); err != nil {
			return err
		}
	}
	path := p.Program
	if program != nil && !isScript(program) {
		// An interpreter would find the descriptor closed.
		path = "/proc/self/fd/" + strconv.Itoa(programFD)
	}
	return fmt.Errorf("execute %s: %w", p.Program, syscall.Exec(path, p.Args, p.Env))
}

// closeRest has all descriptors but the standard ones closed when the program is executed.
func closeRest() error {
	if unix.CloseRange(profileFD, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return nil
	}
	// A kernel before 5.11 cannot, and the system calls of a container may be limited.
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range open {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd >= profileFD {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

func readProfile() (*Profile, error) {
	f := os.NewFile(profileFD, "profile")
	if f == nil {
		return nil, errors.New("there is none: only the agent starts this command")
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	p := &Profile{}
	return p, json.Unmarshal(b, p)
}

func isScript(f *os.File) bool {
	var head [2]byte
	n, _ := f.ReadAt(head[:], 0)
	return n == 2 && head == [2]byte{'#', '!'}
}

const (
	// threads is the number of threads that a process may have on average.
	threads = 8
	// reserved is how many times the memory that it may use a process may reserve. The host kills it for what it uses.
	reserved = 2
)

// setLimits sets the limits that the kernel enforces for each process.
func setLimits(p *Profile) error {
	// With 1 there is no core dump, neither into a file, for which it is too small, nor by a program
	// named in core_pattern, which ignores 0 (core(5)).
	limits := map[int]uint64{unix.RLIMIT_CORE: 1}
	if l := p.Limits; !p.Lasting {
		for resource, value := range map[int]int64{
			unix.RLIMIT_NOFILE: int64(l.Files), unix.RLIMIT_FSIZE: l.Disk, unix.RLIMIT_DATA: reserved * l.Memory,
		} {
			if value > 0 && (resource != unix.RLIMIT_FSIZE || !p.LargeFiles) {
				limits[resource] = uint64(value)
			}
		}
	}
	if p.User != nil && !p.Lasting && p.Limits.Processes > 0 {
		// It counts the threads of all processes of the user, so it is only a bound for the worst case
		// and no use for a user who has other programs.
		limits[unix.RLIMIT_NPROC] = uint64(p.Limits.Processes) * threads
	}
	for resource, value := range limits {
		var now syscall.Rlimit
		if err := syscall.Getrlimit(resource, &now); err != nil {
			return err
		}
		value = min(value, now.Max)
		// Setrlimit of syscall also makes Exec keep the number of files.
		if err := syscall.Setrlimit(resource, &syscall.Rlimit{Cur: value, Max: value}); err != nil {
			return err
		}
	}
	return nil
}

// dropRights drops all capabilities for good and becomes the user. It acts on the calling thread.
func dropRights(user *User) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	for c := uintptr(0); ; c++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			break // there is no such capability, nor a higher one
		}
		if errors.Is(err, unix.EPERM) {
			break // without privileges there is nothing to drop
		}
		if err != nil {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	if user != nil {
		groups := append([]uint32{}, user.Groups...)
		_, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(unsafe.SliceData(groups))), 0)
		if errno != 0 {
			return fmt.Errorf("become user %s: setgroups: %w", user.Name, errno)
		}
		for _, step := range []struct {
			name     string
			call, id uintptr
		}{
			{"setresgid", unix.SYS_SETRESGID, uintptr(user.GID)},
			{"setresuid", unix.SYS_SETRESUID, uintptr(user.UID)},
		} {
			if _, _, errno := unix.RawSyscall(step.call, step.id, step.id, step.id); errno != 0 {
				return fmt.Errorf("become user %s: %s: %w", user.Name, step.name, errno)
			}
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("clear ambient capabilities: %w", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if _, _, errno := unix.RawSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none[0])), 0); errno != 0 {
		return fmt.Errorf("drop capabilities: %w", errno)
	}
	return nil
}

// tie makes the program end with its parent, and its descendants stay below it. A change of the user
// clears the signal of the parent's death, so it is set here.
func tie(p *Profile) error {
	if !p.Lasting {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("adopt descendants: %w", err)
		}
	}
	if p.Signal == 0 {
		return nil
	}
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(p.Signal), 0, 0, 0); err != nil {
		return fmt.Errorf("ask for a signal on the parent's death: %w", err)
	}
	if os.Getppid() != p.Parent {
		return errors.New("the agent is gone")
	}
	return nil
}
