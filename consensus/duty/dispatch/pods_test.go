package dispatch_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/plan"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/testing/doubles/logtest"
)

// pod draws an order to restart, pause or resume a node, or some of its services, and begins its operation if it is accepted.
func (h *history) pod() {
	types := []model.OperationType{model.OpRecover, model.OpPauseNode, model.OpPauseNode, model.OpResumeNode}
	n := h.nodes[h.r.IntN(len(h.nodes))]
	var services []string
	order := types[h.r.IntN(len(types))]
	if h.r.IntN(3) == 0 { // -t
		services = n.Services.Names[h.r.IntN(len(n.Services.Names)):][:1]
		health := h.machine.View().ClusterHealth("one", "00000001")[n.Id]
		if paused := health != nil && health.Paused[services[0]] != ""; paused != (order == model.OpResumeNode) {
			return // the order has no effect
		}
	}
	h.podOrder(order, n.Id, services...)
}

// podOrder gives an order about a node, and reports whether it has begun an operation.
func (h *history) podOrder(order model.OperationType, node string, services ...string) bool {
	h.t.Helper()
	v := h.machine.View()
	cl, _ := v.Cluster("one", "00000001")
	at := operation.Input{Cluster: cl, Nodes: v.PresentNodes(cl)}
	units, err := operation.Units(order, at, v.ClusterHealth("one", cl.ID), []string{node}, services)
	if order == model.OpRecreateNode {
		units, err = operation.Whole(at, []string{node})
	}
	if err != nil {
		return false // there is nothing on it that the order applies to
	}
	p, err := operation.Concurrent(model.Caller{Actor: "alice"}, order, units, at, "")
	if errors.Is(err, operation.ErrState) {
		return false
	}
	if err != nil {
		h.t.Fatal(err)
	}
	if order == model.OpRecreateNode && h.r.IntN(2) == 0 { // a service has the new machine's address in its configuration
		p.Operation.Services = []string{h.graph.Services[h.r.IntN(len(h.graph.Services))]}
	}
	begun := h.concurrent(p.Operation, p.Graph, logtest.Tree(p.Tree))
	if begun {
		h.mu.Lock()
		h.orders[string(order)]++
		h.mu.Unlock()
	}
	return begun
}

// place is a service on a node.
type place struct{ node, service string }

// feat is the latest task that an agent received that starts or stops a service.
type feat struct {
	operation string
	of        model.OperationType
	action    string
	fence     uint64
	done      bool // the leader has confirmed its success
}

// world is what agents did to services, whatever the leader thinks of it.
type world struct {
	t  *testing.T
	mu sync.Mutex
	at map[place]feat
	// again are operations whose tasks an order repeats: such a service is stopped by the task that starts it.
	again map[string]bool
	types map[string]model.OperationType // of operations
}

// began records that an agent has received a task.
func (w *world) began(t *pb.Task) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, of := place{t.Node, t.Service}, w.types[t.Operation]
	if t.Action == model.Delete.String() {
		maps.DeleteFunc(w.at, func(at place, did feat) bool { return at.node == t.Node && did.fence < t.Fence })
	}
	if t.Action != model.Start.String() && t.Action != model.Stop.String() || w.at[at].fence > t.Fence {
		return
	}
	if was := w.at[at]; was.done && was.action == t.Action && t.Action == model.Start.String() && of.Concurrent() && of != model.OpPlan &&
		!w.again[t.Operation] && t.Attempt <= 1 {
		w.t.Errorf("%s of operation %s (%s) starts a service that operation %s (%s) has started", t.Id, t.Operation, of, was.operation, was.of)
	}
	w.at[at] = feat{operation: t.Operation, of: of, action: t.Action, fence: t.Fence}
}

// confirmed records that the leader knows of the success of a task.
func (w *world) confirmed(t *pb.Task) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := place{t.Node, t.Service}
	if was := w.at[at]; was.fence == t.Fence && was.operation == t.Operation && was.action == t.Action {
		was.done = true
		w.at[at] = was
	}
}

