package dispatch_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/plan/tree"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/proto/record"
	"github.com/coopr/coopr/testing/doubles/logtest"
)

// history is the life of a cluster: a deploy, an upgrade, a recovery or a plan of the template, and recoveries at the same time. Agents
// fail and die, leaders change, and orders come at any moment, also when an operation has failed, was aborted or is rolled back.
type history struct {
	*play
	r      *rand.Rand
	others []string // the other operations
	ended  []string // the operations of which the history was once, and that a rollback has taken over
	world  *world

	mu     sync.Mutex
	orders map[string]int // that were carried out, by status of the operation, and orders about nodes that began operations, by type
	// refused has the answers to the last orders about operations, by operation.
	refused map[string]error
}

// newHistory draws a history, and begins its operation.
func newHistory(t *testing.T, seed uint64) *history {
	t.Helper()
	h := &history{play: drawPlay(t, seed), r: rand.New(rand.NewPCG(seed, 7)), orders: map[string]int{}, refused: map[string]error{},
		world: &world{t: t, at: map[place]feat{}, again: map[string]bool{}, types: map[string]model.OperationType{}}}
	h.play.world = h.world
	if os.Getenv(historiesDir) != "" { // the level that a later build finds
		h.must(&pb.Command{Change: &pb.Command_RaiseFeatureLevel{RaiseFeatureLevel: &pb.RaiseFeatureLevel{Level: state.FeatureLevel}}})
	}
	types := []model.OperationType{model.OpCreate, model.OpUpgrade, model.OpRecover, model.OpPlan}
	policies := []string{"leave", "pause", "rollback"}
	op := model.Operation{Type: types[h.r.IntN(len(types))], OnFailure: policies[h.r.IntN(len(policies))]}
	if op.Type != model.OpCreate {
		none, err := plan.NewBuilder(nil, nil).Build()
		if err != nil {
			t.Fatal(err)
		}
		h.begin(model.Operation{Type: model.OpCreate, OnFailure: "leave"}, none, nil)
		h.op = "" // the history is not about this one
	}
	if op.Plan = ""; op.Type == model.OpPlan {
		op.Plan = "own"
	}
	h.work = &once{h: h, t: t}
	h.begin(op, h.graph, h.tree)
	h.world.again[h.op] = true // its plan stops nothing
	h.after = h.agree
	return h
}

// agree checks that each plan shows what the rules say.
func (h *history) agree() {
	h.t.Helper()
	now := time.Now().UnixMilli()
	for _, id := range append([]string{h.op}, h.others...) {
		h.agrees(id, now)
	}
}

// once makes tasks, and checks that no INITIALIZE is done again.
type once struct {
	works
	h *history
	t *testing.T
}

func (o *once) Task(v *state.View, op *model.Operation, s *plan.State, u uint32) (*pb.Task, error) {
	if n := s.Note(u); n != nil && s.Graph.Action[u] == model.Initialize && !op.Type.Concurrent() {
		for _, a := range n.History {
			if a.Outcome == "succeeded" {
				o.t.Errorf("%s of operation %s was done in attempt %d, and is done again", s.Graph.Name(int(u)), op.ID, a.Number)
			}
		}
	}
	w := o.h.world
	w.mu.Lock()
	w.types[op.ID] = op.Type
	w.mu.Unlock()
	task, err := o.works.Task(v, op, s, u)
	if err == nil {
		if n := s.Note(u); n != nil {
			task.Attempt = uint32(len(n.History))
		}
		task.Attempt++
		task.Node, task.Service = s.Graph.NodeID(int(u)), s.Graph.ServiceName(int(u))
	}
	return task, err
}

