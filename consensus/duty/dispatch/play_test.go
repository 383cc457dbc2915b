package dispatch_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/coopr/coopr/consensus/duty/dispatch"
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/plan/tree"
	"github.com/coopr/coopr/engine/planner"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/proto/record"
	"github.com/coopr/coopr/testing/doubles/logtest"
)

// play is an operation of a random plan on one machine: leaders come and go,
// agents do tasks, fail and die, an operator gives orders, and after each entry
// of the log it is checked that nothing was done that may not be.
type play struct {
	t    *testing.T
	r    *rand.Rand
	op   string
	base *plan.Graph // the dependencies of the tasks, independent of the plan
	tree *tree.Tree
	work dispatch.Tasks

	graph   *plan.Graph // base with the order of the tree
	cluster model.Cluster
	nodes   []*record.Node
	numbers int    // of operations
	world   *world // what agents did; nil: nobody asks
	after   func() // checks the state after an entry; nil: no more than check does

	mu      sync.Mutex
	machine *state.Machine
	entries [][]byte
	// faults lets the log sometimes refuse a proposal, or accept one without confirming it; nil: never.
	faults  *rand.Rand
	ordered int

	lead  sync.RWMutex // held for reading while a leader is used
	d     *dispatch.Dispatcher
	over  func()
	hands []*hand
}

// newPlay draws an operation that makes a cluster, and begins it.
func newPlay(t *testing.T, seed uint64) *play {
	t.Helper()
	p := drawPlay(t, seed)
	p.begin(model.Operation{Type: model.OpCreate, OnFailure: "pause"}, p.graph, p.tree)
	return p
}

// drawPlay draws a plan: services that need each other on a few nodes, and
// a way for the nodes to take turns.
func drawPlay(t *testing.T, seed uint64) *play {
	t.Helper()
	m, err := state.New(state.Config{})
	if err != nil {
		t.Fatal(err)
	}
	p := &play{t: t, r: rand.New(rand.NewPCG(seed, 1)), machine: m, work: works{}}
	in := planner.Input{Operation: model.OpCreate, Services: map[string]model.Service{}}
	var names []string
	for i := range 1 + p.r.IntN(3) {
		s := model.Service{Base: model.Base{Name: fmt.Sprint("s", i)},
			Provisioner: model.ServiceProvisioner{Actions: map[string]model.ServiceAction{"install": {}, "configure": {}, "start": {},
				"stop": {}}}}
		if i%2 == 0 { // an order to repeat it leaves it out
			s.Provisioner.Actions["initialize"] = model.ServiceAction{}
		}
		for _, other := range names {
			if p.r.IntN(2) == 0 {
				s.Dependencies.Runtime.Requires = append(s.Dependencies.Runtime.Requires, other)
			}
		}
		in.Services[s.Name] = s
		names = append(names, s.Name)
	}
	var nodes []*record.Node
	for i := range 1 + p.r.IntN(4) {
		n := planner.Node{ID: fmt.Sprintf("00000001-%d", 1000+i), Number: 1000 + i}
		for _, s := range names {
			if p.r.IntN(3) > 0 || len(n.Services) == 0 {
				n.Services = append(n.Services, s)
			}
		}
		in.Nodes = append(in.Nodes, n)
		nodes = append(nodes, logtest.Node(model.Node{ID: n.ID, Cluster: "00000001", Tenant: "one", Number: n.Number, Services: n.Services}))
	}
	in.NodeLocal = p.r.IntN(2) == 0
	if p.base, err = planner.Plan(in); err != nil {
		t.Fatal(err)
	}
	strategies := []tree.Strategy{{}, {Kind: tree.Parallel}, {Canary: 2}, {Kind: tree.Parallel, Canary: 1}, {Kind: tree.Batch, Size: 2},
		{Kind: tree.Batch, Size: 50, Percent: true, MaxFailures: 1}}
	var d *tree.Draft
	switch p.r.IntN(6) {
	case 0:
		d = tree.Default(p.base, "deploy")
	case 1:
		d = tree.Staged(p.base, "deploy", planner.SplitStages(p.base, planner.Stages(p.base)))
	default:
		d = tree.ByNode(p.base, "deploy", strategies[p.r.IntN(len(strategies))])
	}
	g, err := d.Compile(p.base)
	if err != nil { // services on other nodes come first
		d = tree.Default(p.base, "deploy")
		if g, err = d.Compile(p.base); err != nil {
			t.Fatal(err)
		}
	}
	p.tree, p.graph, p.nodes = &d.Tree, g, nodes
	p.cluster = model.Cluster{ID: "00000001", Tenant: "one", Name: "a", Services: names, Definitions: in.Services}
	p.must(&pb.Command{Change: &pb.Command_PutTenant{PutTenant: &pb.PutTenant{Tenant: logtest.Tenant(model.Tenant{Name: "one"})}}})
	return p
}