// pods checks after all operations have ended that each node is as agents left it: a service is paused just if an order to pause it was
// the last to stop it, and a paused service is stopped.
func (h *history) pods() {
	h.t.Helper()
	v := h.machine.View()
	health := v.ClusterHealth("one", "00000001")
	forced := map[place]bool{}  // services that nobody started or stopped, because an order said that it is done
	gone := map[string]uint64{} // the fence of the latest attempt that deleted a machine to make it again, by node
	for _, id := range append(slices.Clone(h.ended), append(h.others, h.op)...) {
		if s, kept := v.Plan(id); kept {
			for w := range s.Graph.Len() {
				if n := s.Note(uint32(w)); n != nil && s.Graph.Action[w] == model.Create {
					for _, a := range n.History {
						if node := s.Graph.NodeID(w); a.Outcome == plan.Undone {
							gone[node] = max(gone[node], a.Fence)
						}
					}
				}
				if s.Task(uint32(w)).Forced || s.Task(uint32(w)).Tolerated {
					forced[place{s.Graph.NodeID(w), s.Graph.ServiceName(w)}] = true
				}
			}
		}
	}
	h.world.mu.Lock()
	defer h.world.mu.Unlock()
	for _, n := range h.nodes {
		rec, _ := v.Node("one", n.Id)
		for _, service := range n.Services.Names {
			at := place{n.Id, service}
			paused, did := "", h.world.at[at]
			if health[n.Id] != nil {
				paused = health[n.Id].Paused[service]
			}
			want := ""
			if did.of == model.OpPauseNode {
				want = model.Paused
			}
			switch {
			case paused == model.Pausing || paused == model.Resuming:
				h.t.Errorf("%v is %s, and no operation is under way", at, paused)
			case forced[at] || !did.done || did.fence < gone[n.Id]:
			case rec.States[service] != did.action:
				h.t.Errorf("%v is in the state %s, and the last task there was %s of operation %s (%s)", at, rec.States[service], did.action,
					did.operation, did.of)
			case paused != want:
				h.t.Errorf("%v is paused %q, and the last task there was %s of operation %s (%s)", at, paused, did.action, did.operation, did.of)
			}
		}
	}
}

// paused returns the nodes with paused services.
func (h *history) paused() []string {
	health := h.machine.View().ClusterHealth("one", "00000001")
	maps.DeleteFunc(health, func(_ string, h *model.NodeHealth) bool { return len(h.Paused) == 0 })
	return slices.Sorted(maps.Keys(health))
}

// resumeAll resumes all nodes that are paused. Until then the plan recovery shows each of them.
func (h *history) resumeAll() {
	h.t.Helper()
	for _, node := range h.paused() {
		if h.pausedByAll(node) && !h.recoveryShows(node) {
			h.t.Errorf("node %s is paused, and no step of the plan recovery shows it", node)
		}
		if !h.podOrder(model.OpResumeNode, node) {
			h.t.Errorf("node %s is paused, and cannot be resumed", node)
		}
	}
	h.finishAll()
	if left := h.paused(); len(left) > 0 {
		h.t.Errorf("nodes %v were resumed, and are paused", left)
	}
}

// pausedByAll reports whether all pauses that have stopped services of a node have succeeded: only such steps are shown as paused.
func (h *history) pausedByAll(node string) bool {
	h.world.mu.Lock()
	defer h.world.mu.Unlock()
	for at, did := range h.world.at {
		op, ok := h.machine.View().Operation("one", did.operation)
		if at.node == node && did.of == model.OpPauseNode && (!ok || op.Status != model.OpSucceeded) {
			return false
		}
	}
	return true
}

// recoveryShows reports whether a step on a node of a plan recovery is STARTED.
func (h *history) recoveryShows(node string) bool {
	v := h.machine.View()
	for _, p := range v.Plans("one", "00000001") {
		s, kept := v.Plan(p.Operation.ID)
		t, ok := v.PlanTree("one", p.Operation.ID, time.Now().UnixMilli())
		if !kept || !ok || p.Operation.Type != model.OpPauseNode {
			continue
		}
		for _, w := range s.Graph.On(node) {
			if n := s.Graph.StepOf(w); n != plan.NoStep && fmt.Sprint(t.Steps[n].Status) == "STARTED" {
				return true
			}
		}
	}
	return false
}
