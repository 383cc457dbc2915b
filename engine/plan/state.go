package plan

import (
	"errors"
	"slices"

	iradix "github.com/hashicorp/go-immutable-radix"

	"github.com/coopr/coopr/engine/model"
)

// How many vertices, nodes, holders and gates share a leaf of their table. A
// leaf is copied when an edit first touches it.
const (
	taskLeaf   = 16
	nodeLeaf   = 64
	holderLeaf = 16
	gateLeaf   = 128
)

// tasks are taskLeaf vertices, a column each.
type tasks struct {
	status  [taskLeaf]model.TaskStatus
	attempt [taskLeaf]uint8
	// pending counts what a vertex waits for, whatever its status: the edges to
	// it from vertices that do not count as done. A barrier is done when and
	// because it has none.
	pending [taskLeaf]uint32
	// A bit for each vertex: tolerated are those that failed, or were cancelled
	// with one that failed, and count as done; forced those that an operator
	// said are done.
	tolerated, forced uint16
	// runs is there from the first lease on, and of the generation runGen.
	runGen uint64
	runs   *runs
}

// runs are the columns about the latest attempt.
type runs struct {
	fence  [taskLeaf]uint64
	leased [taskLeaf]int64
	ended  [taskLeaf]int64
	holder [taskLeaf]uint32
}

// done reports whether what waits for vertex i may go on.
func (t *tasks) done(i uint32) bool {
	return t.status[i] == model.TaskSucceeded || t.tolerated>>i&1 > 0
}

// Attempt is one ended attempt at a task, or one that is under way.
type Attempt struct {
	Number  int    `json:"attempt"`
	Fence   uint64 `json:"fence"`
	Agent   string `json:"agent"`
	Outcome string `json:"outcome"`
	Message string `json:"message,omitempty"`
	LogTail string `json:"log,omitempty"`
	// Leased and Ended are Unix milliseconds.
	Leased int64 `json:"leased"`
	Ended  int64 `json:"ended,omitempty"`
}

// Note is what is known of a vertex beyond its columns; most have none.
type Note struct {
	// Failures counts the attempts that failed; lost ones do not count.
	Failures int `json:"failures,omitempty"`
	// Lost counts the attempts whose agent fell silent.
	Lost int `json:"lost,omitempty"`
	// RetryAt is the earliest time of the next attempt, Unix milliseconds.
	RetryAt int64 `json:"retry_at,omitempty"`
	// Observe is true if an earlier attempt may have done its work unseen.
	Observe bool `json:"observe,omitempty"`
	// Undo is true if the next attempt deletes what an earlier CREATE made: its CONFIRM failed
	// (docs/spec/planner.md, "Retry").
	Undo bool `json:"undo,omitempty"`
	// Adopted is true if the last attempt found its work done already.
	Adopted bool `json:"adopted,omitempty"`
	// Avoid is the agent that the next attempt should not go to.
	Avoid string `json:"avoid,omitempty"`
	// History has every ended attempt but a successful last one.
	History []Attempt `json:"history,omitempty"`
}

// State is the state of every vertex of a graph at one moment. It is never
// changed: an Edit makes the next one, sharing all leaves it did not touch, so
// that a snapshot or a reader keeps its moment while results go on arriving.
type State struct {
	Graph *Graph
	tasks table[tasks]
	busy  table[[nodeLeaf]uint32] // by node: the vertex that holds it, plus one
	notes table[[taskLeaf]*Note]
	gates gates
	// holders are the sessions that ever held a lease, by the index in runs;
	// bySession finds that index.
	holders   table[[holderLeaf]Holder]
	bySession *iradix.Tree
	counts    [model.TaskStatuses]int
	// tolerated counts the tasks that count as done without having succeeded.
	tolerated int
	// gen grows with every edit, so that an edit knows the leaves it may write to.
	gen uint64
}

// Holder is a session of an agent that took leases.
type Holder struct {
	Session string `json:"session"`
	Agent   string `json:"agent"`
}

// The refusals of an Edit.
var (
	ErrStaleFence = errors.New("the lease is not valid any more: another attempt or an end came first")
	ErrNotReady   = errors.New("the task is not ready")
	ErrNodeBusy   = errors.New("another task holds the node")
	ErrHeld       = errors.New("the task is held back: it, its phase or its plan waits for an operator")
	ErrNoVertex   = errors.New("the plan has no such task")
)

// blank returns the state in which nobody has looked yet: all is blocked.
func blank(g *Graph) *State {
	n := g.Len()
	s := &State{Graph: g, bySession: iradix.New()}
	for from := 0; from < n; from += taskLeaf {
		t := s.tasks.own(uint32(from/taskLeaf), 0)
		copy(t.pending[:], g.Preds[from:min(n, from+taskLeaf)])
	}
	s.counts[model.TaskBlocked] = g.Tasks()
	return s
}

// NewState returns the state in which nothing has been done: vertices that wait for nothing
// are ready.
func NewState(g *Graph) *State {
	e := blank(g).Edit()
	for v := range g.Len() {
		if g.Preds[v] == 0 {
			e.free(uint32(v))
		}
	}
	return e.Done()
}

// Task is one vertex's state, gathered for a reader.
type Task struct {
	Vertex  uint32
	Status  model.TaskStatus
	Attempt int
	Fence   uint64
	Holder  Holder
	// LeasedAt is zero again when the task was put back to the beginning.
	LeasedAt int64
	EndedAt  int64
	// Forced is true if an operator said it is done; Tolerated that it is not done, and that
	// what waited for it goes on nevertheless.
	Forced    bool
	Tolerated bool
	Note      *Note // nil: nothing to say
}