// order proposes a random order about a random part of an operation.
func (h *history) order(id string) {
	commands := []pb.PlanOrder{pb.PlanOrder_PLAN_ORDER_INTERRUPT, pb.PlanOrder_PLAN_ORDER_INTERRUPT, pb.PlanOrder_PLAN_ORDER_CONTINUE,
		pb.PlanOrder_PLAN_ORDER_CONTINUE, pb.PlanOrder_PLAN_ORDER_RESTART, pb.PlanOrder_PLAN_ORDER_RESTART,
		pb.PlanOrder_PLAN_ORDER_FORCE_COMPLETE, pb.PlanOrder_PLAN_ORDER_STOP, pb.PlanOrder_PLAN_ORDER_START}
	o := &pb.OrderPlan{Operation: id, Order: commands[h.r.IntN(len(commands))]}
	v, ok := h.machine.View().PlanTree("one", id, time.Now().UnixMilli())
	if !ok || len(v.Phases) == 0 {
		return
	}
	whole := o.Order == pb.PlanOrder_PLAN_ORDER_STOP || o.Order == pb.PlanOrder_PLAN_ORDER_START
	steps := o.Order == pb.PlanOrder_PLAN_ORDER_RESTART || o.Order == pb.PlanOrder_PLAN_ORDER_FORCE_COMPLETE
	if !whole && (o.Order == pb.PlanOrder_PLAN_ORDER_FORCE_COMPLETE || h.r.IntN(3) > 0) {
		i := h.r.IntN(len(v.Phases))
		o.Phase = v.PhaseID(i)
		if n := int(v.Phases[i].End - v.Phases[i].First); steps && n > 0 && h.r.IntN(4) > 0 {
			o.Step = v.StepID(i, h.r.IntN(n))
		}
	}
	h.tell(o)
}

// tell proposes an order, and reports whether it was carried out.
func (h *history) tell(o *pb.OrderPlan) bool {
	op, _ := h.machine.View().Operation("one", o.Operation)
	switch o.Order {
	case pb.PlanOrder_PLAN_ORDER_RESTART, pb.PlanOrder_PLAN_ORDER_START, pb.PlanOrder_PLAN_ORDER_STOP:
		h.world.mu.Lock()
		h.world.again[o.Operation] = true
		h.world.mu.Unlock()
	}
	answers, err := h.propose(h.t.Context(), &pb.Command{Tenant: "one", Actor: "alice", Change: &pb.Command_OrderPlan{OrderPlan: o}})
	if err != nil {
		return false
	}
	h.refused[o.Operation] = answers[0].Err
	var no *tree.Refusal
	if err := answers[0].Err; err != nil && !errors.As(err, &no) && !errors.Is(err, problem.Conflict) {
		h.t.Errorf("%v: %v", o, err)
	}
	if answers[0].Err == nil {
		h.mu.Lock()
		h.orders[string(op.Status)]++
		h.mu.Unlock()
	}
	return answers[0].Err == nil
}

// control pauses, resumes or aborts an operation as a whole.
func (h *history) control(id string) {
	orders := []pb.OperationOrder{pb.OperationOrder_OPERATION_ORDER_PAUSE, pb.OperationOrder_OPERATION_ORDER_RESUME,
		pb.OperationOrder_OPERATION_ORDER_ABORT, pb.OperationOrder_OPERATION_ORDER_ROLLBACK}
	h.give(&pb.Command{Tenant: "one", Actor: "alice", Change: &pb.Command_ControlOperation{ControlOperation: &pb.ControlOperation{
		Operation: id, Order: orders[h.r.IntN(len(orders))]}}})
}

// recover begins the recovery of a service on a node, if nothing is at work there.
func (h *history) recover() {
	n := h.nodes[h.r.IntN(len(h.nodes))]
	b := plan.NewBuilder([]string{n.Id}, n.Services.Names[h.r.IntN(len(n.Services.Names)):][:1])
	b.Edge(b.Task(model.Stop, 0, 0), b.Task(model.Start, 0, 0))
	g, err := b.Build()
	if err != nil {
		h.t.Fatal(err)
	}
	d := tree.PerNode(g, model.RecoveryPlan, func(id string) string { return id })
	if g, err = d.Compile(g); err != nil {
		h.t.Fatal(err)
	}
	h.concurrent(model.Operation{Type: model.OpRecover, OnFailure: "leave"}, g, logtest.Tree(&d.Tree))
}

