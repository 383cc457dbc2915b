package mesh

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/plugins/host"
	pb "github.com/coopr/coopr/rpc/proto"
)

// World is the simulated cloud, which records what agents do to it. It is deliberately strict: a
// second CREATE makes a second machine, and anything that the architecture rules out is recorded as
// a violation.
type World struct {
	mu       sync.Mutex
	rng      *rand.Rand
	trace    func(format string, args ...any)
	machines map[string]*Machine // by node
	razed    map[string]bool     // those whose machine went by itself, by node
	latest   map[string]uint64   // highest fence that was seen of each task
	attempts []*Attempt
	doubts   map[string]bool // tasks whose last attempt ended unseen, after its effect
	wrong    []string
	created  int
	// Trouble decides the result of an attempt; nil means that all succeed.
	Trouble func(t *pb.Task, attempt int) Trouble
	// Returns has more results, and values to save, of an attempt that succeeds; nil means none.
	Returns func(t *pb.Task) (results map[string]any, saved map[string]string)
	tries   map[string]int
	clock   int // orders starts and ends
	// checks counts the checks of machines and services.
	checks int
	asked  []string // the fields with which providers were asked for their machines
}

// Machine is one machine that was made.
type Machine struct {
	Cluster, Node, IP string
	Fence             uint64
	Done              map[string]int             // how often an action of a service took effect
	Config            map[string]json.RawMessage // what services were last configured with
	Running           map[string]bool
}

// Attempt is one call of a plugin.
type Attempt struct {
	Task, Node, Action, Service string
	Fence                       uint64
	Observe                     bool
	Began, Ended                int // 0: has not ended
	Outcome                     pb.Outcome
	life                        *life
}

// Trouble is a fault of an attempt.
type Trouble int

// The troubles.
const (
	Well        Trouble = iota
	DiesBefore          // the plugin is killed before it did anything
	DiesAfter           // it is killed after its work, before it can report the result
	Garbage             // it prints what nobody understands
	Hangs               // it never returns; the host ends it when it is told to, or at a time-out
	Slow                // it takes long
	Fails               // a plain failure that may be retried
	NothingDone         // a failure before anything was done
	Dooms               // a failure that no retry helps
)

var troubleNames = [...]string{"well", "dies before", "dies after", "prints garbage", "hangs", "slow", "fails", "nothing done", "fatal"}

func (t Trouble) String() string { return troubleNames[t] }

func newWorld(seed uint64, trace func(string, ...any)) *World {
	return &World{
		rng: rand.New(rand.NewPCG(seed, 2)), trace: trace, machines: map[string]*Machine{}, razed: map[string]bool{}, latest: map[string]uint64{},
		doubts: map[string]bool{}, tries: map[string]int{},
	}
}

func (w *World) violation(format string, args ...any) {
	s := fmt.Sprintf(format, args...)
	w.wrong = append(w.wrong, s)
	w.trace("VIOLATION %s", s)
}

// Violations returns the violations of the rules so far.
func (w *World) Violations() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.wrong)
}

// Machines counts the machines that exist.
func (w *World) Machines() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.machines)
}

// Attempts returns every call so far.
func (w *World) Attempts() []*Attempt {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]*Attempt, len(w.attempts))
	for i, a := range w.attempts {
		c := *a
		out[i] = &c
	}
	return out
}

func (w *World) between(from, to time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return from + time.Duration(w.rng.Int64N(int64(to-from)))
}

// Asked returns the fields with which providers were asked for their machines.
func (w *World) Asked() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.asked)
}

// cloud is the type of the simulated provider.
var cloud = model.PluginType{Base: model.Base{Name: "sim"}, Class: "provider", Plugin: "1", Parameters: model.PluginParameters{
	Admin: model.PluginFields{Fields: map[string]model.FieldSchema{
		"endpoint": {Label: "Endpoint", Type: "text"}, "password": {Label: "Password", Type: "password"},
		"inventory": {Label: "Inventory", Type: "text"},
	}},
	User: model.PluginFields{Fields: map[string]model.FieldSchema{"pin": {Label: "PIN", Type: "password"}}},
}}

// executor is an agent's plugins in the world.
type executor struct {
	world *World
	life  *life
	name  string
}

// Types offers the simulated provider and automator, and what runs programs.
func (x *executor) Types() []host.Type {
	return []host.Type{
		{Kind: model.KindProviderType, PluginType: cloud},
		{Kind: model.KindAutomatorType, PluginType: model.PluginType{Base: model.Base{Name: "sim"}, Class: "automator", Plugin: "1"}},
		{Kind: model.KindAutomatorType, PluginType: model.PluginType{Base: model.Base{Name: operation.ProgramAutomator}, Class: "automator",
			Plugin: "1"}},
	}
}

// Execute simulates one attempt.
func (x *executor) Execute(ctx context.Context, t *pb.Task, sink host.Sink) *pb.Result {
	w := x.world
	if t.Action == model.Check.String() && t.Operation == "check" {
		return w.check(ctx, x, t)
	}
	a, trouble := w.begin(t, x.life, x.name)
	res := x.play(ctx, t, trouble)
	res.Task, res.Fence = t.Id, t.Fence
	w.returns(t, res, sink)
	w.end(a, res, x.name)
	return res
}

