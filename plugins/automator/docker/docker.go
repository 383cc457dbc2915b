// Package docker is the automator "docker": it runs a service as a container on a node that has a
// Docker engine, with the node's docker command.
package docker

import (
	"context"
	"crypto/sha256"
	"fmt"
	"regexp"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/automator/kit"
	"github.com/coopr/coopr/plugins/remote"
	"github.com/coopr/coopr/plugins/remote/ssh"
	"github.com/coopr/coopr/plugins/sdk"
)

// Version is the plugin's version.
const Version = "1.0.0"

// Automator runs containers.
type Automator struct{ kit.Base[*action] }

// New returns an automator, which the caller closes. keys are folders of private keys.
func New(keys ssh.Keys) *Automator {
	return &Automator{kit.Base[*action]{Reach: kit.NewReach(keys), Parse: parse, Needs: "command -v docker", Package: "docker.io"}}
}

// Describe returns the descriptor.
func (a *Automator) Describe() model.PluginType {
	return model.PluginType{
		Base:   model.Base{Name: "docker", Label: "Docker", Description: "Runs containers on nodes with a Docker engine"},
		Plugin: Version,
		Parameters: model.PluginParameters{Admin: model.PluginFields{
			Fields: map[string]model.FieldSchema{
				"image_name": {Label: "Image", Type: "text", Tip: "Image to run, with its tag"},
				"registry": {Label: "Registry", Type: "text",
					Tip: "HOST:PORT of the registry that the image is pulled from; default: the engine's"},
				"command":               {Label: "Command", Type: "text", Tip: "Command of the container, run by /bin/sh; default: that of the image"},
				"environment_variables": {Label: "Environment", Type: "text", Tip: "An object of variables, or comma-separated KEY=value"},
				"config": {Label: "From the configuration", Type: "text",
					Tip: "An object that maps a variable to a path in the cluster's configuration"},
				"publish_ports": {Label: "Ports", Type: "text", Tip: "Comma-separated NODE:CONTAINER, or a list"},
				"volumes":       {Label: "Volumes", Type: "text", Tip: "Comma-separated NODE:CONTAINER, or a list"},
				"links":         {Label: "Links", Type: "text", Tip: "Other containers of the node: comma-separated NAME:ALIAS, or a list"},
				"network":       {Label: "Network", Type: "text", Tip: "A network of the engine, or host"},
				"engine":        {Label: "Engine", Type: "text", Tip: "Address of the engine, as in DOCKER_HOST; default: the node's own engine"},
			},
			Required: [][]string{{"image_name"}},
		}},
		Actions: map[string]string{"bootstrap": "idempotent", "run": "idempotent", "check": "idempotent"},
	}
}

// action holds the fields of a task.
type action struct {
	image, command, network, engine string
	env                             []string
	config                          []kit.Setting
	ports, volumes, links           []string
}

var engineName = regexp.MustCompile(`^(unix|tcp|npipe)://[^\s]+$`)

func parse(fields map[string]any) (*action, model.Faults) {
	var faults model.Faults
	a := &action{}
	text := func(name string, into *string) {
		switch v := fields[name].(type) {
		case nil:
		case string:
			*into = strings.TrimSpace(v)
		default:
			faults.Add(name, "must be text")
		}
		if strings.HasPrefix(*into, "-") {
			faults.Add(name, "begins with a hyphen")
		}
	}
	list := func(name string, into *[]string) {
		switch v := fields[name].(type) {
		case nil:
		case string:
			for s := range strings.SplitSeq(v, ",") {
				if s = strings.TrimSpace(s); s != "" {
					*into = append(*into, s)
				}
			}
		case []any:
			for i, x := range v {
				s, ok := kit.Scalar(x)
				if !ok {
					faults.Add(fmt.Sprintf("%s[%d]", name, i), "must be text")
				}
				*into = append(*into, s)
			}
		default:
			faults.Add(name, "must be text or a list of texts")
		}
	}
	var registry string
	text("image_name", &a.image)
	text("registry", &registry)
	text("command", &a.command)
	text("network", &a.network)
	text("engine", &a.engine)
	list("publish_ports", &a.ports)
	list("volumes", &a.volumes)
	list("links", &a.links)
	if a.image == "" {
		faults.Add("image_name", "is missing: set it to the image to run")
	}
	if registry != "" {
		a.image = strings.TrimSuffix(registry, "/") + "/" + a.image
	}
	if a.engine != "" && !engineName.MatchString(a.engine) {
		faults.Add("engine", fmt.Sprintf("%q is neither unix://PATH nor tcp://HOST:PORT", a.engine))
	}
	if s, ok := fields["environment_variables"].(string); ok {
		vars := map[string]any{}
		for pair := range strings.SplitSeq(s, ",") {
			if k, v, ok := strings.Cut(strings.TrimSpace(pair), "="); ok {
				vars[k] = v
			} else if k != "" {
				faults.Add("environment_variables", fmt.Sprintf("%q is not KEY=value", k))
			}
		}
		a.env = kit.ParseVariables(vars, "environment_variables", &faults)
	} else {
		a.env = kit.ParseVariables(fields["environment_variables"], "environment_variables", &faults)
	}
	a.config = kit.ParseSettings(fields["config"], "config", &faults)
	return a, faults
}

