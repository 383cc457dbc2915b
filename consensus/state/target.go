package state

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/internal/words"
)

// arrived updates a cluster after an operation that succeeded. Its field Earlier lists the earlier
// targets at which services still stand. A rollback takes the list from its snapshot. An operation
// that moved the cluster to its target clears the list, unless it tolerated failures or skipped
// nodes. After recovery, or after an operation that did not move the cluster or was about some
// nodes only, a cluster keeps the status that it had before, see keepStatus.
func (a endings) arrived(cl *model.Cluster, op *model.Operation) {
	if len(cl.Earlier) == 0 {
		return
	}
	before := a.before(op)
	to := table.Get[model.Snapshot](a.txn, table.History, "id", cl.Tenant, cl.ID, uint32(op.To))
	s := a.plan(op.ID)
	whole := len(op.Skipped) == 0 && (s == nil || s.Tolerated() == 0)
	switch {
	case to != nil && whole:
		cl.Earlier = to.State.Earlier
	case to != nil:
	case cl.Mover != op.ID, op.Plan == model.RecoveryPlan, before != nil && operation.Apart(op.Type, before.State.Status):
		if before == nil {
			break
		}
		if len(before.State.Earlier) == 0 {
			cl.Earlier = nil
		}
		a.keepStatus(cl, before.State)
	case whole:
		cl.Earlier = nil
	default:
		a.reached(cl, op)
	}
}

// keepStatus restores the status that a cluster had before an operation. A cluster that only lacked
// machines then, and whose nodes are all as they are to be now, becomes active.
func (a endings) keepStatus(cl, before *model.Cluster) {
	switch before.Status {
	case model.ClusterInconsistent, model.ClusterFailed, model.ClusterIncomplete:
	default:
		return
	}
	left := slices.ContainsFunc(table.List[model.Node](a.txn, table.Nodes, "cluster", cl.Tenant, cl.ID), func(n *model.Node) bool {
		return !complete(cl, n)
	})
	if before.LacksMachines && !left {
		cl.Earlier = nil
		return
	}
	cl.Status, cl.Message, cl.LacksMachines, cl.ReturnTo = before.Status, before.Message, before.LacksMachines, before.ReturnTo
	if cl.Status == model.ClusterInconsistent {
		cl.Message = "an earlier operation was not finished: repeat it, or set the configuration of the cluster again"
	}
}

// complete reports whether every service of a node is as the cluster's record describes it, and no
// task has left the node half done.
func complete(cl *model.Cluster, n *model.Node) bool {
	if !n.Created || !n.Confirmed || n.Broken || n.Leaves || len(n.Leaving) > 0 {
		return false
	}
	for _, s := range n.Services {
		m := n.Marks[s]
		is, shall := n.States[s], cl.Definitions[s]
		built, known := cl.DefinitionAt(m, s)
		i := cl.ConfiguredAt(m)
		_, starts := shall.Provisioner.Actions[model.Start.Key()]
		switch {
		case !known, !model.SameService(built, shall), i >= 0 && !reflect.DeepEqual(cl.Earlier[i].Config, cl.Config):
			return false
		case m.Goal != "", m.Config == model.HalfConfigured, is == "", strings.HasSuffix(is, "?"):
			return false
		case starts && is != model.Start.String() && is != model.Stop.String():
			return false
		}
	}
	return true
}

// reached records that the nodes on which an operation has done all of its work are at the
// cluster's target. Those that it skipped, or on which it tolerated a failure, are not.
func (a endings) reached(cl *model.Cluster, op *model.Operation) {
	left := a.unfinished(op)
	for _, have := range table.List[model.Node](a.txn, table.Nodes, "cluster", cl.Tenant, cl.ID) {
		if left[have.ID] || slices.Contains(op.Skipped, have.ID) {
			continue
		}
		n := cloneNode(have)
		for s, m := range n.Marks {
			if m.Definition = cl.Target; m.Config != model.HalfConfigured || !a.view().Understands(logformat.OrdersLevel) {
				m.Config = cl.Target
			}
			n.Marks[s] = m
		}
		a.put(table.Nodes, n)
	}
}