// start returns the command that begins the next operation, with this plan. It has the operation's id.
func (p *play) start(op model.Operation, g *plan.Graph, t *tree.Tree) (*pb.Command, string) {
	p.numbers++
	op.ID, op.Tenant, op.Cluster = string(model.ClusterID("00000001").Operation(p.numbers)), "one", "00000001"
	s := &pb.StartOperation{Graph: g.Encode()}
	if t != nil {
		s.Tree = logtest.Tree(t)
	}
	cl := p.cluster
	if have, ok := p.machine.View().Cluster("one", cl.ID); ok {
		s.ClusterVersion, cl.Version, cl.Status = have.Version, have.Version, have.Status
	}
	if cl.Operation, cl.Operations = op.ID, p.numbers; !op.Type.Concurrent() {
		s.Nodes = p.nodes
	}
	s.Operation, s.Cluster = logtest.Operation(op), logtest.Cluster(cl)
	return &pb.Command{Tenant: "one", Change: &pb.Command_StartOperation{StartOperation: s}}, op.ID
}

// begin begins the next operation, which the play is about from now on.
func (p *play) begin(op model.Operation, g *plan.Graph, t *tree.Tree) {
	p.t.Helper()
	c, id := p.start(op, g, t)
	p.must(c)
	p.op = id
}

