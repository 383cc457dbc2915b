package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coopr/coopr/plugins/sdk/spawn"
)

const defaultGrace = 5 * time.Second

// Local is a node that is a folder of this machine.
type Local struct {
	dir   string
	spawn *spawn.Spawner
}

// NewLocal returns the node of a folder. Its commands are started by s and die with this process.
func NewLocal(dir string, s *spawn.Spawner) (*Local, error) {
	if !filepath.IsAbs(dir) {
		return nil, fmt.Errorf("the node's folder %q is not an absolute path", dir)
	}
	if fi, err := os.Stat(dir); err != nil || !fi.IsDir() {
		return nil, fmt.Errorf("the node's folder %s does not exist: %w", dir, fs.ErrNotExist)
	}
	return &Local{dir: dir, spawn: s}, nil
}

// Dir returns the node's folder.
func (l *Local) Dir() string { return l.dir }

// Path returns "": programs are found on this machine's PATH.
func (l *Local) Path() string { return "" }

// Run runs a command as a child of this process, in a group of its own.
func (l *Local) Run(ctx context.Context, c Command) (Exit, error) {
	if err := ctx.Err(); err != nil {
		return Exit{}, context.Cause(ctx)
	}
	cmd := &exec.Cmd{Path: c.Args[0], Args: c.Args, Dir: c.Dir, Env: c.Env, Stdin: c.Stdin, Stdout: c.Stdout, Stderr: c.Stderr}
	if cmd.Dir == "" {
		cmd.Dir = l.dir
	}
	child, err := l.spawn.StartChild(cmd, syscall.SIGKILL)
	if err != nil {
		return Exit{}, err
	}
	pid := cmd.Process.Pid
	ended := make(chan struct{})
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		_ = syscall.Kill(-pid, syscall.SIGTERM)
		grace := c.Grace
		if grace <= 0 {
			grace = defaultGrace
		}
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-ended:
		case <-timer.C:
		}
		// The rest of the process group has had its grace.
		_ = syscall.Kill(-pid, syscall.SIGKILL)
	})
	err = child.Wait()
	close(ended)
	if !stop() {
		<-stopped
		return Exit{Code: -1, Signal: "stopped"}, context.Cause(ctx)
	}
	if err != nil && cmd.ProcessState == nil {
		return Exit{}, err
	}
	exit := Exit{Code: cmd.ProcessState.ExitCode()}
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		exit.Signal = ws.Signal().String()
	}
	if exit == (Exit{}) && c.Done != "" {
		if _, err := l.Append(ctx, Record, []byte(c.Done+"\n")); err != nil {
			if c.Stderr != nil {
				fmt.Fprintln(c.Stderr, "cannot record what was done:", err)
			}
			exit.Code = ExitNotRecorded
		}
	}
	return exit, nil
}

// root opens the folder so that no name can lead out of it.
func (l *Local) root() (*os.Root, error) { return os.OpenRoot(l.dir) }

// Put writes a file within the folder.
func (l *Local) Put(_ context.Context, name string, mode fs.FileMode, content []byte) error {
	r, err := l.root()
	if err != nil {
		return err
	}
	defer r.Close()
	if d := path.Dir(name); d != "." {
		if err := r.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	tmp := name + ".new"
	f, err := r.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Chmod(mode), f.Close()); err != nil {
		_ = r.Remove(tmp)
		return err
	}
	return r.Rename(tmp, name)
}

// Append appends to a file within the folder and returns its new size.
func (l *Local) Append(_ context.Context, name string, content []byte) (int64, error) {
	full := filepath.Join(l.dir, name)
	f, err := os.OpenFile(full, os.O_WRONLY|os.O_CREATE|os.O_APPEND|syscall.O_NOFOLLOW, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(full), 0o755); err == nil {
			f, err = os.OpenFile(full, os.O_WRONLY|os.O_CREATE|os.O_APPEND|syscall.O_NOFOLLOW, 0o600)
		}
	}
	if err != nil {
		return 0, err
	}
	_, err = f.Write(content)
	var size int64
	if fi, serr := f.Stat(); serr == nil {
		size = fi.Size()
	}
	return size, errors.Join(err, f.Close())
}

// Read returns the content of a file within the folder.
func (l *Local) Read(_ context.Context, name string) ([]byte, error) {
	r, err := l.root()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return r.ReadFile(name)
}

// Rename renames a file within the folder.
func (l *Local) Rename(_ context.Context, from, to string) error {
	r, err := l.root()
	if err != nil {
		return err
	}
	defer r.Close()
	return r.Rename(from, to)
}

// Secret keeps the content in memory, under a path that is valid while this process holds it. It
// never reaches a disk, and a crash leaves nothing behind.
func (l *Local) Secret(_ context.Context, content []byte) (string, func(), error) {
	fd, err := unix.MemfdCreate("coopr-config", unix.MFD_CLOEXEC)
	if err != nil {
		return "", nil, fmt.Errorf("allocate memory for a task's configuration: %w", err)
	}
	if err := unix.Fchmod(fd, 0o600); err != nil {
		unix.Close(fd)
		return "", nil, err
	}
	for b := content; len(b) > 0; {
		n, err := unix.Write(fd, b)
		if err != nil && !errors.Is(err, unix.EINTR) {
			unix.Close(fd)
			return "", nil, fmt.Errorf("write a task's configuration to memory: %w", err)
		}
		b = b[max(n, 0):]
	}
	return "/proc/" + strconv.Itoa(os.Getpid()) + "/fd/" + strconv.Itoa(fd), func() { unix.Close(fd) }, nil
}

// Script returns the path unchanged.
func (l *Local) Script(_ context.Context, path string) (string, error) { return path, nil }

var _ Node = (*Local)(nil)

// LastLine is a writer that passes everything on and remembers the last line if it is at most 64
// KiB long.
type LastLine struct {
	To   interface{ Write([]byte) (int, error) }
	line []byte
	next bool // line is complete
}

const maxLastLine = 64 << 10

// Write passes p on.
func (w *LastLine) Write(p []byte) (int, error) {
	n, err := w.To.Write(p)
	for rest := p; len(rest) > 0; {
		line, after, whole := bytes.Cut(rest, []byte{'\n'})
		if w.next {
			w.line, w.next = w.line[:0], false
		}
		if len(w.line)+len(line) <= maxLastLine+1 {
			w.line = append(w.line, line...)
		}
		w.next = whole
		rest = after
	}
	return n, err
}

// Line returns the last line without its newline.
func (w *LastLine) Line() []byte { return w.line }