// unfinished returns the nodes on which an operation tolerated a failure.
func (a endings) unfinished(op *model.Operation) map[string]bool {
	out := map[string]bool{}
	s := a.plan(op.ID)
	if s == nil || s.Tolerated() == 0 {
		return out
	}
	for v := range s.Graph.Len() {
		if s.Task(uint32(v)).Tolerated {
			out[s.Graph.NodeID(v)] = true
		}
	}
	return out
}

// outdated reports whether a service of a node may have a configuration other than the one of its target, and can be configured again.
func outdated(cl *model.Cluster, n *model.Node) bool {
	return slices.ContainsFunc(n.Staying(), func(s string) bool {
		def, _ := cl.DefinitionAt(n.Marks[s], s)
		_, configures := def.Provisioner.Actions[model.Configure.Key()]
		return configures && n.Marks[s].Config == model.HalfConfigured
	})
}

// leftUndone names the nodes on which an operation that succeeded left something to do: those whose
// machines are gone, those on which it tolerated a failure, and those that have a former configuration
// because a replacement of machines did not come to its end. Their cluster is inconsistent.
func (a endings) leftUndone(cl *model.Cluster, op *model.Operation) {
	half := a.unfinished(op)
	var gone, left, old, what []string
	number := 0
	for _, n := range table.List[model.Node](a.txn, table.Nodes, "cluster", cl.Tenant, cl.ID) {
		h := table.Get[model.NodeHealth](a.txn, table.Health, "id", n.Tenant, n.ID)
		switch {
		case h != nil && h.Machine == model.MachineGone:
			gone = append(gone, n.ShortName())
			number = n.Number
		case half[n.ID]:
			left = append(left, n.ShortName())
		case outdated(cl, n) && a.view().Understands(logformat.OrdersLevel):
			old = append(old, n.ShortName())
		}
	}
	if len(gone) > 0 {
		noun := "the machine of %s is gone"
		if len(gone) > 1 {
			noun = "the machines of %s are gone"
		}
		what = append(what, fmt.Sprintf(noun+": `coopr node replace %s %d` makes one again, `coopr cluster shrink %[2]s %[3]d` removes its node",
			words.And(gone), cl.Name, number))
	}
	if len(left) > 0 {
		what = append(what, fmt.Sprintf("operation %s was not finished on %s: repeat it", op.ID, words.And(left)))
	}
	if len(old) > 0 {
		what = append(what, fmt.Sprintf("services on %s may have a former configuration: set the configuration of the cluster again",
			words.And(old)))
	}
	switch {
	case len(what) == 0, cl.Status != model.ClusterActive && cl.Status != model.ClusterInconsistent:
		return // what is left of a failed operation comes first
	}
	if cl.Status == model.ClusterActive {
		cl.Status, cl.LacksMachines = model.ClusterInconsistent, len(left)+len(old) == 0
	}
	cl.Message = strings.Join(what, "; ")
}

// backTo clears Node.Back at the end of an operation. If the operation succeeded, each service first
// gets the Definition and Goal of its mark in Back. It gets the Config, too, if it was not
// configured since that mark was made, or if this operation configured it back. Otherwise its
// Config becomes HalfConfigured. An example is a service that had no configuration before, so that
// nothing could be written back.
func backTo(n *model.Node, op *model.Operation, good bool) {
	for _, s := range n.Services {
		if b, ok := n.Back[s]; ok && good {
			m := n.Marks[s]
			if m.Definition, m.Goal = b.Definition, b.Goal; m.Configured == b.Configured || m.Configured == op.ID {
				m.Config = b.Config
			} else {
				m.Config = model.HalfConfigured
			}
			n.Marks[s] = m
		}
	}
	n.Back = nil
}
