package shell

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/automator/transport"
	"github.com/coopr/coopr/plugins/sdk"
	"github.com/coopr/coopr/plugins/sdk/spawn"
	"github.com/coopr/coopr/plugins/transport/ssh"
)

// Version is the plugin's version.
const Version = "1.0.0"

// Exit codes by which a script says more than "failed". Those from 100 to 119
// are reserved; the ones not named here count as any other failure.
const (
	ExitFatal       = 100 // no attempt will succeed
	ExitNothingDone = 101 // failed before anything was changed
)

// resultMark begins the last line of a script's output when it gives a result.
const resultMark = "COOPR_RESULT "

// maxArgument is the longest argument a program can be given, in bytes, with
// room for the end; longer scripts are given as a file.
const maxArgument = 128<<10 - 64

// Config says where the automator finds things.
type Config struct {
	// Scripts are the folders that hold scripts, the first one first.
	Scripts []string
	// Bin is the folder of the agent's programs, for the scripts' PATH.
	Bin string
	// Path is the rest of the scripts' PATH on nodes that are of this machine.
	Path string
	// Keys are the folders with the private keys of nodes reached over SSH.
	Keys []string
}

// Automator runs scripts on nodes.
type Automator struct {
	cfg   Config
	spawn *spawn.Spawner
	ssh   *ssh.Pool
}

// New gives an automator. Close ends it.
func New(cfg Config) *Automator {
	if cfg.Path == "" {
		cfg.Path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	}
	return &Automator{cfg: cfg, spawn: spawn.New(), ssh: ssh.New(ssh.Config{})}
}

// Close stops starting processes and ends connections.
func (a *Automator) Close() {
	a.spawn.Stop()
	a.ssh.Close()
}

// Describe gives the descriptor.
func (a *Automator) Describe() model.PluginType {
	return model.PluginType{
		Base:   model.Base{Name: "shell", Label: "Shell", Description: "Runs scripts with arguments and environment"},
		Plugin: Version,
		Parameters: model.PluginParameters{Admin: model.PluginFields{
			Fields: map[string]model.FieldSchema{
				"script": {Label: "Script", Type: "text", Tip: "Name of a file in the scripts' folder, or the script itself when it begins with #! or has several lines"},
				"args":   {Label: "Arguments", Type: "text", Tip: "The arguments to the script, quoted as in a shell, or a list"},
				"env":    {Label: "Environment", Type: "text", Tip: "An object of environment variables"},
				"config": {Label: "From the configuration", Type: "text", Tip: "An object: environment variable to path in the cluster's configuration, such as web.port; one that is not there is not set"},
				"shell":  {Label: "Shell", Type: "text", Tip: "Interpreter of scripts that name none", Default: "/bin/sh"},
			},
			Required: [][]string{{"script"}},
		}},
		ResourceTypes: map[string]model.ResourceType{"scripts": {Format: "file", Permissions: "0755"}, "archives": {Format: "archive"}},
		Actions:       map[string]string{"bootstrap": "idempotent", "run": "observe", "check": "idempotent"},
	}
}

// Validate checks an action's fields.
func (a *Automator) Validate(_ context.Context, scope sdk.Scope, fields map[string]any) model.Faults {
	if scope == sdk.ScopeUser {
		return nil
	}
	_, faults := parse(fields)
	return faults
}

// node gives the node of a task by the transport that its provider named.
func (a *Automator) node(in *model.TaskInput) (transport.Node, error) {
	results := in.Config.Results
	switch via, _ := results["transport"].(string); via {
	case "local":
		dir, _ := results["providerid"].(string)
		n, err := transport.NewLocal(dir, a.spawn)
		if err != nil {
			return nil, sdk.NothingDone(fmt.Errorf("node %s: %w", in.NodeID, err))
		}
		return n, nil
	case ssh.Transport:
		target, err := ssh.TargetOf(in, a.cfg.Keys)
		if err != nil {
			return nil, sdk.Fatal(fmt.Errorf("node %s cannot be reached over SSH: %w", in.NodeID, err))
		}
		return a.ssh.Node(target), nil
	case "":
		return nil, sdk.Fatal(fmt.Errorf("node %s: its provider gave no \"transport\" in its results, so the shell automator cannot reach it", in.NodeID))
	default:
		return nil, sdk.Fatal(fmt.Errorf("node %s: the shell automator does not know the transport %q: it knows local and ssh", in.NodeID, via))
	}
}

// Bootstrap makes the node's own folders.
func (a *Automator) Bootstrap(ctx context.Context, t *sdk.Task) (*sdk.Output, error) {
	in, err := t.Input()
	if err != nil {
		return nil, err
	}
	node, err := a.node(in)
	if err != nil {
		return nil, err
	}
	_, err = node.Append(ctx, doneLog, nil)
	return nil, reach(err)
}

