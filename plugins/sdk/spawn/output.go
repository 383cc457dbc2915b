package spawn

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"reflect"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// drain is how long the output of the descendants of a dead process is read. They may hold its pipes open for ever.
const drain = 250 * time.Millisecond

// Child is a process whose output is copied to the writers of its command.
type Child struct {
	cmd     *exec.Cmd
	outputs []*output
}

// StartChild starts cmd as Start does. The caller calls Wait of the child and not of cmd.
func (s *Spawner) StartChild(cmd *exec.Cmd, sig syscall.Signal) (*Child, error) {
	c := &Child{cmd: cmd}
	cmd.WaitDelay = drain // for standard input
	out, err := c.pipe(cmd.Stdout)
	if err == nil {
		both := cmd.Stdout != nil && reflect.TypeOf(cmd.Stdout).Comparable() && cmd.Stdout == cmd.Stderr
		cmd.Stdout = out
		if both {
			cmd.Stderr = out
		} else {
			cmd.Stderr, err = c.pipe(cmd.Stderr)
		}
	}
	if err == nil {
		err = s.Start(cmd, sig)
	}
	for _, o := range c.outputs {
		o.end.Close()
		if err != nil {
			o.begin.Close()
			continue
		}
		go o.copy()
	}
	return c, err
}

// pipe returns the end of a pipe for the process whose other end is copied to w. A file gets no pipe, nor does nil.
func (c *Child) pipe(w io.Writer) (io.Writer, error) {
	if _, file := w.(*os.File); file || w == nil {
		return w, nil
	}
	begin, end, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	c.outputs = append(c.outputs, &output{to: w, begin: begin, end: end, done: make(chan struct{})})
	return end, nil
}

// Wait waits for the end of the process, until all that it wrote is with its writers, and returns what the command's
// Wait does.
func (c *Child) Wait() error {
	err := c.cmd.Wait()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // the process ended well and left some of its input
	}
	for _, o := range c.outputs {
		_ = o.begin.SetReadDeadline(time.Now().Add(drain))
	}
	for _, o := range c.outputs {
		<-o.done
	}
	return err
}

// output is a pipe from a process.
type output struct {
	to         io.Writer
	begin, end *os.File
	done       chan struct{} // closed when all is copied
}

func (o *output) copy() {
	defer close(o.done)
	defer o.begin.Close()
	if _, err := io.Copy(o.to, o.begin); errors.Is(err, os.ErrDeadlineExceeded) {
		_, _ = o.to.Write(rest(o.begin)) // its error would say that nobody reads the output
	}
}

// rest returns what is in a pipe now.
func rest(pipe *os.File) []byte {
	_ = pipe.SetReadDeadline(time.Time{})
	raw, err := pipe.SyscallConn()
	if err != nil {
		return nil
	}
	var text []byte
	_ = raw.Read(func(fd uintptr) bool {
		size, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ)
		if err != nil || size == 0 {
			return true
		}
		text = make([]byte, size)
		n, _ := unix.Read(int(fd), text)
		text = text[:max(n, 0)]
		return true
	})
	return text
}
