package host

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// pipeDrain is how long the remaining output of a dead process is read. One of its children may
// hold the pipes open for ever.
const pipeDrain = 250 * time.Millisecond

// runner starts one plugin process for go-plugin (its runner.Runner). It executes the open file
// whose checksum was compared, through its descriptor, so that the file cannot be exchanged between
// comparison and start.
type runner struct {
	host *Host
	cmd  *exec.Cmd
	file *os.File // the open, checked file
	path string

	input     *os.File // the host's end of its standard input; closing it asks the process to end
	stdout    *os.File
	stderr    *os.File
	words     *lastWords // standard error as it is read
	pidfile   string
	socketDir string

	exited chan struct{} // closed when the process is gone
	status string        // how it ended; read after exited

	killOnce sync.Once
}

// newRunner takes over file and closes it.
func (h *Host) newRunner(spec *exec.Cmd, file *os.File, path string, socketDir string) *runner {
	cmd := exec.Command("/proc/self/fd/" + strconv.Itoa(int(file.Fd())))
	cmd.Args = []string{path}
	cmd.Env = append(h.cfg.env(path), spec.Env...)
	cmd.Dir = "/"
	return &runner{host: h, cmd: cmd, file: file, path: path, socketDir: socketDir, exited: make(chan struct{})}
}

// Start starts the process.
func (r *runner) Start(context.Context) (err error) {
	var ends []*os.File
	pipe := func(ours **os.File, input bool) *os.File {
		if err != nil {
			return nil
		}
		var rd, wr *os.File
		if rd, wr, err = os.Pipe(); err != nil {
			return nil
		}
		if input {
			rd, wr = wr, rd
		}
		*ours = rd
		ends = append(ends, wr)
		return wr
	}
	stdin, stdout, stderr := pipe(&r.input, true), pipe(&r.stdout, false), pipe(&r.stderr, false)
	defer func() {
		r.file.Close()
		for _, f := range ends {
			f.Close()
		}
		if err != nil {
			for _, f := range []*os.File{r.input, r.stdout, r.stderr} {
				if f != nil {
					f.Close()
				}
			}
		}
	}()
	if err != nil {
		return err
	}
	r.words = &lastWords{from: r.stderr, end: make(chan struct{})}
	r.cmd.Stdin, r.cmd.Stdout, r.cmd.Stderr = stdin, stdout, stderr
	if isScript(r.file) {
		// The interpreter would get the path of the descriptor, which is closed there.
		r.cmd.Path = r.path
	}
	if err = r.host.spawn.Start(r.cmd, syscall.SIGTERM); err != nil {
		return fmt.Errorf("start %s: %w", r.path, err)
	}
	r.pidfile = r.host.left.write(r.cmd.Process.Pid, r.path)
	go func() {
		r.status = exitStatus(r.cmd.Wait())
		r.host.left.remove(r.pidfile)
		_ = r.stdout.SetReadDeadline(time.Now().Add(pipeDrain))
		_ = r.stderr.SetReadDeadline(time.Now().Add(pipeDrain))
		r.input.Close()
		close(r.exited)
	}()
	return nil
}

func exitStatus(err error) string {
	if err == nil {
		return "exit status 0"
	}
	return err.Error()
}

func isScript(f *os.File) bool {
	var head [2]byte
	n, _ := f.ReadAt(head[:], 0)
	return n == 2 && head == [2]byte{'#', '!'}
}

// Wait waits until the process is gone.
func (r *runner) Wait(context.Context) error {
	<-r.exited
	// Both readers have reached the end: go-plugin waits for them before it calls Wait.
	r.stdout.Close()
	r.stderr.Close()
	return nil
}

// Kill kills the process and all its descendants.
func (r *runner) Kill(context.Context) error {
	r.killOnce.Do(func() {
		select {
		case <-r.exited:
		default:
			killTree(r.cmd.Process.Pid)
		}
	})
	return nil
}

// Diagnose returns "", because go-plugin's message says enough.
func (r *runner) Diagnose(context.Context) string { return "" }

func (r *runner) Stdout() io.ReadCloser { return r.stdout }
func (r *runner) Stderr() io.ReadCloser { return r.words }

// Name returns the plugin's path.
func (r *runner) Name() string { return r.path }

// ID returns the process id, or "" if the process never started.
func (r *runner) ID() string {
	if r.cmd.Process == nil {
		return ""
	}
	return strconv.Itoa(r.cmd.Process.Pid)
}

// PluginToHost returns the address unchanged, because both sides see the same files.
func (r *runner) PluginToHost(network, addr string) (string, string, error) {
	return network, addr, nil
}

// HostToPlugin returns the address unchanged.
func (r *runner) HostToPlugin(network, addr string) (string, string, error) {
	return network, addr, nil
}

// lastWords reads standard error and keeps its end, which has the reason if a program fails to
// start.
type lastWords struct {
	from *os.File
	end  chan struct{} // closed when everything is read
	once sync.Once
	mu   sync.Mutex
	text []byte
}

// maxWords bounds the remembered text, in bytes.
const maxWords = 1 << 10

// Read reads from the pipe and remembers the text.
func (w *lastWords) Read(p []byte) (int, error) {
	n, err := w.from.Read(p)
	w.mu.Lock()
	w.text = append(w.text, p[:n]...)
	w.text = append(w.text[:0], w.text[max(0, len(w.text)-maxWords):]...)
	w.mu.Unlock()
	if err != nil {
		w.once.Do(func() { close(w.end) })
	}
	return n, err
}

// Close closes the pipe.
func (w *lastWords) Close() error { return w.from.Close() }

// last returns the last line that a dead process has written. It waits a moment for the end of the
// text.
func (w *lastWords) last() string {
	select {
	case <-w.end:
	case <-time.After(pipeDrain):
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	text := strings.TrimSpace(string(w.text))
	return text[strings.LastIndexByte(text, '\n')+1:]
}
