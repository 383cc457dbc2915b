package host

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/sdk"
	"github.com/coopr/coopr/plugins/sdk/tasklog"
	"github.com/coopr/coopr/rpc/proto"
)

// execPlugin is a plugin of protocol "exec": an executable in any language that is started once per
// task. It reads the request as JSON from standard input, writes its answer as JSON to standard
// output, and logs to standard error (docs/plugins.md).
type execPlugin struct {
	host    *Host
	path    string // of its descriptor
	command []string
	verbs   []string // those of "validate", "list" and "remove" that the command implements
	// sum is the configured checksum, or "": that of the descriptor's content, which is kept for it,
	// followed by the program's.
	sum        string
	descriptor []byte
}

// verify compares the configured checksum with what is started now.
func (x *execPlugin) verify() error {
	if x.sum == "" {
		return nil
	}
	if !filepath.IsAbs(x.command[0]) {
		return fmt.Errorf(
			"command: a checksum is configured, so it has to begin with a path, and not with %s, which is found on PATH",
			x.command[0],
		)
	}
	program, err := os.Open(x.command[0])
	if err != nil {
		return err
	}
	defer program.Close()
	h := sha256.New()
	h.Write(x.descriptor)
	if _, err := io.Copy(h, program); err != nil {
		return err
	}
	if sum := hex.EncodeToString(h.Sum(nil)); sum != x.sum {
		return fmt.Errorf("the SHA-256 of %s and %s together is %s, but %s is configured: install the right files or correct the configuration",
			filepath.Base(x.path), filepath.Base(x.command[0]), sum, x.sum)
	}
	return nil
}

// execDescriptor is the part of an "exec" descriptor that is not model.PluginType.
type execDescriptor struct {
	Protocol string          `json:"protocol"`
	Kind     string          `json:"kind"` // "provider" or "automator"
	Command  json.RawMessage `json:"command"`
	Verbs    []string        `json:"verbs"`
}

// execRequest is the input of the command. The fields of model.TaskInput are added to the same JSON
// object.
type execRequest struct {
	Verb      string         `json:"verb"`
	Plugin    string         `json:"plugin"`
	Tenant    string         `json:"tenant,omitempty"`
	Mesh      string         `json:"mesh,omitempty"`
	Operation string         `json:"operation,omitempty"`
	Fence     uint64         `json:"fence,omitempty"`
	Attempt   uint32         `json:"attempt,omitempty"`
	Observe   bool           `json:"observe,omitempty"`
	Timeout   float64        `json:"timeout,omitempty"` // seconds
	Scope     string         `json:"scope,omitempty"`
	Cluster   string         `json:"cluster,omitempty"` // for list
	Fields    map[string]any `json:"fields,omitempty"`
	Question  any            `json:"question,omitempty"` // for rank: model.RankingQuestion
	Resource  *execResource  `json:"resource,omitempty"` // for remove
	// Resources is the folder with the task's plugin resources.
	Resources string `json:"resources,omitempty"`
	// Settings are the plugin's settings in the agent's configuration.
	Settings json.RawMessage `json:"settings,omitempty"`
}

// execAnswer is the output of the command.
type execAnswer struct {
	Outcome string `json:"outcome"` // "succeeded" (the default), "retryable", "fatal", "nothing-done", "cancelled", "unknown"
	// Status is the original Coopr's form of the outcome: 0 is success.
	Status  json.Number                `json:"status"`
	Message string                     `json:"message"`
	Adopted bool                       `json:"adopted"`
	Save    map[string]json.RawMessage `json:"save"`
	model.TaskOutput
	Faults    []model.Fault  `json:"faults"`
	Resources []execResource `json:"resources"`
	Ranking   *model.Ranking `json:"ranking"`
}

type execResource struct {
	Cluster string `json:"cluster"`
	Node    string `json:"node"`
	Fence   uint64 `json:"fence"`
	ID      string `json:"id"`
	model.TaskOutput
}

var execOutcomes = map[string]proto.Outcome{
	"":             proto.Outcome_OUTCOME_SUCCEEDED,
	"succeeded":    proto.Outcome_OUTCOME_SUCCEEDED,
	"retryable":    proto.Outcome_OUTCOME_RETRYABLE,
	"fatal":        proto.Outcome_OUTCOME_FATAL,
	"nothing-done": proto.Outcome_OUTCOME_NOTHING_DONE,
	"cancelled":    proto.Outcome_OUTCOME_CANCELLED,
	"unknown":      proto.Outcome_OUTCOME_UNKNOWN,
}

