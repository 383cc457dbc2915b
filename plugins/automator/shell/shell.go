package shell

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/words"
	"github.com/coopr/coopr/plugins/automator/kit"
	"github.com/coopr/coopr/plugins/remote"
	"github.com/coopr/coopr/plugins/sdk"
)

// Version is the plugin's version.
const Version = "1.0.0"

// Exit codes by which a script reports more than a failure. Codes from 100 to 119 are reserved; those
// without a name here count as any other failure.
const (
	ExitFatal       = 100 // no further attempt can succeed
	ExitNothingDone = 101 // failed before anything was changed
)

// resultMark begins the last line of a script's output if the script returns a result.
const resultMark = "COOPR_RESULT "

// maxArgument is the maximum length of a script that is passed as an argument, in bytes; longer
// scripts are passed as a file.
const maxArgument = 128<<10 - 64

// Config holds the automator's folders.
type Config struct {
	// Scripts are the folders of scripts, in order of preference.
	Scripts []string
	// Bin is the folder of the agent's programs, which is added to the scripts' PATH.
	Bin string
	// Path is the rest of the scripts' PATH on nodes that are folders of this machine.
	Path string
	// Keys are the folders with the private keys of nodes that are reached over SSH.
	Keys []string
}

// Automator runs scripts on nodes.
type Automator struct {
	kit.Base[*action]
	cfg Config
}

// New returns an automator, which the caller closes.
func New(cfg Config) *Automator {
	if cfg.Path == "" {
		cfg.Path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	}
	return &Automator{cfg: cfg, Base: kit.Base[*action]{Reach: kit.NewReach(cfg.Keys), Parse: parse}}
}

// Describe returns the descriptor.
func (a *Automator) Describe() model.PluginType {
	return model.PluginType{
		Base:   model.Base{Name: "shell", Label: "Shell", Description: "Runs scripts with arguments and environment"},
		Plugin: Version,
		Parameters: model.PluginParameters{Admin: model.PluginFields{
			Fields: map[string]model.FieldSchema{
				"script": {Label: "Script", Type: "text",
					Tip: "Name of a file in the scripts' folder, or the text of a script (begins with #! or has several lines)"},
				"args": {Label: "Arguments", Type: "text", Tip: "The arguments of the script, quoted as in a shell, or a list"},
				"env":  {Label: "Environment", Type: "text", Tip: "An object of environment variables"},
				"config": {Label: "From the configuration", Type: "text",
					Tip: "An object that maps an environment variable to a path in the cluster's configuration, such as web.port; a " +
						"missing path sets nothing"},
				"archives": {Label: "Archives", Type: "text",
					Tip: "Comma-separated names of archives among the resources, which are unpacked on the node in the folder COOPR_ARCHIVES"},
				"shell": {Label: "Shell", Type: "text", Tip: "Interpreter of scripts without a #! line", Default: "/bin/sh"},
			},
			Required: [][]string{{"script"}},
		}},
		ResourceTypes: map[string]model.ResourceType{"scripts": {Format: "file", Permissions: "0755"}, archiveType: {Format: "archive"},
			kit.KeyType: kit.Keys},
		Actions: map[string]string{"bootstrap": "idempotent", "run": "observe", "check": "idempotent"},
	}
}

// Bootstrap creates the node's folder of records.
func (a *Automator) Bootstrap(ctx context.Context, t *sdk.Task) (*sdk.Output, error) {
	_, node, err := a.Reach.Of(t)
	if err != nil {
		return nil, err
	}
	return nil, kit.Reached(kit.Remember(ctx, node, ""))
}

// Run runs the script of one action.
func (a *Automator) Run(ctx context.Context, t *sdk.Task) (*sdk.Output, error) {
	in, node, err := a.Reach.Of(t)
	if err != nil {
		return nil, err
	}
	// If a script cannot return a result, the node itself records the end of the script. That saves
	// a round trip, and the record is kept even if the connection is lost.
	done := ""
	if t.Action != actionRun && givesNothing(in) {
		if done, err = kit.Line(t, nil); err != nil {
			return nil, err
		}
	}
	out, err := a.script(ctx, node, t, in, done)
	switch {
	case err != nil:
		return out, err
	case out == nil && done != "" && t.Fence%trimming != 0:
		return nil, nil
	case out == nil && done != "":
		return nil, kit.Reached(kit.Remember(ctx, node, ""))
	}
	line, err := kit.Line(t, out)
	if err != nil {
		return nil, err
	}
	return out, kit.Reached(kit.Remember(ctx, node, line))
}

// trimming is the average number of tasks after which the size of a record is checked that the node
// writes by itself.
const trimming = 64

// givesNothing reports whether a task's script is inline and does not mention a result.
func givesNothing(in *model.TaskInput) bool {
	if in.Config.Service == nil {
		return false
	}
	script, _ := in.Config.Service.Action.Fields["script"].(string)
	return inline(script) && !strings.Contains(script, strings.TrimSpace(resultMark))
}

// Check looks up the task in the node's record of finished tasks. For the action CHECK it runs the
// service's own script instead and reports whether its exit status is 0.
func (a *Automator) Check(ctx context.Context, t *sdk.Task) (bool, *sdk.Output, error) {
	in, node, err := a.Reach.Of(t)
	if err != nil {
		return false, nil, err
	}
	if t.Action == "CHECK" {
		out, err := a.script(ctx, node, t, in, "")
		return err == nil, out, err
	}
	d, err := kit.Recall(ctx, node, t.ID)
	if err != nil || d == nil {
		return false, nil, kit.Reached(err)
	}
	t.Logf("the attempt with fence %d has finished this task already", d.Fence)
	return true, d.Output, nil
}

