package tasks

import (
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	pb "github.com/coopr/coopr/rpc/proto"
)

// checkOperation replaces the operation's id in the ids of health checks.
const checkOperation = "check"

// probeTimeoutMillis bounds the probe whether a machine still exists.
const probeTimeoutMillis = 30_000

// Checks builds health checks. It implements watch.Tasks.
type Checks struct{ builder *Builder }

// NewChecks returns a builder of health checks.
func NewChecks(m *state.Machine, o state.Opener) Checks { return Checks{NewBuilder(m, o, "")} }

// Check returns the tasks of a health check: check asks an automator about a
// service (nil if service is empty), and machine asks the provider whether the
// node's machine exists. A check is valid with an error, too: only machine needs the provider's passwords.
func (c Checks) Check(v *state.View, cl *model.Cluster, n *model.Node, service string) (check, machine *pb.Task, err error) {
	n = v.Live(cl, n)
	n, saved, returned, err := c.builder.returned(v, n)
	if err != nil {
		return nil, nil, err
	}
	task := func(id string, action model.Action, service string) (*pb.Task, error) {
		src, secrets, err := c.builder.source(v, cl, action.Hardware())
		if err != nil {
			return nil, err
		}
		w, err := src.Work(checkOperation, id, n, saved, action, service)
		if err != nil {
			return nil, err
		}
		input, inside, err := c.builder.opened(v, cl.Tenant, w.Input)
		if err != nil {
			return nil, err
		}
		return &pb.Task{
			Id: id, Tenant: cl.Tenant, Mesh: v.Mesh(), Cluster: cl.ID, Operation: checkOperation, Node: n.ID, Action: model.Check.String(),
			Service: service, Plugin: w.Plugin, Automator: w.Automator, TimeoutMs: w.Timeout.Milliseconds(), Input: input, Resources: cl.Resources,
			Secrets: slices.Concat(secrets, returned, inside, secretFields(c.builder.marked(v, cl, w), w.Fields)),
		}, nil
	}
	id := checkOperation + "/" + string(model.NodeID(n.ID).Placement(service))
	if service != "" {
		if check, err = task(id, model.Check, service); err != nil {
			return nil, nil, fmt.Errorf("health check of service %s on node %s: %w", service, n.ID, err)
		}
	}
	// A provider's probe has the same input as its CONFIRM.
	if machine, err = task(id+"/machine", model.Confirm, ""); err != nil {
		return check, nil, fmt.Errorf("question whether the machine of node %s exists: %w", n.ID, err) // the service is checked in any case
	}
	machine.TimeoutMs = probeTimeoutMillis
	return check, machine, nil
}

// Needs returns the keys of the plugins that carry out a health check and, if the
// node is on an agent's own machine, the name of that machine.
func (c Checks) Needs(cl *model.Cluster, n *model.Node, service string) (automator, provider, machine string) {
	name, _ := operation.Plugin(cl, checkOperation, n, model.Confirm, "")
	provider = "provider/" + name
	if service != "" {
		name, _ := operation.Plugin(cl, checkOperation, n, model.Check, service)
		automator = "automator/" + name
	}
	return automator, provider, n.AgentMachine()
}

// Version returns a hash of the inputs of a node's checks other than the node's
// own record: the cluster's latest operation, because operations change its
// configuration, and, if the configuration refers to other nodes, the given nodes.
func (c Checks) Version(v *state.View, cl *model.Cluster, nodes []*model.Node) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, cl.Operation)
	if src, _, err := c.builder.source(v, cl, false); err == nil && src.Dependent {
		for _, n := range nodes {
			fmt.Fprint(h, n.ID, n.Hostname, n.Services, n.Leaving, n.Leaves)
			for _, kind := range slices.Sorted(maps.Keys(n.IPAddresses)) {
				fmt.Fprint(h, kind, n.IPAddresses[kind])
			}
		}
	}
	_, _, err := c.builder.source(v, cl, true)
	if err == nil {
		err = c.builder.openable(v, cl)
	}
	for _, n := range nodes {
		if err == nil && model.HasSealedRef(n.Results) {
			_, _, _, err = c.builder.returned(v, n)
		}
	}
	if errors.Is(err, keyring.ErrNoKey) {
		fmt.Fprint(h, "no keys") // a leader that has them makes the question about the machine again
	}
	return h.Sum64()
}
