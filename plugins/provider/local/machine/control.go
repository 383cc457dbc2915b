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
	NodeDirVar  = "COOPR_NODE_DIR" // environment variable of every process of a node: the node's folder
	programName = "coopr-node"
)

// Spec describes a process that a node keeps running.
type Spec struct {
	Name    string   `json:"name"`
	Command []string `json:"command"`
	// Env are the variables from the command line; Base is the rest of the environment.
	Env  []string `json:"env,omitempty"`
	Base []string `json:"base,omitempty"`
	Dir  string   `json:"dir,omitempty"` // default: the node's folder
	// Restart is "on-failure" (the default), "always" or "never".
	Restart string `json:"restart,omitempty"`
	// Grace is the time between TERM and KILL.
	Grace time.Duration `json:"grace,omitempty"`
}

// same reports whether two specs describe the same process.
func (s *Spec) same(o *Spec) bool {
	join := func(x []string) string { return strings.Join(x, "\x00") }
	return join(s.Command) == join(o.Command) && join(s.Env) == join(o.Env) && s.Dir == o.Dir && s.Restart == o.Restart
}

// Status is the state of a named process.
type Status struct {
	Name     string    `json:"name"`
	State    string    `json:"state"` // "running", "waiting" (to be restarted), "exited", "stopped"
	PID      int       `json:"pid,omitempty"`
	Restarts int       `json:"restarts"`
	Since    time.Time `json:"since,omitzero"`
	Last     string    `json:"last,omitempty"` // how it ended the last time
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

// errNoSupervisor means that no supervisor listens in the node's folder.
var errNoSupervisor = errors.New("no supervisor is running")

// call sends one request to the node's supervisor.
func call(ctx context.Context, dir string, req request) (*response, error) {
	// A path through the folder's descriptor is short, however deep the folder is.
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
		return nil, errNoSupervisor // the supervisor is ending
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
		return nil, fmt.Errorf("decode the supervisor's answer: %w", err)
	}
	if resp.Error != "" {
		return &resp, errors.New(resp.Error)
	}
	return &resp, nil
}

// start starts a process, and the supervisor if there is none.
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

// spawnSupervisor starts a supervisor and waits until it listens, or has ended because another one
// is running.
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
	// The supervisor closes its end once it listens.
	_, _ = ready.Read(make([]byte, 1))
	return cmd.Process.Release()
}

// taskVars are the variables of a task, which a lasting process must not inherit.
var taskVars = map[string]bool{
	"COOPR_TASK": true, "COOPR_FENCE": true, "COOPR_ACTION": true, "COOPR_CONFIG": true, "COOPR_ATTEMPT": true, "COOPR_OPERATION": true,
	NodeDirVar: true,
}

// withoutTask returns an environment without the variables of the current task, so that a lasting
// process is not taken for a part of the task.
func withoutTask(env []string) []string {
	var out []string
	for _, e := range env {
		if k, _, _ := strings.Cut(e, "="); !taskVars[k] {
			out = append(out, e)
		}
	}
	return out
}

// Shutdown ends every process of the node: first through the supervisor, for at most grace, then by
// killing all that are left. It returns when none is left.
func Shutdown(ctx context.Context, dir string, grace time.Duration) error {
	polite, cancel := context.WithTimeout(ctx, grace+5*time.Second)
	_, err := call(polite, dir, request{Verb: "shutdown", Grace: grace})
	cancel()
	if err != nil && !errors.Is(err, errNoSupervisor) && !errors.Is(err, fs.ErrNotExist) && polite.Err() == nil {
		return fmt.Errorf("shut down node %s: %w", dir, err)
	}
	return Sweep(ctx, dir)
}
