package confine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Grade says how well a machine keeps plugins away from the agent.
type Grade string

// The grades, the best first.
const (
	// Separate plugins run as a user of their own, confined by Landlock.
	Separate Grade = "separate"
	// Shared plugins run as the agent's user, confined by Landlock.
	Shared Grade = "shared"
	// None is a machine without Landlock.
	None Grade = "none"
)

// Launcher starts programs with a profile. The zero value starts them directly.
type Launcher struct {
	// Command is a program that calls Hook, with its argument. Empty: programs are started without a
	// profile.
	Command []string
	// User is whom programs run as. Nil is the agent's user.
	User *User
	// Protected are folders that no program may read, such as the agent's data directory.
	Protected []string
	// Limits are those of every plugin.
	Limits Limits
}

// NewLauncher returns a launcher that is another process of this program, which must have called Hook.
// userName is the user of plugins, or "".
func NewLauncher(userName string, protected []string, limits Limits) (*Launcher, error) {
	if !hooked.Load() {
		return nil, errors.New("this program cannot confine plugins, because its main function does not begin with confine.Hook")
	}
	l := &Launcher{Command: []string{"/proc/self/exe", command}, Protected: protected, Limits: limits}
	if userName == "" {
		return l, nil
	}
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("isolation.user: plugins cannot run as user %s, because this agent does not run as root: remove the setting",
			userName)
	}
	u, err := user.Lookup(userName)
	if err != nil {
		return nil, fmt.Errorf("isolation.user: %w", err)
	}
	l.User = &User{Name: u.Username}
	uid, uerr := strconv.Atoi(u.Uid)
	gid, gerr := strconv.Atoi(u.Gid)
	if err := errors.Join(uerr, gerr); err != nil {
		return nil, fmt.Errorf("isolation.user: %w", err)
	}
	if uid == 0 {
		return nil, errors.New("isolation.user: root is not a user for plugins")
	}
	l.User.UID, l.User.GID = uid, gid
	ids, err := u.GroupIds()
	if err != nil {
		return nil, fmt.Errorf("isolation.user: the groups of %s: %w", userName, err)
	}
	for _, id := range ids {
		if n, err := strconv.ParseUint(id, 10, 32); err == nil && int(n) != gid {
			l.User.Groups = append(l.User.Groups, uint32(n))
		}
	}
	return l, nil
}

// confines reports whether this launcher applies profiles at all.
func (l *Launcher) confines() bool { return l != nil && len(l.Command) > 0 }

// Grade returns the grade of this machine.
func (l *Launcher) Grade() Grade {
	switch {
	case !l.confines() || abi() == 0:
		return None
	case l.User != nil:
		return Separate
	}
	return Shared
}

// powerful are groups whose members can become root on their machine.
var powerful = []string{"docker", "libvirt", "lxd", "incus-admin", "disk", "sudo", "wheel", "podman"}

// Warnings returns what an operator should know about the isolation on this machine.
func (l *Launcher) Warnings() (out []string) {
	grade := l.Grade()
	if grade == Separate {
		ids := make([]int, len(l.User.Groups))
		for i, id := range l.User.Groups {
			ids[i] = int(id)
		}
		return inPowerful("the plugins' user", ids)
	}
	if grade == None {
		out = append(out, "the kernel has no Landlock: a plugin can read and change all that the agent can")
	}
	if os.Geteuid() == 0 {
		out = append(out, "plugins run as root, though without capabilities: they can use the sockets of the system's services; "+
			"set isolation.user")
	}
	ids, _ := os.Getgroups()
	return append(out, inPowerful("the agent's user", ids)...)
}

// inPowerful returns a warning for each powerful group of somebody.
func inPowerful(who string, ids []int) (out []string) {
	for _, id := range ids {
		g, err := user.LookupGroupId(strconv.Itoa(id))
		if err == nil && slices.Contains(powerful, g.Name) {
			out = append(out, fmt.Sprintf("%s is in the group %s, so a plugin can become root on this machine", who, g.Name))
		}
	}
	return out
}

// Own makes a folder for programs and gives it to their user.
func (l *Launcher) Own(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return l.Give(dir)
}

// Pass makes a folder through which programs reach what is given to them.
func (l *Launcher) Pass(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil || !l.confines() || l.User == nil {
		return err
	}
	return os.Chmod(dir, 0o711)
}

// Lend lets programs read the files of a folder as their owner can.
func (l *Launcher) Lend(dir string) error {
	if !l.confines() || l.User == nil {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := e.Info()
		if err != nil {
			return err
		}
		if err := os.Lchown(path, -1, l.User.GID); err != nil || fi.Mode()&fs.ModeSymlink != 0 {
			return err
		}
		mode := fi.Mode().Perm()
		return os.Chmod(path, mode|mode&0o500>>3)
	})
}

// Give makes the user of plugins the owner of a file.
func (l *Launcher) Give(path string) error {
	if !l.confines() || l.User == nil {
		return nil
	}
	return os.Lchown(path, l.User.UID, l.User.GID)
}

// Prepare returns a command that starts a program with a profile, and kills it when ctx ends. The caller
// calls release after the start; with a signal of the parent's death, it starts the command from a
// thread that lives on. file is the program if the profile has Checked; it stays
// the caller's.
func (l *Launcher) Prepare(ctx context.Context, p Profile, file *os.File, signal syscall.Signal) (
	cmd *exec.Cmd, release func(), err error,
) {
	if !l.confines() {
		cmd = exec.CommandContext(ctx, p.Program)
		cmd.Args, cmd.Env, cmd.Dir = p.Args, p.Env, p.Dir
		if p.Checked && !isScript(file) {
			cmd.Path = "/proc/self/fd/" + strconv.Itoa(int(file.Fd()))
		}
		return cmd, func() {}, nil
	}
	p.Landlock, p.Parent, p.Signal, p.Limits = abi() > 0, os.Getpid(), int(signal), l.Limits
	if !p.AsAgent {
		p.User = l.User
	}
	p.Protected = append(slices.Clone(p.Protected), l.Protected...)
	b, err := json.Marshal(p)
	if err != nil {
		return nil, nil, err
	}
	profile, err := inMemory(b)
	if err != nil {
		return nil, nil, fmt.Errorf("write the profile of %s: %w", p.Program, err)
	}
	cmd = exec.CommandContext(ctx, l.Command[0], l.Command[1:]...)
	cmd.Env, cmd.Dir = []string{}, "/"
	cmd.ExtraFiles = []*os.File{profile}
	if p.Checked {
		cmd.ExtraFiles = append(cmd.ExtraFiles, file)
	}
	return cmd, func() { profile.Close() }, nil
}

// inMemory returns a file in memory with this content, at its begin.
func inMemory(content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("coopr-profile", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "profile")
	if _, err := f.WriteAt(content, 0); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