const (
	// Exit codes of a command that writes no answer; scripts of the shell automator use the same
	// codes.
	exitFatal       = 100
	exitNothingDone = 101
	// maxAnswer bounds a command's standard output, in bytes.
	maxAnswer = 16 << 20
)

// readDescriptor fills in a file that holds a descriptor. A file whose protocol is not "exec" gets
// no types and no error.
//
// want is the configured checksum, or "". A plugin with another one is not offered.
func (h *Host) readDescriptor(f *file, want string) {
	b, err := os.ReadFile(f.path)
	if err != nil {
		f.err = err
		return
	}
	raw := b
	if filepath.Ext(f.path) != ".json" {
		var v any
		if err := yaml.Unmarshal(b, &v); err != nil {
			f.err = err
			return
		}
		if b, err = json.Marshal(v); err != nil {
			f.err = err
			return
		}
	}
	var d execDescriptor
	if err := json.Unmarshal(b, &d); err != nil || d.Protocol != "exec" {
		return
	}
	t := Type{Path: f.path}
	if err := json.Unmarshal(b, &t.PluginType); err != nil {
		f.err = err
		return
	}
	var faults model.Faults
	switch d.Kind {
	case "provider":
		t.Kind = model.KindProviderType
	case "automator":
		t.Kind = model.KindAutomatorType
	default:
		faults.Add("kind", fmt.Sprintf("%q is not one of provider, automator", d.Kind))
	}
	if t.Kind != "" {
		faults = append(faults, CheckDescriptor(t.Kind, &t.PluginType)...)
	}
	for i, v := range d.Verbs {
		if v != "validate" && v != "list" && v != "remove" {
			faults.Add(fmt.Sprintf("verbs[%d]", i), fmt.Sprintf("%q is not one of validate, list, remove; every plugin has the other actions", v))
		}
	}
	var command []string
	var line string
	if json.Unmarshal(d.Command, &line) == nil {
		command = strings.Fields(line)
	} else if err := json.Unmarshal(d.Command, &command); err != nil {
		command = nil
	}
	if len(command) == 0 {
		faults.Add("command", "must be the command to start: a text, or a list of texts")
	}
	if err := faults.Err(); err != nil {
		f.err = err
		return
	}
	if strings.Contains(command[0], "/") && !filepath.IsAbs(command[0]) {
		command[0] = filepath.Join(filepath.Dir(f.path), command[0])
	}
	if filepath.IsAbs(command[0]) {
		// Without its program the plugin would fail every task, so it is not offered. A command
		// without a path is found on the plugin's PATH when it is started.
		if f.program = command[0]; !isProgram(f.program) {
			f.err = fmt.Errorf("command: %s is not an executable program: install it, or run chmod +x", f.program)
			return
		}
	}
	sum := sha256.Sum256(b)
	t.Checksum = hex.EncodeToString(sum[:])
	f.sum = t.Checksum
	x := &execPlugin{host: h, path: f.path, command: command, verbs: d.Verbs}
	if want != "" {
		x.sum, x.descriptor = want, raw
	}
	if f.err = x.verify(); f.err != nil {
		f.program = "" // it is there: only a new scan helps
		return
	}
	f.exec = x
	f.types = []Type{t}
}

func isProgram(path string) bool {
	_, err := exec.LookPath(path)
	return err == nil
}

// execEnd is how a command ended.
type execEnd struct {
	stdout  []byte
	code    int    // exit code; -1 if a signal killed the command
	status  string // for people
	stopped string // why the host stopped the command; "" if it ended by itself
	tail    string // the last part of standard error
}

