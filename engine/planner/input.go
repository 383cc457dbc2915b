package planner

import (
	"slices"

	"github.com/coopr/coopr/engine/model"
)

// Node is one node of the cluster, reduced to the facts that planning needs.
type Node struct {
	ID     string
	Number int
	// Services are the services on the node after the operation. For shrink and remove-services
	// they include the services that the operation removes.
	Services []string
	// States holds each service's last finished action: "INSTALL", "START", …. A "?" at the end
	// marks an action that was tried and may be half done. A service without an entry may be in any
	// state. A CONFIGURE of a started service leaves its entry at "START", because otherwise
	// planning could not see that the service runs.
	States map[string]string
	// Created is true if the machine exists or may exist: a CREATE was accepted and no DELETE
	// since. On a node that was not created, only the create chain is planned.
	Created bool
}

// Input is the input of Plan.
type Input struct {
	Operation model.OperationType
	// Nodes are all nodes of the cluster, including those that the operation creates or deletes.
	// The graph's node indexes are indexes into it.
	Nodes []Node
	// Services are the definitions of all services on the nodes, by name.
	Services map[string]model.Service
	// Previous holds the earlier definitions of the services that the operation moves to new
	// definitions in Services. STOP and REMOVE still follow the earlier definitions.
	Previous map[string]model.Service
	// PlannedServices and PlannedNodes (ids) limit the operation; nil means all.
	// Start, stop and restart widen PlannedServices over run-time dependencies.
	PlannedServices []string
	PlannedNodes    []string
	// Wanted holds, by node id, the tasks of an OpConverge. Only these are planned.
	Wanted map[string]Wanted
	// NodeLocal limits the rules between services to each node, so that nodes can take turns. An
	// upgrade always has it.
	NodeLocal bool
	// Restart lets a configure stop services before and start them after.
	Restart bool
	// Graceful lets a delete stop and remove services first.
	Graceful bool
	// Reconfigure holds, by node id, the services whose expanded configuration the operation
	// changes. Services that have tasks in the operation are configured among these tasks. The
	// others are configured after everything else, and restarted if they run and
	// restart_on_configure is not false. In an upgrade, and in a converge that is NodeLocal, they are
	// configured in their node's turn instead; with Gather, a node that has no other tasks stops none
	// before the nodes of GatherFrom are confirmed. It is for grow, shrink, add-services,
	// remove-services, upgrade, replace-node and converge.
	Reconfigure map[string][]string
	// Gather lets everything except CREATE and CONFIRM wait until the nodes of GatherFrom (ids; nil
	// means all) are confirmed. The configuration refers to these nodes, so that no task can have
	// it before their addresses are known. STOP, REMOVE and DELETE of an OpConverge do not wait:
	// they use the configuration with which their service was last configured.
	Gather     bool
	GatherFrom []string
	// Compat plans as the original did: finished tasks are not left out, dependencies are started
	// again, nodes without services get no task, and dependencies on a cycle are dropped silently.
	Compat bool
}

// mask is a set of actions, bit 1<<action.
type mask uint16

func bit(a model.Action) mask { return 1 << a }

func maskOf(actions ...model.Action) mask {
	m := mask(0)
	for _, a := range actions {
		m |= bit(a)
	}
	return m
}

// createChain holds the actions that bring a node into the cluster, in order.
var createChain = []model.Action{
	model.Create,
	model.Confirm,
	model.Bootstrap,
	model.Install,
	model.Configure,
	model.Initialize,
	model.Start,
}

// order returns the actions of an operation, in the order in which each service on each node goes
// through them. It returns false for an operation that cannot be planned.
func (in *Input) order() ([]model.Action, bool) {
	switch in.Operation {
	case model.OpCreate, model.OpGrow:
		return createChain, true
	case model.OpAddServices:
		if in.Compat {
			return createChain[2:], true
		}
		return createChain, true
	case OpConverge:
		return slices.Concat(leaveChain, createChain), true
	case model.OpReplaceNode:
		return append([]model.Action{model.Delete}, createChain...), true
	case model.OpDelete:
		if in.Graceful {
			return []model.Action{model.Stop, model.Remove, model.Delete}, true
		}
		return []model.Action{model.Delete}, true
	case model.OpShrink:
		return []model.Action{model.Stop, model.Remove, model.Delete}, true
	case model.OpRemoveServices:
		return []model.Action{model.Stop, model.Remove}, true
	case model.OpStart:
		return []model.Action{model.Start}, true
	case model.OpStop:
		return []model.Action{model.Stop}, true
	case model.OpRestart:
		return []model.Action{model.Stop, model.Start}, true
	case model.OpUpgrade:
		return []model.Action{model.Stop, model.Install, model.Configure, model.Start}, true
	case model.OpConfigure:
		var o []model.Action
		if in.Compat {
			o = append(o, model.Bootstrap)
		}
		if in.Restart {
			return append(o, model.Stop, model.Configure, model.Start), true
		}
		return append(o, model.Configure), true
	}
	return nil, false
}

// rule is an order between services: action to of a service waits for action from of the services
// it depends on (docs/spec/coopr.md 5.2).
type rule struct {
	from, to model.Action
	install  bool // install-time dependencies, else run-time
	reversed bool // to waits for the services that depend on the service instead
}

var rules = []rule{
	{from: model.Start, to: model.Start},
	{from: model.Start, to: model.Initialize},
	{from: model.Stop, to: model.Stop, reversed: true},
	{from: model.Install, to: model.Install, install: true},
	{from: model.Remove, to: model.Remove, install: true, reversed: true},
}