// Run runs the script of one action.
func (a *Automator) Run(ctx context.Context, t *sdk.Task) (*sdk.Output, error) {
	in, err := t.Input()
	if err != nil {
		return nil, err
	}
	node, err := a.node(in)
	if err != nil {
		return nil, err
	}
	out, err := a.script(ctx, node, t, in)
	if err != nil {
		return out, err
	}
	return out, reach(remember(ctx, node, t, out))
}

// Check looks into the node's record of finished tasks. For the action CHECK
// it runs the service's own script: exit status 0 says yes.
func (a *Automator) Check(ctx context.Context, t *sdk.Task) (bool, *sdk.Output, error) {
	in, err := t.Input()
	if err != nil {
		return false, nil, err
	}
	node, err := a.node(in)
	if err != nil {
		return false, nil, err
	}
	if t.Action == "CHECK" {
		out, err := a.script(ctx, node, t, in)
		return err == nil, out, err
	}
	d, err := recall(ctx, node, t.ID)
	if err != nil || d == nil {
		return false, nil, reach(err)
	}
	t.Logf("the attempt with fence %d had finished this task", d.Fence)
	return true, d.Output, nil
}

// reach marks what the next attempt cannot mend: a node that is not the one we
// know.
func reach(err error) error {
	if errors.Is(err, ssh.ErrHostKey) {
		return sdk.Fatal(err)
	}
	return err
}

// notBegun marks errors from before the script ran.
func notBegun(err error) error {
	if errors.Is(err, ssh.ErrHostKey) {
		return sdk.Fatal(err)
	}
	return sdk.NothingDone(err)
}

// script runs the task's script and reads what it says.
func (a *Automator) script(ctx context.Context, node transport.Node, t *sdk.Task, in *model.TaskInput) (*sdk.Output, error) {
	if in.Config.Service == nil {
		return nil, sdk.Fatal(fmt.Errorf("task %s has no service to act on", t.ID))
	}
	act, faults := parse(in.Config.Service.Action.Fields)
	if err := faults.Err(); err != nil {
		return nil, sdk.Fatal(fmt.Errorf("fields of action %s: %w", t.Action, err))
	}
	if err := putFiles(ctx, node, act.files); err != nil {
		return nil, notBegun(err)
	}
	args, done, err := a.command(ctx, node, act)
	if err != nil {
		return nil, notBegun(err)
	}
	defer done()
	variables, err := act.variables(in.Config.Cluster)
	if err != nil {
		return nil, sdk.Fatal(err)
	}
	act.env = append(act.env, variables...)
	config, err := encodeConfig(in)
	if err != nil {
		return nil, sdk.Fatal(err)
	}
	path, remove, err := node.Secret(ctx, config)
	if err != nil {
		return nil, sdk.NothingDone(err)
	}
	defer remove()

	stdout := &transport.LastLine{To: t.Stdout()}
	exit, err := node.Run(ctx, transport.Command{
		Args: args, Env: a.environment(node, t, in, act, path), Stdout: stdout, Stderr: t.Stderr(),
	})
	if errors.Is(err, transport.ErrLost) {
		return nil, sdk.Unknown(err)
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, err // what the context's end means, the kit knows
		}
		return nil, notBegun(fmt.Errorf("start %s: %w", args[0], err))
	}
	what := fmt.Sprintf("script of %s %s on %s", t.Service, t.Action, cmp.Or(in.Config.Hostname, t.Node))
	if t.Action == actionRun {
		return step(what, act, exit)
	}
	switch {
	case exit.Signal != "":
		return nil, fmt.Errorf("%s was ended by a signal: %s", what, exit.Signal)
	case exit.Code == ExitFatal:
		return nil, sdk.Fatal(fmt.Errorf("%s says that no attempt will succeed (exit status %d)", what, exit.Code))
	case exit.Code == ExitNothingDone:
		return nil, sdk.NothingDone(fmt.Errorf("%s failed before it changed anything (exit status %d)", what, exit.Code))
	case exit.Code != 0:
		return nil, fmt.Errorf("%s failed with exit status %d", what, exit.Code)
	}
	line, found := bytes.CutPrefix(stdout.Line(), []byte(resultMark))
	if !found {
		return nil, nil
	}
	out := &sdk.Output{}
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(out); err != nil {
		return nil, fmt.Errorf(`%s: its last line must be %s{"hostname": "…", "ipaddresses": {…}, "result": {…}}: %w`, what, resultMark, err)
	}
	return out, nil
}

