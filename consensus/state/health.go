package state

import (
	"fmt"
	"maps"
	"slices"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	pb "github.com/coopr/coopr/rpc/proto"
)

// health changes the health of nodes.
type health struct{ *writer }

// healthOf returns a copy of a node's health for changes.
func (a health) healthOf(n *model.Node) *model.NodeHealth {
	h := model.NodeHealth{Tenant: n.Tenant, Cluster: n.Cluster, Node: n.ID}
	if have := table.Get[model.NodeHealth](a.txn, table.Health, "id", n.Tenant, n.ID); have != nil {
		h = *have
	}
	h.Services, h.Paused = maps.Clone(h.Services), maps.Clone(h.Paused)
	if h.Services == nil {
		h.Services = map[string]model.ServiceHealth{}
	}
	if h.Paused == nil {
		h.Paused = map[string]string{}
	}
	return &h
}

// putHealth writes a node's health and adds an event about it.
func (a health) putHealth(h *model.NodeHealth, message string) {
	a.batch.Tally.health(table.Get[model.NodeHealth](a.txn, table.Health, "id", h.Tenant, h.Node), h)
	a.put(table.Health, h)
	a.batch.Health = append(a.batch.Health, h.Cluster)
	a.event(model.Event{Type: "node.health", Tenant: h.Tenant, Cluster: h.Cluster, Operation: h.Operation, Subject: h.Node, Status: h.Status(),
		Message: message})
}

// reportHealth writes new verdicts. It refuses a verdict about a node that changed after it was
// observed, because the verdict is out of date.
func (a health) reportHealth(r *pb.ReportHealth) Answer {
	ans := Answer{}
	for i, c := range r.Changes {
		if !a.verdict(c) {
			ans.Refused = append(ans.Refused, uint32(i))
		}
	}
	return ans
}

func (a health) verdict(c *pb.HealthChange) bool {
	n := table.Get[model.Node](a.txn, table.Nodes, "id", c.Tenant, c.Node)
	if n == nil || n.Version != c.Version {
		return false
	}
	cl := table.Get[model.Cluster](a.txn, table.Clusters, "id", n.Tenant, n.Cluster)
	if cl == nil {
		return false
	}
	h := a.healthOf(n)
	message := c.Message
	switch {
	case c.Machine == pb.Machine_MACHINE_GONE && h.Machine == "":
		h.Machine, h.GoneSince = model.MachineGone, a.now
	case c.Machine == pb.Machine_MACHINE_THERE:
		h.Machine, h.GoneSince = "", 0
	}
	if c.Service != "" && h.Paused[c.Service] == "" {
		message = c.Service + ": " + message
		was, now := h.Services[c.Service], model.ServiceHealth{Status: model.Healthy, Since: a.now, Message: c.Message}
		if !c.Healthy {
			now.Status = model.Unhealthy
			if policy := cl.Template.RecoveryPolicy(); was.Status == model.Healthy && a.now-was.Since >= int64(policy.MaxBackoff) {
				h.Attempts, h.Next, h.GaveUp = 0, 0, false // it was healthy for long enough
			}
		}
		if was.Status == now.Status {
			now.Since = was.Since
		}
		h.Services[c.Service] = now
	}
	if h.Machine == "" && len(h.Failing()) == 0 {
		h.GaveUp = false
	}
	a.putHealth(h, message)
	return true
}

// startedAgain reports whether a paused service of a node was started by another operation than a resume: it runs, and is checked and
// recovered again.
func startedAgain(n *model.Node, service string) bool {
	return n.States[service] == model.Start.String()
}

// started ends the pauses of the services that a concurrent operation has started on a node.
func (a health) started(n *model.Node, services map[string]bool) {
	have := table.Get[model.NodeHealth](a.txn, table.Health, "id", n.Tenant, n.ID)
	if have == nil || len(have.Paused) == 0 {
		return
	}
	h := a.healthOf(n)
	maps.DeleteFunc(h.Paused, func(s, how string) bool { return how == model.Paused && services[s] && startedAgain(n, s) })
	if len(h.Paused) < len(have.Paused) {
		a.putHealth(h, "")
	}
}

// unwatched discards the results of checks of the services that an operation changed on a node, and
// of a machine that it made. A start ends a pause, and so does the deletion of the machine.
func (a health) unwatched(n *model.Node, services map[string]bool, machine, gone bool) {
	have := table.Get[model.NodeHealth](a.txn, table.Health, "id", n.Tenant, n.ID)
	if have == nil {
		return
	}
	h := a.healthOf(n)
	maps.DeleteFunc(h.Services, func(s string, _ model.ServiceHealth) bool { return services[s] })
	if machine {
		clear(h.Services)
		h.Machine, h.GoneSince = "", 0
	}
	orders := a.view().Understands(logformat.OrdersLevel)
	maps.DeleteFunc(h.Paused, func(s, how string) bool {
		switch {
		case how == model.Paused && services[s] && startedAgain(n, s):
			return true
		case !orders:
			return machine
		case !slices.Contains(n.Services, s):
			return true // it has left the node
		}
		// Services that were stopped on the new machine, or are about to be, were paused after it was made.
		return gone && n.States[s] != model.Stop.String() && how != model.Pausing
	})
	if orders {
		maps.DeleteFunc(h.Services, func(s string, _ model.ServiceHealth) bool { return !slices.Contains(n.Services, s) })
	}
	if len(h.Services) == len(have.Services) && h.Machine == have.Machine && len(h.Paused) == len(have.Paused) {
		return
	}
	a.putHealth(h, "")
}

// subjects returns the services that a plan has tasks for, by node.
func subjects(g *plan.Graph) map[string][]string {
	out := map[string][]string{}
	for v := range g.Len() {
		if id, s := g.NodeID(v), g.ServiceName(v); id != "" && s != "" && !slices.Contains(out[id], s) {
			out[id] = append(out[id], s)
		}
	}
	return out
}

// recovering updates the health of nodes that an operation is about to restart, pause, resume or
// replace. With byItself the operation counts as another attempt of the recovery controller. A
// person's order resets the count.
func (a health) recovering(op *model.Operation, g *plan.Graph, nodes []string, byItself bool) {
	about := subjects(g)
	if byItself && len(nodes) > 0 {
		a.batch.Tally.recovery(op)
	}
	for _, id := range nodes {
		n := table.Get[model.Node](a.txn, table.Nodes, "id", op.Tenant, id)
		if n == nil {
			continue
		}
		h := a.healthOf(n)
		h.Operation, h.Replaced, h.GaveUp = op.ID, op.Type.Replaces(), false
		if h.Attempts++; !byItself {
			h.Attempts, h.Next = 0, 0
		}
		for _, s := range about[id] {
			switch op.Type {
			case model.OpPauseNode:
				if h.Paused[s] != model.Paused || !a.view().Understands(logformat.OrdersLevel) { // else it stays paused, whatever comes of the order
					h.Paused[s] = model.Pausing
				}
			case model.OpResumeNode:
				h.Paused[s] = model.Resuming
			}
		}
		a.putHealth(h, fmt.Sprintf("%s by operation %s", op.Type, op.ID))
	}
}
