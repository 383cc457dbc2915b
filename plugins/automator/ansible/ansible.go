// Package ansible is the automator "ansible". It runs playbooks against a node over SSH, using the
// program ansible-playbook on the agent's machine. Ansible logs in with the node's credentials and
// verifies the node's recorded host key.
package ansible

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/words"
	"github.com/coopr/coopr/plugins/automator/kit"
	"github.com/coopr/coopr/plugins/remote"
	"github.com/coopr/coopr/plugins/remote/ssh"
	"github.com/coopr/coopr/plugins/sdk"
)

// Version is the plugin's version.
const Version = "1.0.0"

// Config holds the automator's paths on the agent's machine.
type Config struct {
	Keys ssh.Keys `json:"keys"`
	// Playbooks are folders of playbooks and their roles, in order of preference.
	Playbooks []string `json:"playbooks"`
	// Program is the path of ansible-playbook; the default is the one on the PATH.
	Program string `json:"program"`
}

// ParseConfig decodes a plugin's settings. The error names every faulty folder.
func ParseConfig(text string) (*Config, error) {
	c := &Config{}
	if text == "" {
		return c, nil
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(c); err != nil {
		return nil, fmt.Errorf("must have the form {playbooks: [folder, …], keys: [folder, …], program: path}: %w", err)
	}
	var faults []error
	for name, dirs := range map[string][]string{"keys": c.Keys, "playbooks": c.Playbooks} {
		for i, dir := range dirs {
			if !filepath.IsAbs(dir) {
				faults = append(faults, fmt.Errorf("%s[%d]: %q is not an absolute path", name, i, dir))
			}
		}
	}
	return c, errors.Join(faults...)
}

// Automator runs playbooks.
type Automator struct {
	kit.Base[*action]
	cfg Config
}

// New returns an automator, which the caller closes.
func New(cfg Config) *Automator {
	if cfg.Program == "" {
		cfg.Program = "ansible-playbook"
	}
	return &Automator{cfg: cfg, Base: kit.Base[*action]{
		Reach: kit.NewReach(cfg.Keys), Parse: parse,
		// a Python that Ansible's modules can use
		Needs: "python3 -c 'import json, argparse, urllib'", Package: "python3",
	}}
}

// Describe returns the descriptor.
func (a *Automator) Describe() model.PluginType {
	return model.PluginType{
		Base:   model.Base{Name: "ansible", Label: "Ansible", Description: "Runs playbooks against nodes"},
		Plugin: Version,
		Parameters: model.PluginParameters{Admin: model.PluginFields{
			Fields: map[string]model.FieldSchema{
				"playbook": {Label: "Playbook", Type: "text",
					Tip: "Name of a file in the playbooks' folder, or the text of a playbook (several lines)"},
				"vars": {Label: "Variables", Type: "text", Tip: "An object of extra variables"},
				"tags": {Label: "Tags", Type: "text", Tip: "Comma-separated tags: only tasks that have one of them run"},
			},
			Required: [][]string{{"playbook"}},
		}},
		ResourceTypes: map[string]model.ResourceType{"playbooks": {Format: "file"}, "projects": {Format: "archive"}, "roles": {Format: "archive"},
			kit.KeyType: kit.Keys},
		// A playbook describes a state, so it can be applied again.
		Actions: map[string]string{"bootstrap": "idempotent", "run": "idempotent", "check": "idempotent"},
	}
}

// action holds the fields of a task.
type action struct {
	playbook, tags string
	inline         bool // playbook is the text of the playbook, not its name
	vars           map[string]any
}

func parse(fields map[string]any) (*action, model.Faults) {
	var faults model.Faults
	a := &action{}
	a.playbook, _ = fields["playbook"].(string)
	a.inline = strings.Contains(a.playbook, "\n")
	switch {
	case a.playbook == "":
		faults.Add("playbook", "is missing: set it to the name of a file or the text of a playbook")
	case !a.inline && !filepath.IsLocal(a.playbook):
		faults.Add("playbook", fmt.Sprintf("%q is not a path within the playbooks' folder; the text of a playbook has several lines", a.playbook))
	}
	var ok bool
	if a.vars, ok = fields["vars"].(map[string]any); !ok && fields["vars"] != nil {
		faults.Add("vars", "must be an object")
	}
	if a.tags, ok = fields["tags"].(string); !ok && fields["tags"] != nil {
		faults.Add("tags", "must be text")
	}
	if strings.HasPrefix(a.tags, "-") {
		faults.Add("tags", "begins with a hyphen")
	}
	return a, faults
}

// Run runs the action's playbook.
func (a *Automator) Run(ctx context.Context, t *sdk.Task) (*sdk.Output, error) {
	return nil, a.play(ctx, t)
}

// Check runs the playbook of the service's action CHECK and reports whether no task failed.
func (a *Automator) Check(ctx context.Context, t *sdk.Task) (bool, *sdk.Output, error) {
	err := a.play(ctx, t)
	return err == nil, nil, err
}

// exitUnreachable is ansible-playbook's exit status if a host could not be reached.
const exitUnreachable = 4

func (a *Automator) play(ctx context.Context, t *sdk.Task) error {
	in, err := t.Input()
	if err != nil {
		return err
	}
	act, err := a.Action(t, in)
	if err != nil {
		return err
	}
	program, err := exec.LookPath(a.cfg.Program)
	if err != nil {
		return sdk.NothingDone(fmt.Errorf("this agent's machine has no %s: apt-get install ansible-core", a.cfg.Program))
	}
	// Ansible's input exists only while it runs, readable by the agent's user alone.
	dir, err := os.MkdirTemp("", "a") // a short name, because the paths of sockets are short
	if err != nil {
		return sdk.NothingDone(err)
	}
	defer os.RemoveAll(dir)
	host, err := a.host(in, a.Reach.KeysOf(t), dir)
	if err != nil {
		return err
	}
	playbook, err := a.playbook(t, act, dir)
	if err != nil {
		return err
	}
	name := host.name
	if err := errors.Join(
		writeJSON(filepath.Join(dir, "inventory.json"), map[string]any{"all": map[string]any{"hosts": map[string]any{name: host.vars}}}),
		writeJSON(filepath.Join(dir, "vars.json"), variables(t, in, act.vars)),
	); err != nil {
		return sdk.NothingDone(err)
	}
	here, err := remote.NewLocal(dir, a.Reach.Spawn)
	if err != nil {
		return sdk.NothingDone(err)
	}
	args := []string{program, "--inventory", filepath.Join(dir, "inventory.json"), "--extra-vars", "@" + filepath.Join(dir, "vars.json")}
	if act.tags != "" {
		args = append(args, "--tags", act.tags)
	}
	more := connections(dir)
	if roles, ok := t.Resource("roles", "."); ok {
		more = append(more, "ANSIBLE_ROLES_PATH="+roles)
	}
	// Ansible finds roles in the playbook's folder and among the task's resources.
	exit, err := kit.Run(ctx, here, remote.Command{
		Args: append(args, playbook), Dir: filepath.Dir(playbook), Stdout: t.Stdout(), Stderr: t.Stderr(),
		Env: append(more,
			"PATH="+os.Getenv("PATH"), "HOME="+dir, "LANG=C.UTF-8", "ANSIBLE_LOCAL_TEMP="+dir, "ANSIBLE_NOCOLOR=1", "ANSIBLE_RETRY_FILES_ENABLED=0",
			"ANSIBLE_PIPELINING=1", "ANSIBLE_SSH_CONTROL_PATH_DIR="+dir, "ANSIBLE_DEPRECATION_WARNINGS=0",
		),
	})
	if err != nil {
		return err
	}
	if exit.Signal == "" && exit.Code == exitUnreachable {
		return fmt.Errorf("node %s is unreachable for Ansible: see the task's log", t.Node)
	}
	return kit.Succeeded("the playbook of "+kit.Describe(t, in), exit)
}

// connections returns the variable that has each task of a playbook open a connection of its own, if the path of a common one's
// socket in dir, a hash and a suffix of ssh, does not fit into the 107 bytes that such a path may have.
func connections(dir string) []string {
	if len(dir)+len("/0123456789.0123456789abcdef") > 107 {
		return []string{"ANSIBLE_SSH_ARGS=-C -o ControlMaster=no"}
	}
	return nil
}

// playbook returns the path of the action's playbook.
func (a *Automator) playbook(t *sdk.Task, act *action, dir string) (string, error) {
	if act.inline {
		file := filepath.Join(dir, "playbook.yml")
		if err := os.WriteFile(file, []byte(act.playbook), 0o600); err != nil {
			return "", sdk.NothingDone(err)
		}
		return file, nil
	}
	// Resources of the tenant take precedence over files on the agent's machine.
	folders := kit.ResourcesFirst(t, "playbooks", kit.ResourcesFirst(t, "projects", a.cfg.Playbooks))
	for _, folder := range folders {
		file := filepath.Join(folder, act.playbook)
		if fi, err := os.Stat(file); err == nil && fi.Mode().IsRegular() {
			return file, nil
		}
	}
	if len(folders) == 0 {
		return "", sdk.NothingDone(fmt.Errorf("playbook %q: the tenant had no active playbooks when this was planned (coopr resource upload "+
			"automator/ansible/playbooks/NAME FILE --activate), and this agent has no folder of playbooks; or set the field to the playbook's text",
			act.playbook))
	}
	return "", sdk.NothingDone(fmt.Errorf("playbook %q is not in %s", act.playbook, words.Or(folders)))
}

// variables returns the extra variables of a playbook: those of the action, and "coopr" with the
// task and the cluster's configuration.
func variables(t *sdk.Task, in *model.TaskInput, own map[string]any) map[string]any {
	out := maps.Clone(own)
	if out == nil {
		out = map[string]any{}
	}
	out["coopr"] = map[string]any{
		"cluster": t.Cluster, "cluster_name": in.Config.ClusterName, "node": t.Node, "nodenum": in.Config.NodeNum, "hostname": in.Config.Hostname,
		"ipaddresses": in.Config.IPAddresses, "service": t.Service, "action": strings.ToLower(t.Action), "services": in.Config.Services,
		"nodes": in.Config.Nodes, "config": in.Config.Cluster, "parameters": in.Parameters,
	}
	return out
}

func writeJSON(file string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o600)
}

var (
	_ sdk.Automator = (*Automator)(nil)
	_ sdk.Validator = (*Automator)(nil)
)