// program carries out an action. $1 is the action, $2 the container's name, $3 the hash of its
// wanted definition, $4 the image; the other arguments are those of docker run. START replaces a
// container whose definition has another hash.
const program = `set -eu
action=$1 name=$2 hash=$3 image=$4
shift 4
there() { docker container inspect --format "$1" "$name" 2>/dev/null || true; }
case $action in
INSTALL)
  docker image inspect "$image" >/dev/null 2>&1 || docker pull "$image" ;;
START)
  is=$(there '{{index .Config.Labels "coopr.hash"}} {{.State.Running}}')
  case $is in
  "$hash true") ;;
  "$hash false") docker start "$name" ;;
  *)
    [ -z "$is" ] || docker rm --force "$name"
    docker run --detach --name "$name" --label "coopr.hash=$hash" "$@" ;;
  esac ;;
STOP)
  [ -z "$(there x)" ] || docker stop "$name" ;;
REMOVE)
  [ -z "$(there x)" ] || docker rm --force --volumes "$name" ;;
CHECK)
  [ "$(there '{{.State.Running}}')" = true ] ;;
esac
[ "$action" != START ] || docker container inspect --format 'COOPR_ID {{.Id}}' "$name"`

// name returns the name of the service's container on the node.
func name(t *sdk.Task) string { return "coopr-" + t.Node + "-" + t.Service }

// Run carries out one action of the service. CONFIGURE and INITIALIZE do nothing: START replaces a
// container whose values have changed.
func (a *Automator) Run(ctx context.Context, t *sdk.Task) (*sdk.Output, error) {
	return a.do(ctx, t)
}

// Check reports whether the service's container runs.
func (a *Automator) Check(ctx context.Context, t *sdk.Task) (bool, *sdk.Output, error) {
	out, err := a.do(ctx, t)
	return err == nil, out, err
}

func (a *Automator) do(ctx context.Context, t *sdk.Task) (*sdk.Output, error) {
	in, node, err := a.Reach.Of(t)
	if err != nil {
		return nil, err
	}
	act, err := a.Action(t, in)
	if err != nil {
		return nil, err
	}
	values, err := kit.Values(act.config, in.Config.Cluster)
	if err != nil {
		return nil, sdk.Fatal(err)
	}
	run := []string{"--restart", "unless-stopped", "--hostname", in.Config.Hostname}
	for _, o := range []struct {
		option string
		values []string
	}{{"--publish", act.ports}, {"--volume", act.volumes}, {"--link", act.links}} {
		for _, v := range o.values {
			run = append(run, o.option, v)
		}
	}
	if act.network != "" {
		run = append(run, "--network", act.network)
	}
	// Values are passed in docker's own environment, because command lines are visible to every
	// user of the node.
	env := append(kit.Plain(t, in, node), append(act.env, values...)...)
	for _, v := range append(act.env, values...) {
		k, _, _ := strings.Cut(v, "=")
		run = append(run, "--env", k)
	}
	if act.engine != "" {
		env = append(env, "DOCKER_HOST="+act.engine)
	}
	run = append(run, act.image)
	if act.command != "" {
		run = append(run, "/bin/sh", "-c", act.command)
	}
	hash := fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%q %q", run, append(act.env, values...))))
	out := &remote.LastLine{To: t.Stdout()}
	exit, err := kit.Run(ctx, node, remote.Command{
		Args: append([]string{"/bin/sh", "-c", program, "docker", t.Action, name(t), hash, act.image}, run...),
		Dir:  "/", Env: env, Stdout: out, Stderr: t.Stderr(),
	})
	if err != nil {
		return nil, err
	}
	if err := kit.Succeeded("container of "+kit.Describe(t, in), exit); err != nil {
		return nil, err
	}
	if id, ok := strings.CutPrefix(string(out.Line()), "COOPR_ID "); ok {
		return &sdk.Output{Result: map[string]any{"container-" + t.Service: strings.TrimSpace(id)}}, nil
	}
	return nil, nil
}

var (
	_ sdk.Automator = (*Automator)(nil)
	_ sdk.Validator = (*Automator)(nil)
)