func (s *State) leaf(v uint32) (*tasks, uint32) { return s.tasks.get(v / taskLeaf), v % taskLeaf }

// Task returns the state of vertex v.
func (s *State) Task(v uint32) Task {
	t, i := s.leaf(v)
	out := Task{
		Vertex: v, Status: t.status[i], Attempt: int(t.attempt[i]),
		Forced: t.forced>>i&1 > 0, Tolerated: t.tolerated>>i&1 > 0, Note: s.Note(v),
	}
	if t.runs != nil {
		out.Fence, out.LeasedAt, out.EndedAt = t.runs.fence[i], t.runs.leased[i], t.runs.ended[i]
	}
	if out.Attempt > 0 {
		out.Holder = s.holder(t.runs.holder[i])
	}
	return out
}

func (s *State) holder(i uint32) Holder { return s.holders.get(i / holderLeaf)[i%holderLeaf] }

// Status returns the status of vertex v.
func (s *State) Status(v uint32) model.TaskStatus {
	t, i := s.leaf(v)
	return t.status[i]
}

// Fence returns the fence of v's latest lease.
func (s *State) Fence(v uint32) uint64 {
	t, i := s.leaf(v)
	if t.runs == nil {
		return 0
	}
	return t.runs.fence[i]
}

// Note returns what is known of v beyond its columns, or nil.
func (s *State) Note(v uint32) *Note {
	if l := s.notes.get(v / taskLeaf); l != nil {
		return l[v%taskLeaf]
	}
	return nil
}

// Busy returns the vertex that holds a node, by the node's index.
func (s *State) Busy(node int32) (uint32, bool) {
	l := s.busy.get(uint32(node) / nodeLeaf)
	if l == nil || l[node%nodeLeaf] == 0 {
		return 0, false
	}
	return l[node%nodeLeaf] - 1, true
}

// Holds reports whether workers hold a task of this plan that keeps other plans from a node,
// by the node's id, and which. A task of another plan that is about one service, and may run
// beside those of others, conflicts with tasks of the same service and of the node itself; any
// other, for which service is "", with all of them.
func (s *State) Holds(node, service string) (v uint32, held bool) {
	if s.Held() == 0 {
		return 0, false
	}
	for _, n := range s.Graph.nodes(node) {
		if v, busy := s.Busy(n); busy {
			if have := s.Graph.ServiceName(int(v)); service == "" || have == "" || have == service {
				return v, true
			}
		}
	}
	return 0, false
}

// Count returns how many tasks have this status.
func (s *State) Count(status model.TaskStatus) int { return s.counts[status] }

// Held counts the tasks that workers hold.
func (s *State) Held() int { return s.counts[model.TaskLeased] + s.counts[model.TaskRunning] }

// Tolerated counts the tasks that count as done although they failed, or were
// cancelled with one that failed.
func (s *State) Tolerated() int { return s.tolerated }

// Complete reports whether every vertex is done: where all tasks are, no barrier has anything
// to wait for.
func (s *State) Complete() bool {
	tasks := 0
	for _, n := range s.counts {
		tasks += n
	}
	return s.counts[model.TaskSucceeded]+s.tolerated == tasks
}

// Failures counts the tasks of a part that failed for good.
func (s *State) Failures(p Part) int {
	if s.counts[model.TaskFailed] == 0 || s.Graph.Has(p) != nil {
		return 0
	}
	n := 0
	for v := range s.Graph.In(p) {
		if s.Status(v) == model.TaskFailed {
			n++
		}
	}
	return n
}

// Leased returns the held vertices of one session, or of all where session is "", in order of
// number.
func (s *State) Leased(session string) []uint32 {
	if s.Held() == 0 {
		return nil
	}
	held := make([]uint32, 0, s.Held())
	// There are fewer nodes than tasks.
	s.busy.each(func(_ uint32, l *[nodeLeaf]uint32) {
		for _, v := range l {
			if v > 0 {
				held = append(held, v-1)
			}
		}
	})
	if len(held) < s.Held() { // some are on no node
		held = held[:0]
		s.tasks.each(func(at uint32, t *tasks) {
			for i, status := range t.status {
				if status.Held() {
					held = append(held, at*taskLeaf+uint32(i))
				}
			}
		})
	}
	slices.Sort(held)
	return slices.DeleteFunc(held, func(v uint32) bool { return session != "" && s.Task(v).Holder.Session != session })
}

// Leasable returns the vertices that are ready or uncertain and not held back, in order of
// number.
func (s *State) Leasable() []uint32 {
	var out []uint32
	s.tasks.each(func(at uint32, t *tasks) {
		for i := range uint32(taskLeaf) {
			if v := at*taskLeaf + i; waits(t.status[i]) && !s.HeldBack(v) {
				out = append(out, v)
			}
		}
	})
	return out
}

// Leaseable reports whether v waits for nothing but a worker, or for its time.
func (s *State) Leaseable(v uint32) bool { return waits(s.Status(v)) && !s.HeldBack(v) }

// waits reports whether a task with this status waits for nothing but a worker.
func waits(s model.TaskStatus) bool { return s == model.TaskReady || s == model.TaskUncertain }