func (p *play) must(cs ...*pb.Command) {
	p.t.Helper()
	answers, err := p.propose(p.t.Context(), cs...)
	for _, a := range answers {
		err = errors.Join(err, a.Err)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

var errLog = errors.New("the log does not answer")

// propose commits an entry, unless faults refuses it, and checks its effects.
func (p *play) propose(_ context.Context, cs ...*pb.Command) ([]state.Answer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fate := 99
	if p.faults != nil {
		fate = p.faults.IntN(40)
	}
	if fate == 0 {
		return nil, errLog
	}
	before, _ := p.machine.View().Plan(p.op)
	b, err := proto.Marshal(&pb.Entry{Format: state.Format, FeatureLevel: state.FeatureLevel, NowMs: time.Now().UnixMilli(), Commands: cs,
		Groups: []uint32{uint32(len(cs))}})
	if err != nil {
		return nil, err
	}
	p.entries = append(p.entries, b)
	answers := p.apply(len(p.entries), b)
	if before != nil {
		p.check(before, cs)
	}
	if p.after != nil {
		p.after()
	}
	if fate == 1 {
		return nil, errLog // it was committed all the same
	}
	return answers, nil
}

func (p *play) apply(index int, entry []byte) []state.Answer {
	return p.machine.Apply(&raft.Log{Type: raft.LogCommand, Index: uint64(index), Data: entry}).([][]state.Answer)[0]
}

func (p *play) plan() *plan.State {
	s, ok := p.machine.View().Plan(p.op)
	if !ok {
		p.t.Fatal("the plan is gone")
	}
	return s
}

func (p *play) view() *tree.View {
	v, ok := p.machine.View().PlanTree("one", p.op, time.Now().UnixMilli())
	if !ok {
		p.t.Fatal("the plan is gone")
	}
	return v
}

func done(t plan.Task) bool { return t.Status == model.TaskSucceeded || t.Tolerated }

// check compares the plan before an entry with the plan now.
func (p *play) check(before *plan.State, cs []*pb.Command) {
	p.t.Helper()
	s, view := p.plan(), p.view()
	order := slices.ContainsFunc(cs, func(c *pb.Command) bool { return c.GetOrderPlan() != nil }) ||
		// The end of a replacement has half-done steps begin again.
		slices.ContainsFunc(p.machine.View().Operations("one", "00000001"), func(op *model.Operation) bool {
			return op.Type == model.OpRecreateNode && op.Status.Ended() && op.Version == uint64(len(p.entries))
		})
	var may []uint32
	on := map[int32]string{}
	preds := make([][]uint32, p.base.Len())
	for v := range p.base.Len() {
		for _, w := range p.base.Next(v) {
			preds[w] = append(preds[w], uint32(v))
		}
	}
	var open func(v uint32) bool
	open = func(v uint32) bool { // something that v depends on is not done
		for _, w := range preds[v] {
			if p.base.Action[w] == model.Barrier && open(w) || p.base.Action[w] != model.Barrier && !done(s.Task(w)) {
				return true
			}
		}
		return false
	}
	for i := range p.base.Len() {
		v := uint32(i)
		if p.base.Action[v] == model.Barrier {
			continue
		}
		was, is := before.Task(v), s.Task(v)
		if is.Status.Held() {
			if other, taken := on[p.base.Node[v]]; taken {
				p.t.Errorf("%s and %s are at work on one node", other, p.base.Name(i))
			}
			on[p.base.Node[v]] = p.base.Name(i)
		}
		if is.Status.Held() && (!was.Status.Held() || was.Fence != is.Fence) {
			if may == nil {
				may = append(view.Candidates(nil), plan.NoStep)
			}
			switch {
			case open(v):
				p.t.Errorf("%s began before what it depends on was done", p.base.Name(i))
			case s.HeldBack(v):
				p.t.Errorf("%s began behind a gate", p.base.Name(i))
			case s.Halted(v) && view.Steps[s.Graph.StepOf(v)].Status == tree.Error: // the rest of it goes on to its end
			case !slices.Contains(may, s.Graph.StepOf(v)):
				p.t.Errorf("%s began, and its step is not a candidate of\n%s", p.base.Name(i), view.Info().Text("deploy"))
			case was.Status == model.TaskSucceeded && !order:
				p.t.Errorf("%s is done once more", p.base.Name(i))
			}
		}
		if was.Status == model.TaskSucceeded && is.Status != model.TaskSucceeded && !order && p.base.Action[v] != model.Create &&
			p.base.Action[v] != model.Confirm {
			p.t.Errorf("%s was done, and is %s without anybody's order", p.base.Name(i), is.Status)
		}
	}
	mine := maps.Clone(on)
	op, _ := p.machine.View().Operation("one", p.op)
	gaveUp := op.Status == model.OpAborted || op.Status == model.OpRollingBack || op.Status == model.OpRolledBack // while the last task ended
	for _, other := range p.machine.View().ActiveOperations() {
		o, _ := p.machine.View().Plan(other.ID)
		if other.Type == model.OpRecreateNode {
			gaveUp = gaveUp || op.Status == model.OpAborting // it waits for the end of this one
			if op.Status.Ended() && !op.Type.Concurrent() {
				p.t.Errorf("%s is %s, and %s still replaces nodes", p.op, op.Status, other.ID)
			}
		}
		for i := range o.Graph.Nodes {
			n := int32(slices.Index(p.base.Nodes, o.Graph.Nodes[i]))
			if left := slices.ContainsFunc(o.Graph.On(o.Graph.Nodes[i]), func(v uint32) bool { return !o.Status(v).Ended() }); left &&
				other.Type == model.OpRecreateNode && mine[n] != "" && !op.Type.Concurrent() {
				p.t.Errorf("%s is at work on a node that %s replaces", mine[n], other.ID)
			}
			if v, held := o.Busy(int32(i)); held && other.ID != p.op {
				if first, taken := on[n]; taken {
					p.t.Errorf("%s of %s and %s are at work on one node", o.Graph.Name(int(v)), other.ID, first)
				}
				on[n] = other.ID
			}
		}
	}
	if s.Tolerated() == 0 && !gaveUp && (view.Status() == tree.Complete) != s.Complete() {
		p.t.Errorf("the plan is %s, and complete: %t", view.Status(), s.Complete())
	}
	for i := range view.Phases {
		steps := view.Steps[view.Phases[i].First:view.Phases[i].End]
		whole := !slices.ContainsFunc(steps, func(c tree.Child) bool { return c.Status != tree.Complete })
		if (view.PhaseStatus(i) == tree.Complete) != whole {
			p.t.Errorf("phase %d is %s:\n%s", i, view.PhaseStatus(i), view.Info().Text("deploy"))
		}
	}
}

// leader lets another leader take over.
func (p *play) leader() {
	p.lead.Lock()
	defer p.lead.Unlock()
	if p.over != nil {
		p.over()
	}
	d := dispatch.New(dispatch.Config{Machine: p.machine, Propose: p.propose, Tasks: p.work, Logger: slog.New(slog.DiscardHandler),
		Jitter: func() float64 { return 0 }})
	if err := d.Restore(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = d.Run(ctx)
	}()
	p.d, p.over = d, func() { cancel(); <-ended }
}

func (p *play) dispatcher() *dispatch.Dispatcher {
	p.lead.RLock()
	defer p.lead.RUnlock()
	return p.d
}

// enter lets agents come; leave ends all that is under way.
func (p *play) enter(agents, fail int) (leave func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for i := range agents {
		h := &hand{p: p, name: fmt.Sprint("agent", i), fail: fail, r: rand.New(rand.NewPCG(p.r.Uint64(), 2))}
		h.die()
		p.hands = append(p.hands, h)
		wg.Go(func() { h.work(ctx) })
	}
	return func() {
		cancel()
		wg.Wait()
		p.over()
		for _, h := range p.hands {
			h.die() // its tasks end without a report
		}
		p.hands = nil
		time.Sleep(time.Minute)
	}
}

// order sends a random order about a random part.
func (p *play) order() {
	commands := []string{"interrupt", "continue", "continue", "continue", "restart", "forceComplete", "stop", "start"}
	command := commands[p.r.IntN(len(commands))]
	o := &pb.OrderPlan{Operation: p.op, Order: logformat.PlanOrders.Number(command)}
	v := p.view()
	if command != "stop" && command != "start" && p.r.IntN(3) > 0 {
		i := p.r.IntN(len(v.Phases))
		o.Phase = v.PhaseID(i)
		if n := int(v.Phases[i].End - v.Phases[i].First); command != "interrupt" && command != "continue" && n > 0 && p.r.IntN(3) > 0 {
			o.Step = v.StepID(i, p.r.IntN(n))
		}
	}
	p.give(&pb.Command{Tenant: "one", Actor: "alice", Change: &pb.Command_OrderPlan{OrderPlan: o}})
}

func (p *play) give(c *pb.Command) {
	answers, err := p.propose(p.t.Context(), c)
	var no *tree.Refusal
	if err == nil && answers[0].Err != nil && !errors.As(answers[0].Err, &no) && !errors.Is(answers[0].Err, problem.Conflict) {
		p.t.Errorf("%v: %v", c, answers[0].Err)
	}
	if err == nil && answers[0].Err == nil {
		p.ordered++
	}
}

// finishOperation opens every gate, again and again, until the operation has succeeded.
func (p *play) finishOperation() {
	p.t.Helper()
	for range 2000 {
		op, _ := p.machine.View().Operation("one", p.op)
		if op.Status.Ended() {
			break
		}
		if op.Status == model.OpPaused {
			p.give(&pb.Command{Tenant: "one", Actor: "alice",
				Change: &pb.Command_ControlOperation{ControlOperation: &pb.ControlOperation{Operation: p.op,
					Order: pb.OperationOrder_OPERATION_ORDER_RESUME}}})
		}
		for i, v := 0, p.view(); i < len(v.Phases); i++ {
			if s := v.PhaseStatus(i); s == tree.Waiting || s == tree.Error { // held back, whatever has failed
				p.give(&pb.Command{Tenant: "one", Actor: "alice",
					Change: &pb.Command_OrderPlan{OrderPlan: &pb.OrderPlan{Operation: p.op, Order: pb.PlanOrder_PLAN_ORDER_CONTINUE,
						Phase: v.PhaseID(i)}}})
			}
		}
		time.Sleep(time.Second)
	}
	op, _ := p.machine.View().Operation("one", p.op)
	if tolerated := p.plan().Tolerated() > 0; op.Status != model.OpSucceeded || !p.plan().Complete() ||
		!tolerated && p.view().Status() != tree.Complete {
		p.t.Errorf("the operation ends %s: %s\n%s", op.Status, op.Message, p.view().Info().Text("deploy"))
	}
}

// finish does what finishOperation does, and checks the status of the cluster.
func (p *play) finish() {
	p.t.Helper()
	p.finishOperation()
	if cl, _ := p.machine.View().Cluster("one", "00000001"); cl.Status != model.ClusterActive {
		p.t.Errorf("the cluster is %s: %s", cl.Status, cl.Message)
	}
}

// reload puts a machine in place that has read the other's snapshot.
func (p *play) reload() {
	p.t.Helper()
	s, err := p.machine.Snapshot()
	if err != nil {
		p.t.Fatal(err)
	}
	var to sink
	if err := s.Persist(&to); err != nil {
		p.t.Fatal(err)
	}
	s.Release()
	m, err := state.New(state.Config{})
	if err == nil {
		err = m.Restore(io.NopCloser(&to.Buffer))
	}
	if err != nil {
		p.t.Fatal(err)
	}
	p.machine = m
}

// sink takes a snapshot.
type sink struct{ bytes.Buffer }

func (*sink) ID() string    { return "s" }
func (*sink) Cancel() error { return nil }
func (*sink) Close() error  { return nil }
