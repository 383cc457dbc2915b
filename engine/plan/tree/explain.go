package tree

import (
	"fmt"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
)

// The kinds of things that a step waits for.
const (
	WaitsGate       = "gate"       // an operator: a pause, a canary, a start
	WaitsDependency = "dependency" // earlier tasks of this plan
	WaitsFailed     = "failed"     // a task that is out of attempts
	WaitsDelay      = "delay"      // the time of the next attempt
	WaitsNode       = "node"       // a task that holds its node
	WaitsPlan       = "plan"       // another plan that works on its node
	WaitsLimit      = "limit"      // its provider's limit of concurrent tasks
	WaitsPlugin     = "plugin"     // an agent with its plugin, or on its machine
	WaitsWorker     = "worker"     // a free slot of a worker
	WaitsNothing    = "nothing"    // it is about to begin
)

// Wait is one thing that a step, or a whole plan, waits for.
type Wait struct {
	Kind string `json:"kind"`
	// Text describes the wait. What is its subject: a task, an operation, a plugin.
	Text string `json:"text"`
	What string `json:"what,omitempty"`
}

// WaitingStep is a step that is neither done nor running.
type WaitingStep struct {
	Phase  string `json:"phase"`
	Name   string `json:"name"`
	Status string `json:"status"`
	Waits  []Wait `json:"waits"`
}

// Explanation describes why a plan does not go on, or what is running (`coopr operation
// explain`).
type Explanation struct {
	Plan   string `json:"plan"`
	Status string `json:"status"`
	// Waits are the things that the whole plan waits for.
	Waits []Wait `json:"waits"`
	// Running and Done count steps. Waiting counts the other steps by the kind of their first
	// wait.
	Running int            `json:"running"`
	Done    int            `json:"done"`
	Waiting map[string]int `json:"waiting"`
	// Steps are waiting steps, at most as many as requested. Steps that wait for something
	// outside the plan come first.
	Steps []WaitingStep `json:"steps"`
	// Skipped are the names of the nodes that the operation leaves out because their machines
	// are gone.
	Skipped []string `json:"skipped,omitempty"`
}

// named is how many tasks before a step are named.
const named = 3

// Explain returns what each waiting step of a plan waits for, for at most limit steps. The
// view must be that of the state, and now is in Unix milliseconds. Without a state, only gates
// are explained. The function ready returns what leasable tasks wait for. It may leave some
// out, and may be nil.
func (v *View) Explain(s *plan.State, limit int, now int64, ready func(tasks []uint32) map[uint32]Wait) *Explanation {
	e := &Explanation{Plan: v.Name, Status: v.Status().String(), Waits: []Wait{}, Waiting: map[string]int{}, Steps: []WaitingStep{}}
	if v.Interrupted {
		e.Waits = append(e.Waits, Wait{Kind: WaitsGate, Text: "the plan is held back: an operator has to start it or to let it go on"})
	}
	for _, text := range v.Errors {
		e.Waits = append(e.Waits, Wait{Kind: WaitsFailed, Text: text})
	}
	x := explaining{View: v, s: s, now: now}
	var all []explained
	var tasks []uint32
	for p := range v.Phases {
		for i, c := range v.steps(p) {
			step := v.Phases[p].First + uint32(i)
			switch {
			case c.over():
				e.Done++
				continue
			case c.Status == Starting || c.Status == Started:
				e.Running++
				continue
			}
			w := x.step(p, step, c)
			if len(w.waits) == 0 && v.Interrupted && !c.GoesOn {
				w.waits = e.Waits[:1]
			}
			if len(w.waits) == 0 {
				tasks = append(tasks, w.task)
			}
			all = append(all, w)
		}
	}
	var outside map[uint32]Wait
	if len(tasks) > 0 && ready != nil {
		outside = ready(tasks)
	}
	for i := range all {
		w := &all[i]
		if len(w.waits) == 0 {
			wait, ok := outside[w.task]
			if !ok {
				wait = Wait{Kind: WaitsNothing, Text: "nothing: it is about to begin"}
			}
			w.waits = []Wait{wait}
		}
		e.Waiting[w.waits[0].Kind]++
	}
	slices.SortStableFunc(all, func(a, b explained) int { return a.order() - b.order() })
	for _, w := range all[:min(limit, len(all))] {
		e.Steps = append(
			e.Steps,
			WaitingStep{Phase: v.Phases[w.phase].Name, Name: v.stepName(w.step), Status: v.Steps[w.step].Status.String(), Waits: w.waits},
		)
	}
	return e
}

// explained is a waiting step while it is being explained. Without waits, its task is held
// back by nothing in the plan.
type explained struct {
	phase int
	step  uint32
	task  uint32
	waits []Wait
}

// order sorts steps: first those that wait for others to act, last those that wait for these.
func (w *explained) order() int {
	switch w.waits[0].Kind {
	case WaitsFailed:
		return 0
	case WaitsDependency:
		return 3
	case WaitsGate:
		return 2
	}
	return 1
}