func (w *World) begin(t *pb.Task, l *life, agent string) (*Attempt, Trouble) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clock++
	a := &Attempt{Task: t.Id, Node: t.Node, Action: t.Action, Service: t.Service, Fence: t.Fence, Observe: t.Observe, Began: w.clock, life: l}
	w.trace("%s begins %s %s %s, task %s fence %d observe=%t", agent, t.Action, t.Node, t.Service, t.Id, t.Fence, t.Observe)
	for _, b := range w.attempts {
		switch {
		case b.Task == t.Id && b.Fence == t.Fence:
			w.violation("task %s was begun twice under fence %d", t.Id, t.Fence)
		case b.Task == t.Id && b.Fence > t.Fence:
			w.violation("task %s was begun under fence %d after fence %d", t.Id, t.Fence, b.Fence)
		case b.Node == t.Node && b.Ended == 0 && !b.life.isDead() && !b.life.frozen():
			w.violation("task %s (%s) was begun on node %s while %s (%s, fence %d) is at work there", t.Id, t.Action, t.Node, b.Task, b.Action,
				b.Fence)
		}
	}
	w.latest[t.Id] = max(w.latest[t.Id], t.Fence)
	w.attempts = append(w.attempts, a)
	w.tries[t.Id]++
	trouble := Well
	if w.Trouble != nil {
		trouble = w.Trouble(t, w.tries[t.Id])
	}
	return a, trouble
}

// returns adds the results of Returns to an attempt that succeeded.
func (w *World) returns(t *pb.Task, res *pb.Result, sink host.Sink) {
	w.mu.Lock()
	more := w.Returns
	w.mu.Unlock()
	if more == nil || res.Outcome != pb.Outcome_OUTCOME_SUCCEEDED {
		return
	}
	results, saved := more(t)
	for key, value := range saved {
		sink.Save(&pb.SaveState{Task: t.Id, Fence: t.Fence, Key: key, Value: []byte(value)})
	}
	var o model.TaskOutput
	if len(results) == 0 || len(res.Output) > 0 && json.Unmarshal(res.Output, &o) != nil {
		return
	}
	if o.Result == nil {
		o.Result = map[string]any{}
	}
	maps.Copy(o.Result, results)
	res.Output, _ = json.Marshal(o)
}

func (w *World) end(a *Attempt, res *pb.Result, agent string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clock++
	a.Ended, a.Outcome = w.clock, res.Outcome
	w.trace("%s ended %s %s %s, fence %d: %s %s", agent, a.Action, a.Node, a.Service, a.Fence, res.Outcome, res.Message)
}

func outcome(o pb.Outcome, format string, args ...any) *pb.Result {
	return &pb.Result{Outcome: o, Message: fmt.Sprintf(format, args...)}
}

// stopped returns the result of a call that was stopped from outside, like that of the plugin host.
func stopped(t *pb.Task, err error) *pb.Result {
	if t.Action == model.Create.String() {
		return outcome(pb.Outcome_OUTCOME_UNKNOWN, "stopped: %v", err)
	}
	return outcome(pb.Outcome_OUTCOME_CANCELLED, "stopped: %v", err)
}

func (x *executor) play(ctx context.Context, t *pb.Task, trouble Trouble) *pb.Result {
	w := x.world
	if err := x.life.sleep(ctx, w.between(5*time.Millisecond, 300*time.Millisecond)); err != nil {
		return outcome(pb.Outcome_OUTCOME_NOTHING_DONE, "stopped: %v", err)
	}
	switch trouble {
	case DiesBefore:
		return outcome(pb.Outcome_OUTCOME_UNKNOWN, "the plugin was killed")
	case Fails:
		return outcome(pb.Outcome_OUTCOME_RETRYABLE, "the cloud is out of order")
	case NothingDone:
		return outcome(pb.Outcome_OUTCOME_NOTHING_DONE, "the cloud has no room")
	case Dooms:
		return outcome(pb.Outcome_OUTCOME_FATAL, "the cloud does not know this flavor")
	case Hangs:
		limit := min(time.Duration(t.TimeoutMs)*time.Millisecond, 45*time.Second)
		if err := x.life.sleep(ctx, limit); err != nil {
			return stopped(t, err)
		}
		return outcome(pb.Outcome_OUTCOME_UNKNOWN, "timed out")
	default:
	}
	res, err := w.effect(ctx, x, t)
	if err != nil {
		return stopped(t, err)
	}
	took := w.between(20*time.Millisecond, 1500*time.Millisecond)
	if trouble == Slow {
		took += w.between(5*time.Second, 25*time.Second)
	}
	if err := x.life.sleep(ctx, took); err != nil {
		return stopped(t, err)
	}
	switch trouble {
	case DiesAfter:
		return outcome(pb.Outcome_OUTCOME_UNKNOWN, "the plugin was killed")
	case Garbage:
		res.Output = []byte("Segmentation fault")
	default:
	}
	return res
}