// concurrent begins an operation that runs concurrently with the others, and reports whether it has begun.
func (h *history) concurrent(op model.Operation, g *plan.Graph, t *record.PlanTree) bool {
	c, id := h.start(op, g, nil)
	c.GetStartOperation().Tree = t
	_, _ = h.propose(h.t.Context(), c)
	_, begun := h.machine.View().Operation("one", id) // also if the log did not confirm it
	if begun {
		h.play.mu.Lock()
		h.others = append(h.others, id)
		h.play.mu.Unlock()
	}
	return begun
}

// rollBack begins the rollback that an operation waits for, as the orchestrator does. Its plan has the same shape.
func (h *history) rollBack() {
	op, _ := h.machine.View().Operation("one", h.op)
	if op.Status != model.OpRollingBack {
		return
	}
	c, id := h.start(model.Operation{Type: model.OpRollback, Follows: op.ID, To: op.Before, OnFailure: "leave"}, h.graph, h.tree)
	_, _ = h.propose(h.t.Context(), c)
	if _, begun := h.machine.View().Operation("one", id); begun { // also if the log did not confirm it
		h.play.mu.Lock()
		h.ended = append(h.ended, h.op)
		h.op = id
		h.play.mu.Unlock()
	}
}

// over reports whether no order is needed to bring an operation to its end. A pause, resume or replacement that has failed takes none: it is repeated.
func over(op *model.Operation) bool {
	again := op.Type == model.OpPauseNode || op.Type == model.OpResumeNode || op.Type == model.OpRecreateNode
	return op.Status == model.OpSucceeded || op.Status == model.OpRolledBack || again && op.Status.Ended()
}

// finishPlan brings an operation to its end by orders about its plan alone.
func (h *history) finishPlan(id string) bool {
	op, _ := h.machine.View().Operation("one", id)
	if over(op) {
		return true
	}
	v, ok := h.machine.View().PlanTree("one", id, time.Now().UnixMilli())
	if !ok {
		h.t.Fatalf("the plan of %s is gone", id)
	}
	h.tell(&pb.OrderPlan{Operation: id, Order: pb.PlanOrder_PLAN_ORDER_CONTINUE})
	for i := range v.Phases {
		if s := v.PhaseStatus(i); s == tree.Waiting || s == tree.Error {
			h.tell(&pb.OrderPlan{Operation: id, Order: pb.PlanOrder_PLAN_ORDER_CONTINUE, Phase: v.PhaseID(i)})
		}
	}
	return false
}

// end lets everything work from now on, and brings all plans to their ends.
func (h *history) end() {
	h.t.Helper()
	h.play.mu.Lock()
	h.faults = nil
	h.play.mu.Unlock()
	for _, a := range h.hands {
		a.mu.Lock()
		a.fail = 0
		a.mu.Unlock()
	}
	h.finishAll()
	h.pods()
	h.resumeAll()
	h.pods()
	cl, _ := h.machine.View().Cluster("one", "00000001")
	gone := cl.LacksMachines && slices.ContainsFunc(h.others, func(id string) bool {
		op, _ := h.machine.View().Operation("one", id)
		return op.Type == model.OpRecreateNode && op.Status != model.OpSucceeded
	})
	if lacks := cl.Status == model.ClusterInconsistent && (h.plan().Tolerated() > 0 || gone); cl.Status != model.ClusterActive && !lacks {
		h.t.Errorf("the cluster is %s: %s", cl.Status, cl.Message)
	}
	for node, op := range h.machine.View().Busy("one", "00000001") {
		h.t.Errorf("node %s is held by operation %s at the end", node, op)
	}
}

// finishAll brings all plans to their ends.
func (h *history) finishAll() {
	h.t.Helper()
	for range 1000 {
		h.rollBack()
		all := h.finishPlan(h.op)
		for _, id := range h.others {
			all = h.finishPlan(id) && all
		}
		if all {
			break
		}
		time.Sleep(time.Second)
	}
	for _, id := range append([]string{h.op}, h.others...) {
		op, _ := h.machine.View().Operation("one", id)
		if !over(op) {
			v, _ := h.machine.View().PlanTree("one", id, time.Now().UnixMilli())
			h.t.Errorf("operation %s (%s) ends %s: %s\n%s\nthe last order: %v", id, op.Type, op.Status, op.Message, v.Info().Text(id), h.refused[id])
		}
	}
}

