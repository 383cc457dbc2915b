// Package puppet is the automator "puppet": it applies a manifest on the node with the node's own
// "puppet apply". No Puppet server is needed.
package puppet

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/automator/kit"
	"github.com/coopr/coopr/plugins/remote"
	"github.com/coopr/coopr/plugins/remote/ssh"
	"github.com/coopr/coopr/plugins/sdk"
)

// Version is the plugin's version.
const Version = "1.0.0"

// Automator applies manifests.
type Automator struct{ kit.Base[*action] }

// New returns an automator, which the caller closes. keys are folders of private keys.
func New(keys ssh.Keys) *Automator {
	return &Automator{kit.Base[*action]{Reach: kit.NewReach(keys), Parse: parse, Needs: "command -v puppet", Package: "puppet-agent"}}
}

// Describe returns the descriptor.
func (a *Automator) Describe() model.PluginType {
	return model.PluginType{
		Base:   model.Base{Name: "puppet", Label: "Puppet", Description: "Applies manifests with puppet apply"},
		Plugin: Version,
		Parameters: model.PluginParameters{Admin: model.PluginFields{
			Fields: map[string]model.FieldSchema{
				"manifest": {Label: "Manifest", Type: "text", Tip: "The text of a manifest, or the name NAME.pp of a resource"},
				"facts":    {Label: "Facts", Type: "text", Tip: "An object of additional facts"},
				"config": {Label: "From the configuration", Type: "text",
					Tip: "An object that maps a fact to a path in the cluster's configuration"},
				"modulepath": {Label: "Module path", Type: "text", Tip: "Folders of modules on the node, separated by colons"},
			},
			Required: [][]string{{"manifest"}},
		}},
		ResourceTypes: map[string]model.ResourceType{manifestType: {Format: "file"}, moduleType: {Format: "archive"}, kit.KeyType: kit.Keys},
		// A manifest describes a state, so it can be applied again.
		Actions: map[string]string{"bootstrap": "idempotent", "run": "idempotent", "check": "idempotent"},
	}
}

// action holds the fields of a task.
type action struct {
	manifest, modulepath string
	facts                []string
	config               []kit.Setting
}

func parse(fields map[string]any) (*action, model.Faults) {
	var faults model.Faults
	a := &action{}
	var ok bool
	if a.manifest, ok = fields["manifest"].(string); !ok || a.manifest == "" {
		faults.Add("manifest", "is missing: set it to the text of a manifest")
	}
	if a.modulepath, ok = fields["modulepath"].(string); !ok && fields["modulepath"] != nil {
		faults.Add("modulepath", "must be text")
	}
	a.facts = kit.ParseVariables(fields["facts"], "facts", &faults)
	a.config = kit.ParseSettings(fields["config"], "config", &faults)
	return a, faults
}

// Run applies the action's manifest.
func (a *Automator) Run(ctx context.Context, t *sdk.Task) (*sdk.Output, error) {
	_, err := a.apply(ctx, t, false)
	return nil, err
}

// Check reports whether the manifest would change nothing.
func (a *Automator) Check(ctx context.Context, t *sdk.Task) (bool, *sdk.Output, error) {
	changes, err := a.apply(ctx, t, true)
	return err == nil && !changes, nil, err
}

// The resource types of this automator.
const (
	manifestType = "manifests"
	moduleType   = "modules"
)

// usualModules is the default module path of Debian's and of Puppet's own packages.
const usualModules = "/etc/puppet/code/environments/production/modules:/etc/puppet/code/modules:/usr/share/puppet/modules" +
	":/etc/puppetlabs/code/environments/production/modules:/etc/puppetlabs/code/modules:/opt/puppetlabs/puppet/modules"

// find replaces the name of a resource with the manifest that it holds.
func (a *action) find(t *sdk.Task) error {
	if !strings.HasSuffix(a.manifest, ".pp") || model.CheckResourceName(a.manifest) != "" {
		return nil // the text of a manifest
	}
	file, ok := t.Resource(manifestType, a.manifest)
	if !ok {
		return sdk.NothingDone(fmt.Errorf("manifest %q is not among the tenant's manifests that were active when this was planned: upload it ("+
			"coopr resource upload automator/puppet/manifests/%s FILE --activate) and plan again", a.manifest, a.manifest))
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return sdk.NothingDone(err)
	}
	a.manifest = string(b)
	return nil
}

// The exit statuses of puppet apply --detailed-exitcodes.
const (
	exitSame    = 0
	exitFailed  = 1 // the manifest cannot be compiled
	exitChanged = 2
)

// apply applies the manifest, or with dry only compares. It reports whether anything was changed
// or, with dry, would be.
func (a *Automator) apply(ctx context.Context, t *sdk.Task, dry bool) (changes bool, err error) {
	in, node, err := a.Reach.Of(t)
	if err != nil {
		return false, err
	}
	act, err := a.Action(t, in)
	if err != nil {
		return false, err
	}
	values, err := kit.Values(act.config, in.Config.Cluster)
	if err != nil {
		return false, sdk.Fatal(err)
	}
	env := kit.Plain(t, in, node)
	for _, fact := range append(act.facts, values...) {
		env = append(env, "FACTER_"+fact)
	}
	for _, name := range []struct{ fact, value string }{
		{"coopr_cluster", t.Cluster}, {"coopr_node", t.Node}, {"coopr_service", t.Service}, {"coopr_action", t.Action},
	} {
		env = append(env, "FACTER_"+name.fact+"="+name.value)
	}
	if err := act.find(t); err != nil {
		return false, err
	}
	if modules, ok := t.Resource(moduleType, "."); ok {
		there, err := kit.Folder(ctx, t, in, node, map[string][]string{moduleType: {modules}})
		if err != nil {
			return false, err
		}
		if act.modulepath == "" {
			act.modulepath = usualModules
		}
		act.modulepath = there + "/" + moduleType + ":" + act.modulepath
	}
	path, remove, err := node.Secret(ctx, []byte(act.manifest))
	if err != nil {
		return false, kit.NotBegun(err)
	}
	defer remove()
	args := []string{"puppet", "apply", "--detailed-exitcodes", "--color=false", "--logdest=console"}
	if act.modulepath != "" {
		args = append(args, "--modulepath="+act.modulepath)
	}
	if dry {
		args = append(args, "--noop")
	}
	out := &wanted{to: t.Stdout()}
	exit, err := kit.Run(ctx, node, remote.Command{Args: append(args, path), Dir: "/", Env: env, Stdout: out, Stderr: t.Stderr()})
	if err != nil {
		return false, err
	}
	what := "the manifest of " + kit.Describe(t, in)
	switch {
	case exit.Signal != "":
	case exit.Code == exitSame || exit.Code == exitChanged:
		return exit.Code == exitChanged || out.found, nil
	case exit.Code == exitFailed:
		return false, sdk.Fatal(fmt.Errorf("%s cannot be applied: see the task's log", what))
	}
	return false, kit.Succeeded(what, exit)
}

// wanted passes on the output of puppet --noop and records whether it announces a change, which the
// exit status does not show.
type wanted struct {
	to    io.Writer
	last  []byte
	found bool
}

func (w *wanted) Write(p []byte) (int, error) {
	const mark = "(noop)"
	w.last = append(w.last, p...)
	w.found = w.found || bytes.Contains(w.last, []byte(mark))
	w.last = w.last[max(0, len(w.last)-len(mark)):]
	return w.to.Write(p)
}

var (
	_ sdk.Automator = (*Automator)(nil)
	_ sdk.Validator = (*Automator)(nil)
)