// effect is the moment at which a call changes the world.
func (w *World) effect(ctx context.Context, x *executor, t *pb.Task) (*pb.Result, error) {
	if err := x.life.moving(); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if x.life.isDead() {
		return nil, errDead
	}
	if latest := w.latest[t.Id]; latest > t.Fence {
		w.violation("%s changes the world for task %s (%s) under fence %d, but fence %d was given out", x.name, t.Id, t.Action, t.Fence, latest)
	}
	m := w.machines[t.Node]
	res := &pb.Result{Outcome: pb.Outcome_OUTCOME_SUCCEEDED}
	switch t.Action {
	case "CREATE":
		switch {
		case m != nil && t.Observe:
			res.Adopted = true
		case m != nil:
			w.violation("CREATE of node %s (task %s, fence %d) makes a second machine without an observation: fence %d made one", t.Node, t.Id,
				t.Fence, m.Fence)
		default:
			w.created++
			m = &Machine{Cluster: t.Cluster, Node: t.Node, Fence: t.Fence, IP: fmt.Sprintf("192.0.%d.%d", w.created/250, w.created%250+1),
				Done: map[string]int{}, Config: map[string]json.RawMessage{}, Running: map[string]bool{}}
			w.machines[t.Node] = m
			delete(w.razed, t.Node)
		}
		res.Output, _ = json.Marshal(model.TaskOutput{IPAddresses: map[string]string{"access_v4": m.IP}, Result: map[string]any{"id": m.id()}})
		return res, nil
	case "DELETE":
		delete(w.machines, t.Node)
		return res, nil
	}
	if m == nil {
		if !w.razed[t.Node] { // else nobody may know of it yet
			w.violation("%s of node %s (task %s, fence %d): there is no machine", t.Action, t.Node, t.Id, t.Fence)
		}
		return outcome(pb.Outcome_OUTCOME_FATAL, "there is no machine"), nil
	}
	if t.Action == model.Check.String() {
		if !m.Running[t.Service] {
			return outcome(pb.Outcome_OUTCOME_RETRYABLE, "%s does not run", t.Service), nil
		}
		return res, nil
	}
	key := t.Operation + " " + t.Action + " " + t.Service
	if m.Done[key] > 0 && once(t.Action) {
		if t.Observe {
			res.Adopted = true
			return res, nil
		}
		w.violation("%s on node %s (task %s, fence %d) is done twice without an observation", key, t.Node, t.Id, t.Fence)
	}
	m.Done[key]++
	switch t.Action {
	case "CONFIGURE":
		var in struct {
			Config struct{ Cluster json.RawMessage }
		}
		if err := json.Unmarshal(t.Input, &in); err != nil {
			w.violation("task %s: input: %v", t.Id, err)
		}
		m.Config[t.Service] = in.Config.Cluster
	case "START":
		m.Running[t.Service] = true
	case "STOP", "REMOVE":
		m.Running[t.Service] = false
	case "RUN":
		res.Output = []byte(`{"result":{"exit":0}}`)
	}
	return res, nil
}

// check checks a machine, or a service on one. It changes nothing, so it may run while an action
// runs there.
func (w *World) check(ctx context.Context, x *executor, t *pb.Task) *pb.Result {
	if err := x.life.sleep(ctx, w.between(time.Millisecond, 100*time.Millisecond)); err != nil {
		return outcome(pb.Outcome_OUTCOME_CANCELLED, "stopped: %v", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.checks++
	m := w.machines[t.Node]
	switch {
	case !t.Automator:
		return &pb.Result{Task: t.Id, Fence: t.Fence, Outcome: pb.Outcome_OUTCOME_SUCCEEDED, Adopted: m != nil}
	case m == nil || !m.Running[t.Service]:
		return outcome(pb.Outcome_OUTCOME_RETRYABLE, "%s does not run", t.Service)
	}
	return &pb.Result{Task: t.Id, Fence: t.Fence, Outcome: pb.Outcome_OUTCOME_SUCCEEDED}
}

// Break ends a service on a node without notice.
func (w *World) Break(node, service string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if m := w.machines[node]; m != nil {
		m.Running[service] = false
	}
	w.trace("%s on %s breaks", service, node)
}

// Raze removes a node's machine without notice.
func (w *World) Raze(node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.machines, node)
	w.razed[node] = true
	w.trace("the machine of %s is gone", node)
}

// Runs reports whether a service runs on a node's machine.
func (w *World) Runs(node, service string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.machines[node]
	return m != nil && m.Running[service]
}

// once reports whether an action must not be done twice.
func once(action string) bool {
	switch action {
	case "CONFIRM", "BOOTSTRAP", "CONFIGURE":
		return false
	}
	return true
}

// Workers returns the number of agents that executed something.
func (w *World) Workers() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	lives := map[*life]bool{}
	for _, a := range w.attempts {
		lives[a.life] = true
	}
	return len(lives)
}