// historiesDir names the environment variable that has TestHistories write what consensus/state/testdata/release/histories has.
const historiesDir = "COOPR_HISTORIES_DIR"

// keep writes the log of the history, with each entry after its length, and the snapshot of the state that it comes to.
func (h *history) keep(seed uint64) {
	dir := os.Getenv(historiesDir)
	if dir == "" {
		return
	}
	h.play.mu.Lock()
	defer h.play.mu.Unlock()
	var log []byte
	for _, e := range h.play.entries {
		log = append(binary.BigEndian.AppendUint32(log, uint32(len(e))), e...)
	}
	var snapshot bytes.Buffer
	err := h.machine.View().Write(&snapshot)
	for name, b := range map[string][]byte{"log": log, "snapshot": snapshot.Bytes()} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.%s", seed, name)), b, 0o600))
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// replay checks that the log leads to the same state if all of it is applied in one batch, as by an agent that starts.
func (h *history) replay() {
	h.play.mu.Lock()
	defer h.play.mu.Unlock()
	m, err := state.New(state.Config{})
	if err != nil {
		h.t.Fatal(err)
	}
	m.ApplyBatch(logtest.Logs(1, h.play.entries))
	var want, got bytes.Buffer
	if err := errors.Join(h.machine.View().Write(&want), m.View().Write(&got)); err != nil {
		h.t.Fatal(err)
	}
	if !bytes.Equal(want.Bytes(), got.Bytes()) {
		h.t.Error("the log leads to another state if it is applied in one batch")
	}
}

// TestHistories lets random histories run: whatever happened, each plan shows after each entry what the rules say, and orders alone bring
// it to its end. It runs as many seeds as COOPR_HISTORY_SEEDS says, or only the seed COOPR_HISTORY_SEED.
func TestHistories(t *testing.T) {
	seeds, first := 40, uint64(1)
	if testing.Short() {
		seeds = 10
	}
	if n, err := strconv.Atoi(os.Getenv("COOPR_HISTORY_SEEDS")); err == nil {
		seeds = n
	}
	if n, err := strconv.ParseUint(os.Getenv("COOPR_HISTORY_SEED"), 10, 64); err == nil {
		first, seeds = n, 1
	}
	orders := map[string]int{}
	for seed := first; seed < first+uint64(seeds); seed++ {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHistory(t, seed)
				h.leader()
				leave := h.enter(2+h.r.IntN(2), 25)
				h.play.mu.Lock()
				h.faults = rand.New(rand.NewPCG(seed, 8))
				h.play.mu.Unlock()
				for range 10 + h.r.IntN(30) {
					time.Sleep(time.Duration(h.r.IntN(4000)) * time.Millisecond)
					about := h.op
					if n := len(h.others); n > 0 && h.r.IntN(3) == 0 {
						about = h.others[h.r.IntN(n)]
					}
					switch h.r.IntN(16) {
					case 0:
						h.leader()
					case 1:
						h.hands[h.r.IntN(len(h.hands))].die()
					case 2:
						h.control(about)
					case 3:
						h.recover()
					case 4:
						h.rollBack()
					case 5, 6:
						h.pod()
					case 7, 8:
						h.podOrder(model.OpRecreateNode, h.nodes[h.r.IntN(len(h.nodes))].Id)
					default:
						h.order(about)
					}
				}
				h.end()
				leave()
				h.replay()
				h.keep(seed)
				for status, n := range h.orders {
					orders[status] += n
				}
			})
		})
	}
	for _, status := range []model.OperationStatus{model.OpRunning, model.OpPaused, model.OpFailed, model.OpAborted, model.OpSucceeded} {
		if seeds >= 40 && orders[string(status)] == 0 {
			t.Errorf("no order was carried out on an operation that was %s: %v", status, orders)
		}
	}
	if seeds >= 40 && orders[string(model.OpRecreateNode)] == 0 {
		t.Errorf("no node was replaced while an operation was open: %v", orders)
	}
	t.Log(orders)
}
