package plan

import (
	"errors"
	"slices"

	iradix "github.com/hashicorp/go-immutable-radix"

	"github.com/coopr/coopr/engine/lease"
	"github.com/coopr/coopr/engine/model"
)

// How many vertices, nodes, holders and gates share a leaf of their table. A leaf is copied
// when an edit first changes it.
const (
	taskLeaf   = 16
	nodeLeaf   = 64
	holderLeaf = 16
	gateLeaf   = 128
)

// tasks are the columns of taskLeaf vertices.
type tasks struct {
	status  [taskLeaf]model.TaskStatus
	attempt [taskLeaf]uint8
	// pending is the number of vertices that a vertex waits for, whatever its status: the edges
	// from vertices that do not count as done. A barrier is done as soon as it has none.
	pending [taskLeaf]uint32
	// One bit for each vertex: tolerated vertices failed, or were cancelled with one that
	// failed, and count as done. Forced vertices count as done because of an operator's order.
	tolerated, forced uint16
	// runs exists from the first lease on. It is of the generation runGen.
	runGen uint64
	runs   *runs
}

// runs are the columns about the latest attempts.
type runs struct {
	fence  [taskLeaf]uint64
	leased [taskLeaf]int64
	ended  [taskLeaf]int64
	holder [taskLeaf]uint32
}

// done reports whether the vertices that wait for vertex i may go on.
func (t *tasks) done(i uint32) bool {
	return t.status[i] == model.TaskSucceeded || t.tolerated>>i&1 > 0
}

// Attempt is an ended or running attempt at a task.
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

// Undone is the outcome of an attempt that undid an earlier one: of a CREATE, it deleted the machine.
const Undone = "undone"

// Note has further details of a vertex. Most vertices have none.
type Note struct {
	// Failures counts failed attempts, without lost ones.
	Failures int `json:"failures,omitempty"`
	// Lost counts attempts whose agent fell silent.
	Lost int `json:"lost,omitempty"`
	// RetryAt is the earliest time of the next attempt, in Unix milliseconds.
	RetryAt int64 `json:"retry_at,omitempty"`
	// Observe is true if an earlier attempt may have done its work without its result being
	// seen.
	Observe bool `json:"observe,omitempty"`
	// Undo is true if the next attempt undoes an earlier one: it deletes the result of a CREATE
	// whose CONFIRM failed (docs/spec/planner.md, "Retry"), or stops a service that is launched
	// anew.
	Undo bool `json:"undo,omitempty"`
	// Skip is true if the task was reset and is not to be done again: the next attempt succeeds
	// without doing anything.
	Skip bool `json:"skip,omitempty"`
	// Adopted is true if the last attempt found its work already done.
	Adopted bool `json:"adopted,omitempty"`
	// Avoid is an agent that should not get the next attempt.
	Avoid string `json:"avoid,omitempty"`
	// History has every ended attempt except a successful last one.
	History []Attempt `json:"history,omitempty"`
}

// State is the state of every vertex of a graph at one moment. It never changes. An Edit makes
// the next state, which shares all unchanged leaves, so snapshots and readers are not
// disturbed by new results.
type State struct {
	Graph *Graph
	tasks table[tasks]
	busy  table[[nodeLeaf]uint32] // by node: the vertex that holds it, plus one
	notes table[[taskLeaf]*Note]
	gates gates
	// holders are the sessions that ever held a lease, by their index in runs. bySession
	// returns that index.
	holders   table[[holderLeaf]Holder]
	bySession *iradix.Tree
	counts    [model.TaskStatuses]int
	// tolerated counts the tasks that count as done without having succeeded.
	tolerated int
	// gen grows with every edit. An edit may write only to leaves of its own generation.
	gen uint64
}

// Holder is a session of an agent that took leases.
type Holder struct {
	Session string `json:"session"`
	Agent   string `json:"agent"`
}