// call runs the command with a request. node is the folder of the local node that it works on, or "".
// An error means that the command did not start.
func (x *execPlugin) call(ctx context.Context, request []byte, node string, env []string, log *tasklog.Log) (*execEnd, error) {
	if err := x.verify(); err != nil {
		return nil, err
	}
	if err := x.host.refusal(x.path, nil); err != nil {
		return nil, err
	}
	program, err := exec.LookPath(x.command[0])
	if err != nil {
		return nil, err
	}
	profile, own, err := x.host.profile(x.path, nil, node)
	if err != nil {
		return nil, err
	}
	profile.Program, profile.Args, profile.Env = program, x.command, append(profile.Env, env...)
	profile.Reads = append(append(profile.Reads, x.host.readable(filepath.Dir(program))...), program)
	cmd, release, err := x.host.cfg.Launcher.Prepare(context.Background(), profile, nil, syscall.SIGKILL)
	if err != nil {
		return nil, err
	}
	defer release()
	stdout := &limited{max: maxAnswer}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(request), stdout, log.Writer(true)
	child, err := x.host.spawn.StartChild(cmd, syscall.SIGKILL)
	if err != nil {
		return nil, err
	}
	pid := cmd.Process.Pid
	pidfile := x.host.left.write(pid, x.command[0])
	defer x.host.left.remove(pidfile)
	use := x.host.meter.track(x.path, own, pid, profile.Lasting)
	defer x.host.meter.untrack(use)
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	end := &execEnd{}
	select {
	case err = <-ended:
	case <-ctx.Done():
		end.stopped = context.Cause(ctx).Error()
		_ = syscall.Kill(-pid, syscall.SIGTERM)
		grace := time.NewTimer(x.host.cfg.CancelGrace)
		defer grace.Stop()
		select {
		case err = <-ended:
			// The rest of the process group has had its grace as well.
			_ = syscall.Kill(-pid, syscall.SIGKILL)
		case <-grace.C:
			_ = syscall.Kill(-pid, syscall.SIGKILL)
			err = <-ended
		case <-x.host.ctx.Done():
			_ = syscall.Kill(-pid, syscall.SIGKILL)
			err = <-ended
		}
	}
	end.stdout, end.code, end.status, end.tail = stdout.Bytes(), cmd.ProcessState.ExitCode(), exitStatus(err), log.Close()
	if why := use.over(); why != "" {
		end.status = why
	}
	if stdout.cut {
		end.stdout = nil
		end.status += fmt.Sprintf(", with more than %d bytes of output", maxAnswer)
	}
	return end, nil
}

// settings returns the plugin's settings. They are in the request, because the command hands its
// environment on to what it starts.
func (x *execPlugin) settings() json.RawMessage { return x.host.cfg.binary(x.path).Settings }

// limited is a buffer that stops growing at a bound.
type limited struct {
	bytes.Buffer
	max int
	cut bool
}

func (l *limited) Write(p []byte) (int, error) {
	if l.Len()+len(p) > l.max {
		l.cut = true
		return len(p), nil
	}
	return l.Buffer.Write(p)
}

// execute carries out one task.
func (x *execPlugin) execute(ctx context.Context, p *plug, t *proto.Task, sink Sink) *proto.Result {
	verb := strings.ToLower(t.Action)
	if !t.Automator && verb == "check" {
		return x.there(ctx, p, t)
	}
	if t.Automator && verb != "bootstrap" && verb != "check" {
		verb = "run"
	}
	head, err := json.Marshal(execRequest{
		Verb: verb, Plugin: t.Plugin, Tenant: t.Tenant, Mesh: t.Mesh, Operation: t.Operation, Fence: t.Fence, Attempt: t.Attempt,
		Observe: t.Observe, Timeout: float64(t.TimeoutMs) / 1000, Resources: t.ResourcesDir, Settings: x.settings(),
	})
	if err != nil {
		return result(t, proto.Outcome_OUTCOME_NOTHING_DONE, err.Error())
	}
	request := head
	if in := bytes.TrimSpace(t.Input); len(in) > 2 && in[0] == '{' {
		// {"verb":…} and {"taskId":…} are joined into one object.
		request = append(append(head[:len(head)-1], ','), in[1:]...)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(x.host.ctx, func() { stop(errClosed) })()
	if t.TimeoutMs > 0 {
		var cancel context.CancelFunc
		d := time.Duration(t.TimeoutMs) * time.Millisecond
		ctx, cancel = context.WithTimeoutCause(ctx, d, errTimeout{d})
		defer cancel()
	}
	if leaseOf(ctx).over() {
		return result(t, proto.Outcome_OUTCOME_NOTHING_DONE, leaseOver)
	}
	log := tasklog.New(func(text string, stderr bool) {
		sink.Log(&proto.LogLine{Task: t.Id, Fence: t.Fence, Text: text, Stderr: stderr})
	})
	env := []string{"COOPR_TASK=" + t.Id, "COOPR_FENCE=" + strconv.FormatUint(t.Fence, 10)}
	if t.ResourcesDir != "" {
		env = append(env, "COOPR_RESOURCES="+t.ResourcesDir)
	}
	end, err := x.call(ctx, request, x.host.localNode(t), env, log)
	if err != nil {
		return result(t, proto.Outcome_OUTCOME_NOTHING_DONE, fmt.Sprintf("plugin %s did not start: %v", p.Name, err))
	}
	r := x.judge(p, t, sink, end)
	var timeout errTimeout
	switch {
	case end.stopped == "" || r.Outcome == proto.Outcome_OUTCOME_SUCCEEDED:
	case p.Repeat(t.Action) == Observe && !t.Automator || x.host.ctx.Err() != nil:
		r.Outcome, r.Message = proto.Outcome_OUTCOME_UNKNOWN, end.stopped
	case errors.As(context.Cause(ctx), &timeout):
		r.Outcome, r.Message = proto.Outcome_OUTCOME_RETRYABLE, end.stopped
	default:
		r.Outcome, r.Message = proto.Outcome_OUTCOME_CANCELLED, end.stopped
	}
	return r
}

// there finds out with the provider's verb "list" whether the task's machine exists. If the list
// succeeds, so does the result, and its field Adopted reports whether the machine exists.
func (x *execPlugin) there(ctx context.Context, p *plug, t *proto.Task) *proto.Result {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(t.TimeoutMs)*time.Millisecond)
	defer cancel()
	var in model.TaskInput
	err := json.Unmarshal(t.Input, &in)
	req := &proto.ListRequest{Tenant: t.Tenant, Cluster: t.Cluster}
	if err == nil && len(in.Config.Provider.Provisioner) > 0 {
		req.Fields, err = json.Marshal(in.Config.Provider.Provisioner)
	}
	r := result(t, proto.Outcome_OUTCOME_SUCCEEDED, "")
	if err == nil {
		err = x.list(ctx, p, req, func(found *proto.Resource) error {
			r.Adopted = r.Adopted || found.Cluster == t.Cluster && found.Node == t.Node
			return nil
		})
	}
	if err != nil {
		return result(t, proto.Outcome_OUTCOME_NOTHING_DONE, err.Error())
	}
	return r
}