// script runs the task's script and returns its result. done is the line for the node's record.
func (a *Automator) script(ctx context.Context, node remote.Node, t *sdk.Task, in *model.TaskInput, done string) (*sdk.Output, error) {
	act, err := a.Action(t, in)
	if err != nil {
		return nil, err
	}
	if err := putFiles(ctx, node, act.files); err != nil {
		return nil, kit.NotBegun(err)
	}
	if act.env, err = a.archives(ctx, t, in, node, act); err != nil {
		return nil, err
	}
	args, over, err := a.command(ctx, t, node, act)
	if err != nil {
		return nil, kit.NotBegun(err)
	}
	defer over()
	variables, err := kit.Values(act.config, in.Config.Cluster)
	if err != nil {
		return nil, sdk.Fatal(err)
	}
	act.env = append(act.env, variables...)
	config, err := kit.Config(in)
	if err != nil {
		return nil, err
	}
	path, remove, err := node.Secret(ctx, config)
	if err != nil {
		return nil, sdk.NothingDone(err)
	}
	defer remove()

	stdout := &remote.LastLine{To: t.Stdout()}
	exit, err := kit.Run(ctx, node, remote.Command{
		Args: args, Env: a.environment(node, t, in, act, path), Stdout: stdout, Stderr: t.Stderr(), Done: done,
	})
	if err != nil {
		return nil, err
	}
	what := "script of " + kit.Describe(t, in)
	if t.Action == actionRun {
		return step(what, act, exit)
	}
	switch {
	case exit.Code == ExitFatal:
		return nil, sdk.Fatal(fmt.Errorf("%s reports that no further attempt can succeed (exit status %d)", what, exit.Code))
	case exit.Code == ExitNothingDone:
		return nil, sdk.NothingDone(fmt.Errorf("%s failed before it changed anything (exit status %d)", what, exit.Code))
	}
	if err := kit.Succeeded(what, exit); err != nil {
		return nil, err
	}
	line, found := bytes.CutPrefix(stdout.Line(), []byte(resultMark))
	if !found {
		return nil, nil
	}
	out := &sdk.Output{}
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(out); err != nil {
		return nil, fmt.Errorf(`%s: its last line must be %s{"hostname": "…", "result": {…}}: %w`, what, resultMark, err)
	}
	return out, nil
}

// command returns the command line of a script. The caller calls done after the script has run.
func (a *Automator) command(ctx context.Context, t *sdk.Task, node remote.Node, act *action) (args []string, done func(), err error) {
	if act.inline {
		interpreter := shebang(act.script)
		if len(interpreter) == 0 {
			interpreter = []string{act.shell}
		}
		if isShell(interpreter) && len(act.script) < maxArgument {
			// sh -c needs no file that would have to be written and removed.
			return append(append(interpreter, "-c", act.script, "script"), act.args...), func() {}, nil
		}
		path, remove, err := node.Secret(ctx, []byte(act.script))
		if err != nil {
			return nil, nil, err
		}
		return append(append(interpreter, path), act.args...), remove, nil
	}
	folders := kit.ResourcesFirst(t, "scripts", a.cfg.Scripts)
	if len(folders) == 0 {
		return nil, nil, fmt.Errorf("script %q: the tenant has no active scripts (coopr resource upload automator/shell/scripts/%s FILE "+
			"--activate), and this agent has no folder of scripts; or set the field to the script's text (beginning with #!)", act.script,
			act.script)
	}
	for _, dir := range folders {
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
	if t.Resources == "" {
		return nil, nil, fmt.Errorf("script %q is not in %s", act.script, words.Or(folders))
	}
	return nil, nil, fmt.Errorf("script %q is not among the tenant's scripts that were active when this was planned%s", act.script,
		orIn(a.cfg.Scripts))
}

func orIn(folders []string) string {
	if len(folders) == 0 {
		return ""
	}
	return ", nor in " + words.Or(folders)
}

// archiveType is the resource type whose contents are unpacked on nodes.
const archiveType = "archives"

// archives sends the action's archives to the node and returns the script's variables, with the
// folder that holds the archives.
func (a *Automator) archives(ctx context.Context, t *sdk.Task, in *model.TaskInput, node remote.Node, act *action) ([]string, error) {
	if len(act.archives) == 0 {
		return act.env, nil
	}
	folders := map[string][]string{}
	for _, name := range act.archives {
		dir, ok := t.Resource(archiveType, name)
		if !ok {
			return nil, sdk.NothingDone(fmt.Errorf("archive %q is not among the tenant's archives that were active when this was "+
				"planned: upload it ("+
				"coopr resource upload automator/shell/archives/%s FILE --activate) and plan again", name, name))
		}
		folders[name] = []string{dir}
	}
	dir, err := kit.Folder(ctx, t, in, node, folders)
	return append(act.env, "COOPR_ARCHIVES="+dir), err
}

// shebang returns the interpreter in a script's first line, with its argument, or nil.
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

// isShell reports whether an interpreter runs a script given with -c, as sh does.
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

// environment returns all variables of a script. They hold no credentials.
func (a *Automator) environment(node remote.Node, t *sdk.Task, in *model.TaskInput, act *action, config string) []string {
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
		env = append(env, name+"="+in.Parameters[name]) // later entries take precedence
	}
	env = append(env, "PATH="+path, "HOME="+node.Dir(), "LANG=C.UTF-8")
	env = append(env, act.env...)
	return append(append(env, kit.Variables(t, in, node)...), "COOPR_CONFIG="+config)
}

var (
	_ sdk.Automator = (*Automator)(nil)
	_ sdk.Validator = (*Automator)(nil)
)