// command gives the command line of a script; done is called after it has run.
func (a *Automator) command(ctx context.Context, node transport.Node, act *action) (args []string, done func(), err error) {
	if act.inline {
		interpreter := shebang(act.script)
		if len(interpreter) == 0 {
			interpreter = []string{act.shell}
		}
		if isShell(interpreter) && len(act.script) < maxArgument {
			// sh -c needs no file: nothing to write, nothing to clean up.
			return append(append(interpreter, "-c", act.script, "script"), act.args...), func() {}, nil
		}
		path, remove, err := node.Secret(ctx, []byte(act.script))
		if err != nil {
			return nil, nil, err
		}
		return append(append(interpreter, path), act.args...), remove, nil
	}
	if len(a.cfg.Scripts) == 0 {
		return nil, nil, fmt.Errorf("script %q: this agent has no folder of scripts; set one, or give the script itself (beginning with #!)", act.script)
	}
	for _, dir := range a.cfg.Scripts {
		file := filepath.Join(dir, act.script)
		fi, err := os.Stat(file)
		if err != nil || !fi.Mode().IsRegular() {
			continue
		}
		path, err := node.Script(ctx, file)
		if err != nil {
			return nil, nil, err
		}
		if fi.Mode()&0o111 == 0 {
			return append([]string{act.shell, path}, act.args...), func() {}, nil
		}
		return append([]string{path}, act.args...), func() {}, nil
	}
	return nil, nil, fmt.Errorf("script %q is not in %s", act.script, strings.Join(a.cfg.Scripts, " or "))
}

// shebang gives the interpreter that a script's first line names, with its
// argument.
func shebang(script string) []string {
	rest, ok := strings.CutPrefix(script, "#!")
	if !ok {
		return nil
	}
	line, _, _ := strings.Cut(rest, "\n")
	name, arg, _ := strings.Cut(strings.TrimSpace(line), " ")
	if name == "" {
		return nil
	}
	if arg = strings.TrimSpace(arg); arg == "" {
		return []string{name}
	}
	return []string{name, arg}
}

// isShell says whether an interpreter takes scripts by -c as sh does.
func isShell(interpreter []string) bool {
	name := filepath.Base(interpreter[0])
	if name == "env" && len(interpreter) == 2 {
		name = interpreter[1]
	}
	switch name {
	case "sh", "bash", "dash", "ash", "zsh", "ksh":
		return true
	}
	return false
}

// environment gives all variables of a script. No credentials are among them.
func (a *Automator) environment(node transport.Node, t *sdk.Task, in *model.TaskInput, act *action, config string) []string {
	path := filepath.Join(node.Dir(), "bin")
	switch theirs := node.Path(); {
	case theirs != "":
		path += ":" + theirs
	case a.cfg.Bin != "":
		path += ":" + a.cfg.Bin + ":" + a.cfg.Path
	default:
		path += ":" + a.cfg.Path
	}
	env := make([]string, 0, len(act.env)+len(in.Parameters)+20)
	for _, name := range slices.Sorted(maps.Keys(in.Parameters)) {
		env = append(env, name+"="+in.Parameters[name]) // what follows wins
	}
	env = append(env, "PATH="+path, "HOME="+node.Dir(), "LANG=C.UTF-8")
	env = append(env, act.env...)
	return append(env,
		"COOPR_CLUSTER="+t.Cluster,
		"COOPR_CLUSTER_NAME="+in.Config.ClusterName,
		"COOPR_OPERATION="+t.Operation,
		"COOPR_NODE="+t.Node,
		"COOPR_NODE_NUM="+strconv.Itoa(int(in.Config.NodeNum)),
		"COOPR_NODE_DIR="+node.Dir(),
		"COOPR_HOSTNAME="+in.Config.Hostname,
		"COOPR_IP="+cmp.Or(in.Config.IPAddresses["bind_v4"], in.Config.IPAddresses["access_v4"]),
		"COOPR_SERVICE="+t.Service,
		"COOPR_ACTION="+t.Action,
		"COOPR_TASK="+t.ID,
		"COOPR_FENCE="+strconv.FormatUint(t.Fence, 10),
		"COOPR_ATTEMPT="+strconv.Itoa(t.Attempt),
		"COOPR_CONFIG="+config,
	)
}

// encodeConfig gives what COOPR_CONFIG leads to: the task's configuration
// without the provider's fields and what plugins returned, where credentials are.
func encodeConfig(in *model.TaskInput) ([]byte, error) {
	c := in.Config
	c.Provider.Provisioner, c.Results = nil, nil
	b, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("write the task's configuration: %w", err)
	}
	return append(b, '\n'), nil
}

var (
	_ sdk.Automator = (*Automator)(nil)
	_ sdk.Validator = (*Automator)(nil)
)