type errTimeout struct{ after time.Duration }

func (e errTimeout) Error() string { return fmt.Sprintf("timed out after %s", e.after) }

// judge derives a task's result from the end of its command.
func (x *execPlugin) judge(p *plug, t *proto.Task, sink Sink, end *execEnd) *proto.Result {
	a, err := parseAnswer(end.stdout)
	unclear := proto.Outcome_OUTCOME_RETRYABLE
	if p.Repeat(t.Action) == Observe {
		unclear = proto.Outcome_OUTCOME_UNKNOWN
	}
	r := result(t, unclear, a.Message)
	r.LogTail = end.tail
	outcome, known := execOutcomes[a.Outcome]
	if n, nerr := a.Status.Int64(); a.Outcome == "" && (a.Status != "" && nerr != nil || n != 0) {
		outcome = proto.Outcome_OUTCOME_RETRYABLE
		if t.Action == "CREATE" && n >= 200 && n <= 299 {
			outcome = proto.Outcome_OUTCOME_NOTHING_DONE
		}
	}
	succeeded := outcome == proto.Outcome_OUTCOME_SUCCEEDED
	switch {
	case err != nil && end.code == 0:
		r.Message = fmt.Sprintf("plugin %s: its standard output must be one JSON object and nothing else (logs go to standard error): %v",
			p.Name, err)
	case !known:
		r.Message = fmt.Sprintf("plugin %s returned the unknown outcome %q: %s", p.Name, a.Outcome, a.Message)
	case end.code != 0 && (err != nil || succeeded):
		switch end.code {
		case exitFatal:
			r.Outcome = proto.Outcome_OUTCOME_FATAL
		case exitNothingDone:
			r.Outcome = proto.Outcome_OUTCOME_NOTHING_DONE
		case -1:
			r.Outcome = proto.Outcome_OUTCOME_UNKNOWN
		default:
			r.Outcome = proto.Outcome_OUTCOME_RETRYABLE
		}
		r.Message = strings.TrimSuffix(fmt.Sprintf("plugin %s ended with %s: %s", p.Name, end.status, a.Message), ": ")
	default:
		r.Outcome, r.Adopted = outcome, a.Adopted
		if !succeeded && r.Message == "" {
			r.Message = fmt.Sprintf("plugin %s failed without a message", p.Name)
		}
	}
	if err == nil {
		for k, v := range a.Save {
			sink.Save(&proto.SaveState{Task: t.Id, Fence: t.Fence, Key: k, Value: v})
		}
	}
	if r.Outcome == proto.Outcome_OUTCOME_SUCCEEDED {
		r.LogTail = ""
		if o := a.TaskOutput; o.Hostname != "" || len(o.IPAddresses) > 0 || len(o.Result) > 0 {
			// This cannot fail: the output has just been decoded from JSON.
			r.Output, _ = json.Marshal(o)
		}
	}
	return r
}

