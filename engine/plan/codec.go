package plan

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	iradix "github.com/hashicorp/go-immutable-radix"

	"github.com/coopr/coopr/engine/model"
)

// The encodings begin with a byte that names their format. Columns follow as
// variable-length integers: a plan of 14,006 tasks takes about 200 kB.
const (
	graphFormat = 1
	stateFormat = 1
)

var errShort = errors.New("plan: the encoding ends too soon")

type writer struct{ b []byte }

func (w *writer) uint(v uint64) { w.b = binary.AppendUvarint(w.b, v) }
func (w *writer) int(v int64)   { w.b = binary.AppendVarint(w.b, v) }
func (w *writer) text(s string) { w.uint(uint64(len(s))); w.b = append(w.b, s...) }

type reader struct {
	b   []byte
	err error
}

func (r *reader) uint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.err = errShort
		r.b = nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) int() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.err = errShort
		r.b = nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

// count reads a length; every element takes at least a byte, so that a wrong
// length cannot ask for more memory than the input has bytes.
func (r *reader) count() int {
	n := r.uint()
	if n > uint64(len(r.b)) {
		r.err = errShort
		r.b = nil
		return 0
	}
	return int(n)
}

func (r *reader) text() string {
	n := r.count()
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}

// Encode writes the graph. Ranks and predecessor counts are computed again by
// DecodeGraph.
func (g *Graph) Encode() []byte {
	w := &writer{b: make([]byte, 0, 64+len(g.Nodes)*24+g.Len()*6+len(g.Succ)*3)}
	w.b = append(w.b, graphFormat)
	for _, names := range [][]string{g.Nodes, g.Services} {
		w.uint(uint64(len(names)))
		for _, n := range names {
			w.text(n)
		}
	}
	w.uint(uint64(g.Len()))
	last := int64(0)
	for v := range g.Len() {
		w.b = append(w.b, byte(g.Action[v]))
		w.int(int64(g.Node[v]) - last)
		last = int64(g.Node[v])
		w.int(int64(g.Service[v]))
		next := g.Next(v)
		w.uint(uint64(len(next)))
		for _, to := range next {
			w.int(int64(to) - int64(v))
		}
	}
	return w.b
}

// DecodeGraph reads what Encode wrote. It refuses anything that is not a
// whole, acyclic graph.
func DecodeGraph(b []byte) (*Graph, error) {
	if len(b) == 0 || b[0] != graphFormat {
		return nil, fmt.Errorf("plan: not a graph of format %d", graphFormat)
	}
	r := &reader{b: b[1:]}
	names := func() []string {
		out := make([]string, r.count())
		for i := range out {
			out[i] = r.text()
		}
		return out
	}
	nodes, services := names(), names()
	bld := NewBuilder(nodes, services)
	n := r.count()
	bld.Grow(n, n)
	last := int64(0)
	for v := 0; v < n && r.err == nil; v++ {
		if len(r.b) == 0 {
			return nil, errShort
		}
		action := model.Action(r.b[0])
		r.b = r.b[1:]
		node := r.int() + last
		last = node
		service := r.int()
		if action > model.Delete || node < None || node >= int64(len(nodes)) || service < None || service >= int64(len(services)) {
			return nil, fmt.Errorf("plan: vertex %d names what the graph does not have", v)
		}
		bld.Task(action, int(node), int(service))
		for range r.count() {
			to := r.int() + int64(v)
			if to < 0 || to >= int64(n) {
				return nil, fmt.Errorf("plan: an edge leads from %d to %d of %d", v, to, n)
			}
			bld.Edge(uint32(v), uint32(to))
		}
	}
	if r.err != nil {
		return nil, r.err
	}
	if len(r.b) > 0 {
		return nil, fmt.Errorf("plan: %d bytes follow the graph", len(r.b))
	}
	return bld.Build()
}

// Encode writes the state without its graph.
func (s *State) Encode() ([]byte, error) {
	w := &writer{b: []byte{stateFormat}}
	holders, err := json.Marshal(s.holders)
	if err != nil {
		return nil, err
	}
	w.text(string(holders))
	n := s.Graph.Len()
	w.uint(uint64(n))
	for v := range n {
		p, i := s.pages[v/pageSize], v%pageSize
		w.b = append(w.b, byte(p.status[i]), p.attempt[i])
		w.uint(uint64(p.pending[i]))
		if p.attempt[i] > 0 {
			w.uint(uint64(p.holder[i]))
			w.uint(p.fence[i])
			w.int(p.leased[i])
		}
		w.int(p.ended[i])
	}
	notes := map[uint32]*Note{}
	s.notes.Root().Walk(func(k []byte, v any) bool {
		notes[binary.BigEndian.Uint32(k)] = v.(*Note)
		return false
	})
	b, err := json.Marshal(notes)
	if err != nil {
		return nil, err
	}
	w.text(string(b))
	return w.b, nil
}

// DecodeState reads what Encode wrote, for the same graph.
func DecodeState(g *Graph, b []byte) (*State, error) {
	if len(b) == 0 || b[0] != stateFormat {
		return nil, fmt.Errorf("plan: not a state of format %d", stateFormat)
	}
	r := &reader{b: b[1:]}
	s := NewState(g)
	holders := r.text()
	if n := r.uint(); r.err == nil && n != uint64(g.Len()) {
		return nil, fmt.Errorf("plan: the state has %d vertices, its graph %d", n, g.Len())
	}
	if r.err == nil {
		r.err = json.Unmarshal([]byte(holders), &s.holders)
	}
	s.counts, s.rest = [model.TaskStatuses]int{}, 0
	s.nodes = make([]*nodePage, len(s.nodes))
	for i := range s.nodes {
		s.nodes[i] = &nodePage{}
	}
	s.pages = make([]*page, len(s.pages))
	for i := range s.pages {
		s.pages[i] = &page{}
	}
	for v := 0; v < g.Len() && r.err == nil; v++ {
		if len(r.b) < 2 {
			return nil, errShort
		}
		p, i := s.pages[v/pageSize], v%pageSize
		p.status[i], p.attempt[i] = model.TaskStatus(r.b[0]), r.b[1]
		r.b = r.b[2:]
		p.pending[i] = uint32(r.uint())
		if p.attempt[i] > 0 {
			p.holder[i], p.fence[i], p.leased[i] = uint32(r.uint()), r.uint(), r.int()
		}
		p.ended[i] = r.int()
		if int(p.status[i]) >= model.TaskStatuses || (p.attempt[i] > 0 && int(p.holder[i]) >= len(s.holders)) {
			return nil, fmt.Errorf("plan: vertex %d has a status or a holder that does not exist", v)
		}
		if g.Action[v] == model.Barrier {
			if p.status[i] != model.TaskSucceeded {
				s.rest++
			}
			continue
		}
		s.counts[p.status[i]]++
		if n := g.Node[v]; n >= 0 && p.status[i].Held() {
			s.nodes[n/pageSize].busy[n%pageSize] = uint32(v) + 1
		}
	}
	notes := map[uint32]*Note{}
	text := r.text()
	if r.err != nil {
		return nil, r.err
	}
	if err := json.Unmarshal([]byte(text), &notes); err != nil {
		return nil, fmt.Errorf("plan: notes: %w", err)
	}
	txn := iradix.New().Txn()
	for v, n := range notes {
		txn.Insert(noteKey(v), n)
	}
	s.notes = txn.Commit()
	return s, nil
}
