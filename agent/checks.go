package agent

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	pb "github.com/coopr/coopr/rpc/proto"
)

// checkOperation is what stands for the operation's id in the ids of health checks.
const checkOperation = "check"

// Check makes the tasks of a health check.
func (t *tasks) Check(v *state.View, cl *model.Cluster, n *model.Node, service string) (check, machine *pb.Task, err error) {
	src := t.source(v, cl)
	n = v.Live(cl, n)
	saved := v.Values(n.ID)
	task := func(id string, action model.Action, service string) (*pb.Task, error) {
		w, err := src.Work(checkOperation, id, n, saved, action, service)
		if err != nil {
			return nil, err
		}
		return &pb.Task{
			Id: id, Tenant: cl.Tenant, Mesh: v.Mesh(), Cluster: cl.ID, Operation: checkOperation, Node: n.ID, Action: model.Check.String(),
			Service: service, Plugin: w.Plugin, Automator: w.Automator, TimeoutMs: w.Timeout.Milliseconds(), Input: w.Input, Resources: cl.Resources,
		}, nil
	}
	id := checkOperation + "/" + n.ID + "/" + service
	if service != "" {
		if check, err = task(id, model.Check, service); err != nil {
			return nil, nil, fmt.Errorf("check of %s: %w", service, err)
		}
	}
	// Providers are given what they are given for a CONFIRM.
	if machine, err = task(id+"/machine", model.Confirm, ""); err != nil {
		return nil, nil, err
	}
	machine.TimeoutMs = machineTimeout
	return check, machine, nil
}

// machineTimeout bounds the question whether a machine is there, in milliseconds.
const machineTimeout = 30_000

// checkNeeds tells what a health check asks of an agent.
func checkNeeds(cl *model.Cluster, n *model.Node, service string) (automator, provider, machine string) {
	name, _ := operation.Plugin(cl, checkOperation, n, model.Confirm, "")
	provider = "provider/" + name
	if service != "" {
		name, _ := operation.Plugin(cl, checkOperation, n, model.Check, service)
		automator = "automator/" + name
	}
	machine, _ = n.Results[resultMachine].(string)
	return automator, provider, machine
}

// watchTasks makes health checks for the duty that gives them out.
type watchTasks struct{ *tasks }

// Needs tells what a health check asks of an agent.
func (w watchTasks) Needs(cl *model.Cluster, n *model.Node, service string) (automator, provider, machine string) {
	return checkNeeds(cl, n, service)
}

// Version changes with what checks are told beside their node's record: the
// cluster's configuration, and the other nodes where it speaks of them.
func (w watchTasks) Version(v *state.View, cl *model.Cluster, nodes []*model.Node) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, cl.Operation)
	if w.source(v, cl).Dependent {
		for _, n := range nodes {
			fmt.Fprint(h, n.ID, n.Hostname, n.Services, n.Leaving, n.Leaves)
			for _, kind := range slices.Sorted(maps.Keys(n.IPAddresses)) {
				fmt.Fprint(h, kind, n.IPAddresses[kind])
			}
		}
	}
	return h.Sum64()
}