// parseAnswer decodes a command's standard output. Empty output is an empty answer.
func parseAnswer(b []byte) (execAnswer, error) {
	var a execAnswer
	b = bytes.TrimSpace(b)
	if len(b) == 0 {
		return a, nil
	}
	if err := json.Unmarshal(b, &a); err != nil {
		return execAnswer{}, err
	}
	return a, nil
}

// ask runs the command for an action that is not a task.
func (x *execPlugin) ask(ctx context.Context, p *plug, req execRequest) (execAnswer, error) {
	req.Settings = x.settings()
	b, err := json.Marshal(req)
	if err != nil {
		return execAnswer{}, err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(x.host.ctx, func() { stop(errClosed) })()
	log := x.host.cfg.Logger
	end, err := x.call(ctx, b, "", nil, tasklog.New(func(text string, _ bool) { log.Info(text, "plugin", p.Name) }))
	if err != nil {
		return execAnswer{}, err
	}
	a, err := parseAnswer(end.stdout)
	switch {
	case end.stopped != "":
		return a, errors.New(end.stopped)
	case end.code != 0:
		return a, fmt.Errorf("plugin %s ended with %s: %s%s", p.Name, end.status, a.Message, end.tail)
	case err != nil:
		return a, fmt.Errorf("plugin %s did not answer with JSON: %w", p.Name, err)
	}
	return a, nil
}

func (x *execPlugin) validate(ctx context.Context, p *plug, scope string, fields map[string]any) (model.Faults, error) {
	faults := sdk.CheckFields(p.PluginType, sdk.Scope(scope), fields)
	if !slices.Contains(x.verbs, "validate") {
		return faults, nil
	}
	a, err := x.ask(ctx, p, execRequest{Verb: "validate", Plugin: p.Name, Scope: scope, Fields: fields})
	for _, f := range a.Faults {
		faults.Add(f.Path, f.Message)
	}
	return faults, err
}

func (x *execPlugin) list(ctx context.Context, p *plug, req *proto.ListRequest, found func(*proto.Resource) error) error {
	if !slices.Contains(x.verbs, "list") {
		return fmt.Errorf("plugin %s cannot list machines: its descriptor lacks the verb list", p.Name)
	}
	er := execRequest{Verb: "list", Plugin: p.Name, Tenant: req.Tenant, Mesh: req.Mesh, Cluster: req.Cluster}
	if len(req.Fields) > 0 {
		if err := json.Unmarshal(req.Fields, &er.Fields); err != nil {
			return err
		}
	}
	a, err := x.ask(ctx, p, er)
	if err != nil {
		return err
	}
	for _, r := range a.Resources {
		out, err := json.Marshal(r.TaskOutput)
		if err != nil {
			return err
		}
		if err := found(&proto.Resource{Cluster: r.Cluster, Node: r.Node, Fence: r.Fence, Id: r.ID, Output: out}); err != nil {
			return err
		}
	}
	return nil
}

func (x *execPlugin) remove(ctx context.Context, p *plug, req *proto.RemoveRequest) error {
	if !slices.Contains(x.verbs, "remove") {
		return fmt.Errorf("plugin %s cannot remove a machine by its id: its descriptor lacks the verb remove", p.Name)
	}
	r := req.GetResource()
	er := execRequest{
		Verb: "remove", Plugin: p.Name, Tenant: req.Tenant, Mesh: req.Mesh, Cluster: r.GetCluster(), Fence: r.GetFence(),
		Resource: &execResource{Cluster: r.GetCluster(), Node: r.GetNode(), Fence: r.GetFence(), ID: r.GetId()}, Resources: req.ResourcesDir,
	}
	if len(req.Fields) > 0 {
		if err := json.Unmarshal(req.Fields, &er.Fields); err != nil {
			return err
		}
	}
	a, err := x.ask(ctx, p, er)
	if err == nil && execOutcomes[a.Outcome] != proto.Outcome_OUTCOME_SUCCEEDED {
		err = fmt.Errorf("%s: %s", a.Outcome, a.Message)
	}
	return err
}
