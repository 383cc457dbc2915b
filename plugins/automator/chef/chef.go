// Package chef is the automator "chef-solo", modelled on the original Coopr's: the node's own
// chef-solo applies a run list with cookbooks and attributes.
package chef

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"

	"github.com/coopr/coopr/engine/model"
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
	// Cookbooks, DataBags and Roles are folders whose content is sent to the nodes.
	Cookbooks []string `json:"cookbooks"`
	DataBags  []string `json:"data_bags"`
	Roles     []string `json:"roles"`
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
		return nil, fmt.Errorf("must have the form {cookbooks: [folder, …], data_bags: […], roles: […], keys: […]}: %w", err)
	}
	var faults []error
	for name, dirs := range map[string][]string{"keys": c.Keys, "cookbooks": c.Cookbooks, "data_bags": c.DataBags, "roles": c.Roles} {
		for i, dir := range dirs {
			if !filepath.IsAbs(dir) {
				faults = append(faults, fmt.Errorf("%s[%d]: %q is not an absolute path", name, i, dir))
			}
		}
	}
	return c, errors.Join(faults...)
}

// Automator runs chef-solo.
type Automator struct {
	kit.Base[*action]
	cfg Config
}

// New returns an automator, which the caller closes.
func New(cfg Config) *Automator {
	return &Automator{cfg: cfg, Base: kit.Base[*action]{
		Reach: kit.NewReach(cfg.Keys), Parse: parse,
		// It cannot be installed from here, because Debian has no package of chef-solo.
		Needs: "command -v chef-solo && command -v tar && command -v gzip",
	}}
}

// Describe returns the descriptor.
func (a *Automator) Describe() model.PluginType {
	return model.PluginType{
		Base:   model.Base{Name: "chef-solo", Label: "Chef Solo", Description: "Runs recipes with chef-solo"},
		Plugin: Version,
		Parameters: model.PluginParameters{Admin: model.PluginFields{
			Fields: map[string]model.FieldSchema{
				"run_list":        {Label: "Run list", Type: "text", Tip: "Comma-separated: recipe[NAME], role[NAME]"},
				"json_attributes": {Label: "Attributes", Type: "text", Tip: "An object, or its JSON, merged over the cluster's configuration"},
			},
			Required: [][]string{{"run_list"}},
		}},
		ResourceTypes: map[string]model.ResourceType{"cookbooks": {Format: "archive"}, "data_bags": {Format: "archive"},
			"roles": {Format: "file"}, kit.KeyType: kit.Keys},
		// A recipe describes a state, so it can be applied again.
		Actions: map[string]string{"bootstrap": "idempotent", "run": "idempotent", "check": "idempotent"},
	}
}

// action holds the fields of a task.
type action struct {
	runList    string
	attributes map[string]any
}

// parse decodes the fields and returns all their faults.
func parse(fields map[string]any) (*action, model.Faults) {
	var faults model.Faults
	a := &action{}
	var ok bool
	if a.runList, ok = fields["run_list"].(string); !ok || strings.TrimSpace(a.runList) == "" {
		faults.Add("run_list", "is missing: set it to a run list such as recipe[apache2]")
	}
	switch v := fields["json_attributes"].(type) {
	case nil:
	case map[string]any:
		a.attributes = v
	case string:
		if strings.TrimSpace(v) == "" {
			break
		}
		if err := json.Unmarshal([]byte(v), &a.attributes); err != nil {
			faults.Add("json_attributes", fmt.Sprintf("is not a JSON object: %v", err))
		}
	default:
		faults.Add("json_attributes", "must be an object, or the JSON of one")
	}
	return a, faults
}

// Run runs the action's run list.
func (a *Automator) Run(ctx context.Context, t *sdk.Task) (*sdk.Output, error) {
	return nil, a.run(ctx, t)
}

// Check applies the run list of the service's action CHECK and reports whether its exit status is
// 0.
func (a *Automator) Check(ctx context.Context, t *sdk.Task) (bool, *sdk.Output, error) {
	err := a.run(ctx, t)
	return err == nil, nil, err
}

// program runs chef-solo. $1 is the folder with cookbooks, roles and data bags, $2 the file of
// attributes, $3 the run list.
const program = `set -eu
printf '%s "%s"\n' cookbook_path "$1/cookbooks" role_path "$1/roles" \
  data_bag_path "$1/data_bags" file_cache_path "$1/cache" >"$1/solo.rb.$$"
mv "$1/solo.rb.$$" "$1/solo.rb"
exec chef-solo --no-color -c "$1/solo.rb" -j "$2" -o "$3"`

func (a *Automator) run(ctx context.Context, t *sdk.Task) error {
	in, node, err := a.Reach.Of(t)
	if err != nil {
		return err
	}
	act, err := a.Action(t, in)
	if err != nil {
		return err
	}
	// Resources of the tenant take precedence over files on the agent's machine.
	dir, err := kit.Folder(ctx, t, in, node, map[string][]string{
		"cookbooks": kit.ResourcesFirst(t, "cookbooks", a.cfg.Cookbooks),
		"data_bags": kit.ResourcesFirst(t, "data_bags", a.cfg.DataBags),
		"roles":     kit.ResourcesFirst(t, "roles", a.cfg.Roles),
	})
	if err != nil {
		return err
	}
	values, err := json.Marshal(all(t, in, act.attributes))
	if err != nil {
		return sdk.Fatal(fmt.Errorf("encode the attributes: %w", err))
	}
	json, remove, err := node.Secret(ctx, values)
	if err != nil {
		return kit.NotBegun(err)
	}
	defer remove()
	exit, err := kit.Run(ctx, node, remote.Command{
		Args: []string{"/bin/sh", "-c", program, "chef", dir, json, act.runList},
		Env:  kit.Plain(t, in, node), Stdout: t.Stdout(), Stderr: t.Stderr(),
	})
	if err != nil {
		return err
	}
	return kit.Succeeded("chef-solo "+act.runList+" of "+kit.Describe(t, in), exit)
}

// all returns the attributes of a task in the shape that the original's recipes use: the cluster's
// configuration, the action's own attributes merged over it, and the facts of cluster and nodes
// (docs/spec/coopr.md 6.5).
func all(t *sdk.Task, in *model.TaskInput, own map[string]any) map[string]any {
	out := over(in.Config.Cluster, own)
	out["nodes"] = in.Config.Nodes
	out["coopr"] = map[string]any{
		"cluster": in.Config.Cluster, "services": in.Config.Services, "hostname": in.Config.Hostname,
		"clusterId": t.Cluster, "ipaddresses": in.Config.IPAddresses, "nodenum": in.Config.NodeNum,
	}
	return out
}

// over merges one object over another, recursively.
func over(below, above map[string]any) map[string]any {
	out := maps.Clone(below)
	if out == nil {
		out = map[string]any{}
	}
	for k, v := range above {
		a, aOK := out[k].(map[string]any)
		b, bOK := v.(map[string]any)
		if aOK && bOK {
			v = over(a, b)
		}
		out[k] = v
	}
	return out
}

var (
	_ sdk.Automator = (*Automator)(nil)
	_ sdk.Validator = (*Automator)(nil)
)