// The reasons for which an Edit refuses a change.
var (
	ErrStaleFence = errors.New("the lease is not valid any more: another attempt or an end came first")
	ErrNotReady   = errors.New("the task is not ready")
	ErrNodeBusy   = errors.New("another task holds the node")
	ErrHeld       = errors.New("the task is held back: it, its phase or its plan waits for an operator")
	ErrNoVertex   = errors.New("the plan has no such task")
)

// blank returns a state in which every vertex is blocked.
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

// NewState returns the initial state: vertices that wait for nothing are ready.
func NewState(g *Graph) *State {
	e := blank(g).Edit()
	for v := range g.Len() {
		if g.Preds[v] == 0 {
			e.free(uint32(v))
		}
	}
	return e.Done()
}

// Task is the state of one vertex, gathered for a reader.
type Task struct {
	Vertex  uint32
	Status  model.TaskStatus
	Attempt int
	Fence   uint64
	Holder  Holder
	// LeasedAt becomes zero again when the task is reset.
	LeasedAt int64
	EndedAt  int64
	// Forced is true if an operator declared the task done. Tolerated is true if it is not
	// done, but the tasks that waited for it go on.
	Forced    bool
	Tolerated bool
	Note      *Note // may be nil
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

// Note returns the note of v, or nil.
func (s *State) Note(v uint32) *Note {
	if l := s.notes.get(v / taskLeaf); l != nil {
		return l[v%taskLeaf]
	}
	return nil
}

// Valid reports whether fence is the fence of a lease that a worker holds on v.
func (s *State) Valid(v uint32, fence uint64) bool {
	return int(v) < s.Graph.Len() && lease.Valid(s.Status(v).Held(), s.Fence(v), fence)
}

// Busy returns the vertex that holds a node, by the node's index.
func (s *State) Busy(node int32) (uint32, bool) {
	l := s.busy.get(uint32(node) / nodeLeaf)
	if l == nil || l[node%nodeLeaf] == 0 {
		return 0, false
	}
	return l[node%nodeLeaf] - 1, true
}

// Holds reports whether workers hold a task of this plan that keeps other plans' tasks from a
// node, given by its id, and which one. A task of another plan that concerns one service and
// may run concurrently conflicts with tasks of the same service and of the node itself. Any
// other task, for which service is "", conflicts with all of them.
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

// Inherited reports whether v was done before the plan began, and has not been repeated since.
func (s *State) Inherited(v uint32) bool {
	t := s.Task(v)
	return t.Status == model.TaskSucceeded && t.Attempt == 0 && !t.Forced && s.Graph.Action[v] != model.Barrier
}

// Count returns how many tasks have this status.
func (s *State) Count(status model.TaskStatus) int { return s.counts[status] }

// Progress counts the tasks by status.
func (s *State) Progress() model.Progress {
	out := model.Progress{Counts: map[string]int{}, Done: s.Count(model.TaskSucceeded)}
	for st := range model.TaskStatuses {
		if n := s.Count(model.TaskStatus(st)); n > 0 {
			out.Counts[model.TaskStatus(st).String()] = n
			out.Total += n
		}
	}
	return out
}

// Held counts the tasks that workers hold.
func (s *State) Held() int { return s.counts[model.TaskLeased] + s.counts[model.TaskRunning] }

// Tolerated returns the number of tasks that count as done although they failed, or were
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
	// There are fewer nodes than tasks, so search by node.
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

// Leasable returns the vertices that are ready or uncertain and not held back, in order.
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

// Leaseable reports whether v is ready or uncertain and not held back. Such a task waits only for a worker,
// or for the time of its next attempt.
func (s *State) Leaseable(v uint32) bool { return waits(s.Status(v)) && !s.HeldBack(v) }

// waits reports whether a task with this status waits only for a worker.
func waits(s model.TaskStatus) bool { return s == model.TaskReady || s == model.TaskUncertain }
