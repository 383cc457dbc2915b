package host

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
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
	env  []string // go-plugin's variables
	use  *tracked

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
	return &runner{host: h, cmd: &exec.Cmd{}, file: file, path: path, env: spec.Env, socketDir: socketDir, exited: make(chan struct{})}
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
	settings := r.host.cfg.binary(r.path).Settings
	profile, own, err := r.host.profile(r.path, r.file, "")
	if err != nil {
		return err
	}
	profile.Program, profile.Checked, profile.Args, profile.Env = r.path, true, []string{r.path}, append(profile.Env, r.env...)
	profile.Writes = append(profile.Writes, r.socketDir)
	if err = r.host.cfg.Launcher.Give(r.socketDir); err != nil {
		return err
	}
	cmd, release, err := r.host.cfg.Launcher.Prepare(context.Background(), profile, r.file, syscall.SIGTERM)
	if err != nil {
		return err
	}
	defer release()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
	r.cmd = cmd
	if err = r.host.spawn.Start(r.cmd, syscall.SIGTERM); err != nil {
		return fmt.Errorf("start %s: %w", r.path, err)
	}
	r.pidfile = r.host.left.write(r.cmd.Process.Pid, r.path)
	r.use = r.host.meter.track(r.path, own, r.cmd.Process.Pid, profile.Lasting)
	go func() {
		if len(settings) > 0 {
			_, _ = r.input.Write(append(slices.Clone(settings), '\n')) // a plugin that has ended reads nothing
		}
	}()
	go func() {
		r.status = exitStatus(r.cmd.Wait())
		r.host.meter.untrack(r.use)
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
