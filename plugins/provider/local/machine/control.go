package machine

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Names inside a node's folder.
const (
	runDir      = "run"
	socketName  = "run/ctl"
	lockName    = "run/lock"
	wantedName  = "run/services.json"
	endedName   = "run/ended.json"
	superLog    = "run/supervisor.log"
	logsDir     = "logs"
	NodeDirVar  = "COOPR_NODE_DIR" // set for every process of a node, to its folder
	programName = "coopr-node"
)

// Spec is a process that a node keeps running.
type Spec struct {
	Name    string   `json:"name"`
	Command []string `json:"command"`
	// Env are variables given by name; Base is the rest of the environment.
	Env  []string `json:"env,omitempty"`
	Base []string `json:"base,omitempty"`
	Dir  string   `json:"dir,omitempty"` // default: the node's folder
	// Restart is "on-failure" (the default), "always" or "never".
	Restart string `json:"restart,omitempty"`
	// Grace is how long the process has between TERM and KILL.
	Grace time.Duration `json:"grace,omitempty"`
}

// same says whether two specs ask for the same process.
func (s *Spec) same(o *Spec) bool {
	join := func(x []string) string { return strings.Join(x, "\x00") }
	return join(s.Command) == join(o.Command) && join(s.Env) == join(o.Env) && s.Dir == o.Dir && s.Restart == o.Restart
}

// Status is what a named process is doing.
type Status struct {
	Name     string    `json:"name"`
	State    string    `json:"state"` // "running", "waiting" (to be restarted), "exited", "stopped"
	PID      int       `json:"pid,omitempty"`
	Restarts int       `json:"restarts"`
	Since    time.Time `json:"since,omitzero"`
	Last     string    `json:"last,omitempty"` // how it last ended
}

type request struct {
	Verb  string        `json:"verb"` // start, stop, restart, status, shutdown
	Name  string        `json:"name,omitempty"`
	Spec  *Spec         `json:"spec,omitempty"`
	Grace time.Duration `json:"grace,omitempty"`
}

type response struct {
	Error    string   `json:"error,omitempty"`
	Services []Status `json:"services,omitempty"`
}

// errNoSupervisor says that nothing listens in the node's folder.
var errNoSupervisor = errors.New("no supervisor runs")

// call sends one request to the node's supervisor.
func call(ctx context.Context, dir string, req request) (*response, error) {
	// The folder's descriptor keeps the socket's path short, however deep it lies.
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", "/proc/self/fd/"+strconv.Itoa(int(d.Fd()))+"/"+socketName)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
			return nil, errNoSupervisor
		}
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	b, err := json.Marshal(req)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Write(append(b, '\n')); err != nil {
		return nil, errNoSupervisor // it was ending
	}
	line, err := bufio.NewReader(conn).ReadBytes('\n')
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, errNoSupervisor
	}
	var resp response
	if err := json.Unmarshal(line, &resp); err != nil {
		return nil, fmt.Errorf("the supervisor's answer: %w", err)
	}
	if resp.Error != "" {
		return &resp, errors.New(resp.Error)
	}
	return &resp, nil
}

// start asks for a process, starting the supervisor if there is none.
func start(ctx context.Context, dir string, spec *Spec) error {
	for {
		_, err := call(ctx, dir, request{Verb: "start", Name: spec.Name, Spec: spec})
		if !errors.Is(err, errNoSupervisor) {
			return err
		}
		if err := spawnSupervisor(dir); err != nil {
			return fmt.Errorf("start the node's supervisor: %w", err)
		}
	}
}

// spawnSupervisor starts a supervisor and waits until it listens, or has
// ended because another one does.
func spawnSupervisor(dir string) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, runDir), 0o700); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(dir, superLog), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	ready, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	cmd := exec.Command(exe)
	cmd.Args = []string{programName, "supervise", dir}
	cmd.Env = append(withoutTask(os.Environ()), NodeDirVar+"="+dir)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		return err
	}
	// It closes its end when it listens.
	_, _ = ready.Read(make([]byte, 1))
	return cmd.Process.Release()
}

// taskVars are the variables that belong to one task, not to the node.
var taskVars = map[string]bool{
	"COOPR_TASK": true, "COOPR_FENCE": true, "COOPR_ACTION": true, "COOPR_CONFIG": true, "COOPR_ATTEMPT": true, "COOPR_OPERATION": true,
	NodeDirVar: true,
}

// withoutTask gives an environment without what belongs to the task that
// happens to run: what a task starts for good must not look like part of it.
func withoutTask(env []string) []string {
	var out []string
	for _, e := range env {
		if k, _, _ := strings.Cut(e, "="); !taskVars[k] {
			out = append(out, e)
		}
	}
	return out
}

// Shutdown ends every process of the node: first politely, by the supervisor,
// for at most grace, then all that can be found. It returns when none is left.
func Shutdown(ctx context.Context, dir string, grace time.Duration) error {
	polite, cancel := context.WithTimeout(ctx, grace+5*time.Second)
	_, err := call(polite, dir, request{Verb: "shutdown", Grace: grace})
	cancel()
	if err != nil && !errors.Is(err, errNoSupervisor) && !errors.Is(err, fs.ErrNotExist) && polite.Err() == nil {
		return fmt.Errorf("shut down node %s: %w", dir, err)
	}
	return Sweep(ctx, dir)
}
