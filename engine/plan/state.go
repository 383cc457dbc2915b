package plan

import (
	"encoding/binary"
	"errors"

	iradix "github.com/hashicorp/go-immutable-radix"

	"github.com/coopr/coopr/engine/model"
)

// pageSize is how many vertices share a page. A page is copied when an edit
// first touches it: small enough that one result costs little, large enough
// that the table of pages of a large plan stays short.
const pageSize = 256

// page holds the state of pageSize vertices, a column each.
type page struct {
	gen     uint64 // generation of the edit that made this copy and may write to it
	status  [pageSize]model.TaskStatus
	attempt [pageSize]uint8
	pending [pageSize]uint32
	holder  [pageSize]uint32
	fence   [pageSize]uint64
	leased  [pageSize]int64
	ended   [pageSize]int64
}

// nodePage says, for pageSize nodes, which vertex holds the node, plus one.
type nodePage struct {
	gen  uint64
	busy [pageSize]uint32
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
	// Observe says that an earlier attempt may have done its work unseen.
	Observe bool `json:"observe,omitempty"`
	// Undo says that the next attempt deletes what an earlier CREATE made:
	// its CONFIRM failed (spec/planner.md, "Retry").
	Undo bool `json:"undo,omitempty"`
	// Adopted says that the last attempt found its work done already.
	Adopted bool `json:"adopted,omitempty"`
	// Avoid is the agent that the next attempt should not go to.
	Avoid string `json:"avoid,omitempty"`
	// History has every ended attempt but a successful last one.
	History []Attempt `json:"history,omitempty"`
}

// State is the state of every vertex of a graph at one moment. It is never
// changed: an Edit makes the next one, sharing all pages it did not touch, so
// that a snapshot or a reader keeps its moment while results go on arriving.
type State struct {
	Graph *Graph
	pages []*page
	nodes []*nodePage
	notes *iradix.Tree
	// holders are the sessions that ever held a lease, by the index in pages.
	holders []Holder
	counts  [model.TaskStatuses]int
	// rest counts barriers that are not done yet.
	rest int
	// gen grows with every edit, so that an edit knows the pages it may write to.
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
	ErrNoVertex   = errors.New("the plan has no such task")
)

// NewState gives the state in which nothing has been done: vertices that wait
// for nothing are ready.
func NewState(g *Graph) *State {
	n := g.Len()
	s := &State{Graph: g, notes: iradix.New()}
	s.pages = make([]*page, (n+pageSize-1)/pageSize)
	for i := range s.pages {
		s.pages[i] = &page{}
	}
	s.nodes = make([]*nodePage, (len(g.Nodes)+pageSize-1)/pageSize)
	for i := range s.nodes {
		s.nodes[i] = &nodePage{}
	}
	for v := range n {
		s.pages[v/pageSize].pending[v%pageSize] = g.Preds[v]
		if g.Action[v] == model.Barrier {
			s.rest++
		} else {
			s.counts[model.TaskBlocked]++
		}
	}
	e := s.Edit()
	for v := range n {
		if g.Preds[v] == 0 {
			e.free(uint32(v))
		}
	}
	return e.Done()
}

// Task is one vertex's state, gathered for a reader.
type Task struct {
	Vertex   uint32
	Status   model.TaskStatus
	Attempt  int
	Fence    uint64
	Holder   Holder
	LeasedAt int64
	EndedAt  int64
	Note     *Note // nil: nothing to say
}

// Task gives the state of vertex v.
func (s *State) Task(v uint32) Task {
	p, i := s.pages[v/pageSize], v%pageSize
	t := Task{Vertex: v, Status: p.status[i], Attempt: int(p.attempt[i]), Fence: p.fence[i], LeasedAt: p.leased[i], EndedAt: p.ended[i], Note: s.Note(v)}
	if t.Attempt > 0 {
		t.Holder = s.holders[p.holder[i]]
	}
	return t
}

// Status gives the status of vertex v.
func (s *State) Status(v uint32) model.TaskStatus { return s.pages[v/pageSize].status[v%pageSize] }

// Fence gives the fence of v's latest lease.
func (s *State) Fence(v uint32) uint64 { return s.pages[v/pageSize].fence[v%pageSize] }

// Note gives what is known of v beyond its columns, or nil.
func (s *State) Note(v uint32) *Note {
	if s.notes.Len() == 0 {
		return nil
	}
	if n, ok := s.notes.Get(noteKey(v)); ok {
		return n.(*Note)
	}
	return nil
}

// Busy gives the vertex that holds a node, by the node's index.
func (s *State) Busy(node int32) (uint32, bool) {
	b := s.nodes[node/pageSize].busy[node%pageSize]
	return b - 1, b > 0
}

// Count gives how many tasks have this status.
func (s *State) Count(status model.TaskStatus) int { return s.counts[status] }

// Held counts the tasks that workers hold.
func (s *State) Held() int { return s.counts[model.TaskLeased] + s.counts[model.TaskRunning] }

// Complete says whether every vertex is done.
func (s *State) Complete() bool {
	return s.rest == 0 && s.counts[model.TaskSucceeded] == s.Graph.Len()-s.barriers()
}

func (s *State) barriers() int {
	n := s.Graph.Len()
	for _, c := range s.counts {
		n -= c
	}
	return n
}

// Leased gives the held vertices of one session, or of all where session is "".
func (s *State) Leased(session string) []uint32 {
	var out []uint32
	for pi, p := range s.pages {
		for i := range p.status {
			if v := pi*pageSize + i; v < s.Graph.Len() && p.status[i].Held() && (session == "" || s.holders[p.holder[i]].Session == session) {
				out = append(out, uint32(v))
			}
		}
	}
	return out
}

// Leasable gives the vertices that are ready or uncertain, in order of number.
func (s *State) Leasable() []uint32 {
	var out []uint32
	for pi, p := range s.pages {
		for i := range p.status {
			v := pi*pageSize + i
			if v < s.Graph.Len() && s.Graph.Action[v] != model.Barrier && (p.status[i] == model.TaskReady || p.status[i] == model.TaskUncertain) {
				out = append(out, uint32(v))
			}
		}
	}
	return out
}

func noteKey(v uint32) []byte { return binary.BigEndian.AppendUint32(nil, v) }
