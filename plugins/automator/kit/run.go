package kit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/remote"
	"github.com/coopr/coopr/plugins/sdk"
)

// Run runs a program on a task's node and returns how it ended. The error of a program that did not
// run to its end is marked.
func Run(ctx context.Context, node remote.Node, c remote.Command) (remote.Exit, error) {
	exit, err := node.Run(ctx, c)
	switch {
	case errors.Is(err, remote.ErrLost):
		return exit, sdk.Unknown(err)
	case err != nil && ctx.Err() != nil:
		return exit, err // the kit turns the end of the context into an outcome
	case err != nil:
		return exit, NotBegun(fmt.Errorf("start %s: %w", c.Args[0], err))
	}
	return exit, nil
}

// Succeeded returns an error for a program whose exit status is not 0.
func Succeeded(what string, exit remote.Exit) error {
	switch {
	case exit.Signal != "":
		return fmt.Errorf("%s was ended by a signal: %s", what, exit.Signal)
	case exit.Code != 0:
		return fmt.Errorf("%s failed with exit status %d", what, exit.Code)
	}
	return nil
}

// Describe returns a task's action in words, for messages.
func Describe(t *sdk.Task, in *model.TaskInput) string {
	return fmt.Sprintf("%s %s on %s", t.Service, t.Action, cmp.Or(in.Config.Hostname, t.Node))
}

// Variables returns the variables that describe a task to its programs. The only credential among them is the token with which the task
// identifies itself elsewhere, if its definition asks for one.
func Variables(t *sdk.Task, in *model.TaskInput, node remote.Node) []string {
	out := []string{
		"COOPR_CLUSTER=" + t.Cluster,
		"COOPR_CLUSTER_NAME=" + in.Config.ClusterName,
		"COOPR_OPERATION=" + t.Operation,
		"COOPR_NODE=" + t.Node,
		"COOPR_NODE_NUM=" + strconv.Itoa(int(in.Config.NodeNum)),
		"COOPR_NODE_DIR=" + node.Dir(),
		"COOPR_HOSTNAME=" + in.Config.Hostname,
		"COOPR_ZONE=" + in.Config.Zone,
		"COOPR_IP=" + cmp.Or(in.Config.IPAddresses["bind_v4"], in.Config.IPAddresses["access_v4"]),
		"COOPR_SERVICE=" + t.Service,
		"COOPR_ACTION=" + t.Action,
		"COOPR_TASK=" + t.ID,
		"COOPR_FENCE=" + strconv.FormatUint(t.Fence, 10),
		"COOPR_ATTEMPT=" + strconv.Itoa(t.Attempt),
	}
	if in.Identity != "" {
		out = append(out, "COOPR_IDENTITY_TOKEN="+in.Identity)
	}
	return out
}

// Config returns a task's configuration for programs: without the provider's fields and the results
// of plugins, which hold credentials.
func Config(in *model.TaskInput) ([]byte, error) {
	c := in.Config
	c.Provider.Provisioner, c.Results = nil, nil
	b, err := json.Marshal(c)
	if err != nil {
		return nil, sdk.Fatal(fmt.Errorf("encode the task's configuration: %w", err))
	}
	return append(b, '\n'), nil
}

// Plain returns the environment of programs that are not scripts: PATH, HOME, LANG and the task's
// variables.
func Plain(t *sdk.Task, in *model.TaskInput, node remote.Node) []string {
	path := node.Path()
	if path == "" {
		path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	}
	return append([]string{"PATH=" + path, "HOME=" + node.Dir(), "LANG=C.UTF-8"}, Variables(t, in, node)...)
}
