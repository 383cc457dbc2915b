package plan

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"

	"github.com/coopr/coopr/engine/model"
)

// The encodings begin with a byte that names their format. Columns follow as variable-length
// integers: a plan of 14,006 tasks takes about 200 kB.
//
// Additions of a format are at its end, and an encoding uses the lowest format that can
// express it, so that older builds of a mesh can read as much as possible.
const (
	graphFormat      = 1
	graphFormatSteps = 2 // with steps
	stateFormat      = 1
	stateFormatGates = 2 // with gates, and with forced and tolerated tasks
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

func (r *reader) uint32() uint32 {
	v := r.uint()
	if v > math.MaxUint32 {
		r.fail("a number is too large")
		return 0
	}
	return uint32(v)
}

// fail ends the reading, unless it has ended already.
func (r *reader) fail(why string) {
	if r.err == nil {
		r.err = errors.New("plan: " + why)
	}
	r.b = nil
}

// count reads a length. Every element takes at least a byte, so a wrong length cannot claim
// more memory than the input has bytes.
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

// Encode encodes the graph. DecodeGraph computes ranks and predecessor counts again.
func (g *Graph) Encode() []byte {
	w := &writer{b: make([]byte, 0, 64+len(g.Nodes)*24+g.Len()*6+len(g.Succ)*3)}
	w.b = append(w.b, graphFormat)
	if g.Step != nil {
		w.b[0] = graphFormatSteps
	}
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
	if g.Step != nil {
		w.uint(uint64(g.Phases()))
		for p := range g.Phases() {
			w.uint(uint64(g.PhaseOff[p+1] - g.PhaseOff[p]))
		}
		last := int64(0)
		for _, s := range g.Step {
			w.int(int64(s) - last)
			last = int64(s)
		}
	}
	return w.b
}

// DecodeGraph decodes the result of Encode. It refuses anything but a complete, acyclic graph.
func DecodeGraph(b []byte) (*Graph, error) {
	if len(b) == 0 || b[0] < graphFormat || b[0] > graphFormatSteps {
		return nil, fmt.Errorf("plan: not a graph of format %d to %d", graphFormat, graphFormatSteps)
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
		if action > model.Run || node < None || node >= int64(len(nodes)) || service < None || service >= int64(len(services)) {
			return nil, fmt.Errorf("plan: vertex %d has an unknown action, node or service", v)
		}
		bld.Task(action, int(node), int(service))
		for range r.count() {
			to := r.int() + int64(v)
			if to < 0 || to >= int64(n) {
				return nil, fmt.Errorf("plan: the edge from vertex %d to vertex %d leaves the graph of %d vertices", v, to, n)
			}
			bld.Edge(uint32(v), uint32(to))
		}
	}
	var sizes, steps []uint32
	if b[0] >= graphFormatSteps {
		sizes, steps = make([]uint32, r.count()), make([]uint32, n)
		for i := range sizes {
			sizes[i] = r.uint32()
		}
		last := int64(0)
		for v := range steps {
			last += r.int()
			if last < 0 || last > NoStep {
				return nil, fmt.Errorf("plan: vertex %d is in step %d, which is out of range", v, last)
			}
			steps[v] = uint32(last)
		}
	}
	if r.err != nil {
		return nil, r.err
	}
	if len(r.b) > 0 {
		return nil, fmt.Errorf("plan: %d bytes follow the graph", len(r.b))
	}
	g, err := bld.Build()
	if err != nil || steps == nil {
		return g, err
	}
	return g.WithSteps(steps, sizes)
}

// Encode encodes the state without its graph.
func (s *State) Encode() []byte {
	w := &writer{b: []byte{stateFormat}}
	holders := make([]Holder, s.bySession.Len())
	for i := range holders {
		holders[i] = s.holder(uint32(i))
	}
	w.uint(uint64(len(holders)))
	for _, h := range holders {
		w.text(h.Session)
		w.text(h.Agent)
	}
	n := s.Graph.Len()
	w.uint(uint64(n))
	var tolerated, forced []uint32
	none := &runs{}
	s.tasks.each(func(at uint32, t *tasks) {
		r := t.runs
		if r == nil {
			r = none
		}
		for i := range min(taskLeaf, n-int(at*taskLeaf)) {
			w.b = append(w.b, byte(t.status[i]), t.attempt[i])
			if t.attempt[i] > 0 {
				w.uint(uint64(r.holder[i]))
				w.uint(r.fence[i])
				w.int(r.leased[i])
			}
			w.int(r.ended[i])
		}
		tolerated, forced = ones(at, t.tolerated, tolerated), ones(at, t.forced, forced)
	})
	w.notes(s)
	if s.gates.shut > 0 || len(tolerated) > 0 || len(forced) > 0 {
		w.b[0] = stateFormatGates
		w.set(tolerated)
		w.set(forced)
		w.gates(&s.gates)
	}
	return w.b
}

// notes writes the notes in the order of their vertices.
func (w *writer) notes(s *State) {
	count := uint64(0)
	s.notes.each(func(_ uint32, l *[taskLeaf]*Note) {
		for _, n := range l {
			if n != nil {
				count++
			}
		}
	})
	w.uint(count)
	last := uint32(0)
	s.notes.each(func(at uint32, l *[taskLeaf]*Note) {
		for i, n := range l {
			if n != nil {
				v := at*taskLeaf + uint32(i)
				w.uint(uint64(v - last))
				last = v
				w.note(n)
			}
		}
	})
}

// The flags of a note.
const (
	noteObserve = 1 << iota
	noteUndo
	noteAdopted
	noteSkip
)

func (w *writer) note(n *Note) {
	w.uint(uint64(n.Failures))
	w.uint(uint64(n.Lost))
	w.int(n.RetryAt)
	flags := byte(0)
	for _, f := range [...]struct {
		set bool
		bit byte
	}{{n.Observe, noteObserve}, {n.Undo, noteUndo}, {n.Adopted, noteAdopted}, {n.Skip, noteSkip}} {
		if f.set {
			flags |= f.bit
		}
	}
	w.b = append(w.b, flags)
	w.text(n.Avoid)
	w.uint(uint64(len(n.History)))
	for _, a := range n.History {
		w.uint(uint64(a.Number))
		w.uint(a.Fence)
		w.text(a.Agent)
		w.text(a.Outcome)
		w.text(a.Message)
		w.text(a.LogTail)
		w.int(a.Leased)
		w.int(a.Ended)
	}
}

// ones returns the set bits of a column of bits, as vertices.
func ones(at uint32, word uint16, into []uint32) []uint32 {
	for ; word != 0; word &= word - 1 {
		into = append(into, at*taskLeaf+uint32(bits.TrailingZeros16(word)))
	}
	return into
}

// set writes ascending numbers.
func (w *writer) set(numbers []uint32) {
	w.uint(uint64(len(numbers)))
	last := uint32(0)
	for _, n := range numbers {
		w.uint(uint64(n - last))
		last = n
	}
}

func (w *writer) gates(g *gates) {
	w.uint(uint64(g.shut))
	for at := range g.levels {
		g.levels[at].each(func(page uint32, l *[gateLeaf]Gate) {
			for i, gate := range l {
				if gate != 0 {
					w.b = append(w.b, byte(at), byte(gate))
					w.uint(uint64(page*gateLeaf + uint32(i)))
				}
			}
		})
	}
}

// DecodeState decodes the result of Encode, for the same graph.
func DecodeState(g *Graph, b []byte) (*State, error) {
	if len(b) == 0 || b[0] < stateFormat || b[0] > stateFormatGates {
		return nil, fmt.Errorf("plan: not a state of format %d to %d", stateFormat, stateFormatGates)
	}
	r := &reader{b: b[1:]}
	holders := make([]Holder, r.count())
	for i := range holders {
		holders[i] = Holder{Session: r.text(), Agent: r.text()}
	}
	if n := r.uint(); r.err == nil && n != uint64(g.Len()) {
		return nil, fmt.Errorf("plan: the state has %d vertices, its graph %d", n, g.Len())
	}
	e := &Edit{next: blank(g)}
	for _, h := range holders {
		e.index(h)
	}
	if r.err == nil && e.next.bySession.Len() != len(holders) {
		return nil, errors.New("plan: two holders have one session")
	}
	for v := uint32(0); int(v) < g.Len() && r.err == nil; v++ {
		if err := e.read(r, v, len(holders)); err != nil {
			return nil, err
		}
	}
	e.notes(r)
	if b[0] >= stateFormatGates {
		e.marks(r)
		e.gates(r)
	}
	if r.err != nil {
		return nil, r.err
	}
	if len(r.b) > 0 {
		return nil, fmt.Errorf("plan: %d bytes follow the state", len(r.b))
	}
	e.count()
	return e.Done(), nil
}

// read reads the columns of one vertex.
func (e *Edit) read(r *reader, v uint32, holders int) error {
	if len(r.b) < 2 {
		return errShort
	}
	t, i := e.tasks(v)
	t.status[i], t.attempt[i] = model.TaskStatus(r.b[0]), r.b[1]
	r.b = r.b[2:]
	if t.attempt[i] > 0 {
		run, _ := e.runs(v)
		run.holder[i], run.fence[i], run.leased[i] = r.uint32(), r.uint(), r.int()
		if r.err == nil && int(run.holder[i]) >= holders {
			return fmt.Errorf("plan: vertex %d has a holder that does not exist", v)
		}
	}
	if ended := r.int(); ended != 0 {
		run, _ := e.runs(v)
		run.ended[i] = ended
	}
	status := t.status[i]
	if int(status) >= model.TaskStatuses || (status.Held() && t.attempt[i] == 0) {
		return fmt.Errorf("plan: vertex %d has an invalid status", v)
	}
	if e.next.Graph.Action[v] == model.Barrier {
		if status != model.TaskBlocked && status != model.TaskSucceeded {
			return fmt.Errorf("plan: barrier %d has an invalid status", v)
		}
		return nil
	}
	e.next.counts[model.TaskBlocked]--
	e.next.counts[status]++
	if status.Held() {
		e.setBusy(v, true)
	}
	return nil
}

// notes reads the notes.
func (e *Edit) notes(r *reader) {
	v := uint64(0)
	for i := range r.count() {
		d := r.uint()
		if v += d; v >= uint64(e.next.Graph.Len()) || i > 0 && d == 0 {
			r.fail("a note is about a vertex that does not exist, or the second about one")
		}
		n := r.note()
		if r.err != nil {
			return
		}
		e.next.notes.own(uint32(v)/taskLeaf, 0)[v%taskLeaf] = n
	}
}

func (r *reader) note() *Note {
	n := &Note{Failures: r.small(), Lost: r.small(), RetryAt: r.int()}
	if len(r.b) == 0 || r.b[0]&^(noteObserve|noteUndo|noteAdopted|noteSkip) != 0 {
		r.fail("a note has flags that do not exist")
		return n
	}
	n.Observe, n.Undo, n.Adopted = r.b[0]&noteObserve != 0, r.b[0]&noteUndo != 0, r.b[0]&noteAdopted != 0
	n.Skip = r.b[0]&noteSkip != 0
	r.b = r.b[1:]
	n.Avoid = r.text()
	for range r.count() {
		n.History = append(n.History, Attempt{
			Number:  r.small(),
			Fence:   r.uint(),
			Agent:   r.text(),
			Outcome: r.text(),
			Message: r.text(),
			LogTail: r.text(),
			Leased:  r.int(),
			Ended:   r.int(),
		})
		if r.err != nil {
			return n
		}
	}
	return n
}

// small reads a number that fits an int on every platform.
func (r *reader) small() int { return int(r.uint32()) }

// marks reads the tolerated and the forced vertices.
func (e *Edit) marks(r *reader) {
	for _, tolerated := range []bool{true, false} {
		v := uint64(0)
		for range r.count() {
			if v += r.uint(); v >= uint64(e.next.Graph.Len()) || r.err != nil {
				r.fail("a mark is on a vertex that does not exist")
				return
			}
			t, i := e.tasks(uint32(v))
			switch status := t.status[i]; {
			case tolerated && (status == model.TaskFailed || status == model.TaskCancelled) && t.tolerated>>i&1 == 0:
				t.tolerated |= 1 << i
				e.next.tolerated++
			case !tolerated && status == model.TaskSucceeded && e.next.Graph.Action[v] != model.Barrier:
				t.forced |= 1 << i
			default:
				r.fail("a mark is on a vertex that cannot have it")
				return
			}
		}
	}
}

func (e *Edit) gates(r *reader) {
	for range r.count() {
		if len(r.b) < 2 {
			r.fail("the gates end too soon")
			return
		}
		p, gate := Part{level: level(r.b[0])}, Gate(r.b[1])
		r.b = r.b[2:]
		p.index = r.uint32()
		if r.err != nil || p.level > levelStep || gate == 0 || gate&^allGates != 0 ||
			(p.level == levelWhole && p.index > 0) || e.next.Graph.Has(p) != nil {
			r.fail("a gate is where none can be")
			return
		}
		e.next.gates.set(p, gate, 0)
	}
}

// count derives from the statuses how many vertices each vertex waits for.
func (e *Edit) count() {
	for u := range e.next.Graph.Len() {
		if e.done(uint32(u)) {
			for _, w := range e.next.Graph.Next(u) {
				t, i := e.tasks(w)
				t.pending[i]--
			}
		}
	}
}