// explaining finds what tasks wait for.
type explaining struct {
	*View
	s   *plan.State
	now int64
	// off and preds are the reversed edges, made on first use.
	off   []uint32
	preds []uint32
	// behind caches what barriers wait for.
	behind map[uint32]*undone
}

// undone are some tasks that are not done, and whether there are more.
type undone struct {
	some []uint32
	more bool
}

func (x *explaining) step(phase int, step uint32, c Child) explained {
	w := explained{phase: phase, step: step}
	gate := func(text string) { w.waits = append(w.waits, Wait{Kind: WaitsGate, Text: text}) }
	if x.Held[phase] && !c.GoesOn {
		gate(fmt.Sprintf("phase %s is held back: an operator has to let it go on", x.Phases[phase].Name))
	}
	if c.Interrupted {
		gate(fmt.Sprintf("it is held back, as a canary is: an operator has to let phase %s go on", x.Phases[phase].Name))
	}
	if c.Behind {
		gate(fmt.Sprintf("it comes behind canaries: an operator has to let phase %s go on when they are well", x.Phases[phase].Name))
	}
	if x.s == nil {
		return w
	}
	var blocked *uint32
	for v := range x.s.Graph.In(plan.Step(step)) {
		switch status := x.s.Status(v); {
		case status == model.TaskFailed:
			w.waits = append(w.waits, Wait{Kind: WaitsFailed, What: x.name(v), Text: x.name(v) + " failed: " + x.lastMessage(v)})
			return w
		case status == model.TaskReady || status == model.TaskUncertain:
			w.task = v
			if n := x.s.Note(v); n != nil && n.RetryAt > x.now {
				text := fmt.Sprintf("%s is tried again in %d s", x.name(v), (n.RetryAt-x.now+999)/1000)
				if why := x.lastMessage(v); why != "" {
					text += ": " + why
				}
				w.waits = append(w.waits, Wait{Kind: WaitsDelay, What: x.name(v), Text: text})
			}
			return w
		case status == model.TaskBlocked && blocked == nil:
			blocked = &v
		}
	}
	if blocked == nil {
		return w // nothing of it is left to do
	}
	w.task = *blocked
	u := x.before(*blocked)
	if len(u.some) == 0 {
		return w
	}
	var names []string
	for _, t := range u.some {
		names = append(names, x.name(t))
	}
	text := strings.Join(names, ", ")
	if u.more {
		text += " and others"
	}
	w.waits = append(w.waits, Wait{Kind: WaitsDependency, What: names[0], Text: x.name(*blocked) + " comes after " + text})
	return w
}

// name returns the name of a task for messages: "start nginx on shop-1000".
func (x *explaining) name(v uint32) string {
	g := x.s.Graph
	out := g.ActionKey(int(v))
	if s := g.ServiceName(int(v)); s != "" {
		out += " " + s
	}
	id := g.NodeID(int(v))
	if x.Node != nil {
		id = x.Node(id)
	}
	switch {
	case id != "":
		out += " on " + id
	case g.OnAgent(int(v)):
		out += " on an agent"
	}
	return out
}

func (x *explaining) lastMessage(v uint32) string {
	if n := x.s.Note(v); n != nil && len(n.History) > 0 {
		return n.History[len(n.History)-1].Message
	}
	return ""
}

// before returns the tasks that v waits for, directly or through barriers.
func (x *explaining) before(v uint32) *undone {
	if x.off == nil {
		x.turnEdges()
	}
	if u := x.behind[v]; u != nil {
		return u
	}
	u := &undone{}
	add := func(t uint32) {
		switch {
		case slices.Contains(u.some, t):
		case len(u.some) == named:
			u.more = true
		default:
			u.some = append(u.some, t)
		}
	}
	for _, p := range x.preds[x.off[v]:x.off[v+1]] {
		switch {
		case x.s.Graph.Action[p] == model.Barrier:
			b := x.before(p)
			u.more = u.more || b.more
			for _, t := range b.some {
				add(t)
			}
		case x.s.Status(p) != model.TaskSucceeded && !x.s.Task(p).Tolerated:
			add(p)
		}
	}
	if x.s.Graph.Action[v] == model.Barrier {
		x.behind[v] = u
	}
	return u
}

func (x *explaining) turnEdges() {
	g := x.s.Graph
	x.behind = map[uint32]*undone{}
	x.off = make([]uint32, g.Len()+1)
	for _, w := range g.Succ {
		x.off[w+1]++
	}
	for i := range g.Len() {
		x.off[i+1] += x.off[i]
	}
	x.preds = make([]uint32, len(g.Succ))
	at := slices.Clone(x.off)
	for v := range g.Len() {
		for _, w := range g.Next(v) {
			x.preds[at[w]] = uint32(v)
			at[w]++
		}
	}
}
