package search

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/coopr/coopr/engine/change/object"
)

// Config is the configuration of a search. The counts limit how often each fault happens in
// one run.
type Config struct {
	Site *object.Site
	// World is the initial state of every object.
	World                             []object.State
	Losses, Doubles, Failures, Deaths int
	// Limit is the highest number of states; 0 for 2,000,000.
	Limit int
}

// Result is the result of a search.
type Result struct {
	States, Steps int
	// Problem is the first violation found, or "". Trace is a shortest way to it.
	Problem string
	Trace   []string
	// Cut is true if the limit was reached.
	Cut bool
}

// state is the complete state of a site at one moment.
type state struct {
	objects []*object.Object
	world   []object.State
	from    []object.State // initial states of running transitions
	net     []object.Message
	budget  [4]uint8
}

const (
	lose = iota
	double
	fail
	die
)

type searcher struct {
	cfg   Config
	seen  map[[16]byte]int32
	queue [][]byte
	from  []int32
	label []string
	edges []edge
	rest  []int32 // states at rest
	res   Result
	fx    object.Effects
	here  int32

	labels *relabeler
}

type edge struct {
	from, to int32
	moved    bool // a transition succeeded
}

// Run searches breadth first.
func Run(cfg Config) Result {
	if cfg.Limit == 0 {
		cfg.Limit = 2_000_000
	}
	s := &searcher{cfg: cfg, seen: map[[16]byte]int32{}, labels: newRelabeler(len(cfg.Site.Defs))}
	st := &state{world: slices.Clone(cfg.World), from: make([]object.State, len(cfg.World)),
		budget: [4]uint8{uint8(cfg.Losses), uint8(cfg.Doubles), uint8(cfg.Failures), uint8(cfg.Deaths)}}
	for i := range cfg.Site.Defs {
		st.objects = append(st.objects, object.New(&cfg.Site.Defs[i]))
	}
	for i := range st.objects {
		s.give(st, i, object.Event{What: object.Started, Inc: 1})
	}
	s.reach(st, -1, "start", false)
	for i := 0; i < len(s.queue) && s.res.Problem == ""; i++ {
		if len(s.seen) > cfg.Limit {
			s.res.Cut = true
			break
		}
		s.expand(int32(i))
		s.queue[i] = nil
	}
	s.res.States = len(s.seen)
	if s.res.Problem == "" && !s.res.Cut {
		s.judge()
	}
	return s.res
}

func (s *searcher) problem(at int32, format string, args ...any) {
	if s.res.Problem != "" {
		return
	}
	s.res.Problem = fmt.Sprintf(format, args...)
	for ; at >= 0; at = s.from[at] {
		s.res.Trace = append(s.res.Trace, s.label[at])
	}
	slices.Reverse(s.res.Trace)
}

// give passes an event to an object and adds its messages to the network.
func (s *searcher) give(st *state, i int, ev object.Event) {
	s.fx.Reset()
	// A request over an unknown link is impossible, because there is one generation only.
	if err := st.objects[i].Handle(&ev, 0, &s.fx); err != nil {
		s.problem(s.here, "%v", err)
	}
	st.net = append(st.net, s.fx.Messages...)
	for _, a := range s.fx.Acts {
		if a.What == object.Run {
			s.begin(st, i, a.Transition)
		}
	}
}

// begin checks S1 and S2 against the state of the world.
func (s *searcher) begin(st *state, i int, t object.Transition) {
	d := st.objects[i].Def()
	st.from[i] = t.From
	relied := func(who int, d *object.Def, t object.Transition, visit func(p object.ID, in object.State)) {
		var need func(p object.ID, in object.State)
		seen := map[object.ID]bool{}
		need = func(p object.ID, in object.State) {
			if !seen[p] {
				seen[p] = true
				visit(p, in)
				s.cfg.Site.Defs[p].Granting(in, need)
			}
		}
		d.Moving(t.From, t.To, need)
	}
	relied(i, d, t, func(p object.ID, in object.State) {
		if st.world[p] != in || st.objects[p].Phase() == object.Moving {
			s.problem(
				s.here,
				"S1: %s %s while %s is not in %s",
				d.Name,
				d.Type.Actions[t.Action],
				s.cfg.Site.Defs[p].Name,
				s.cfg.Site.Defs[p].Type.States[in],
			)
		}
	})
	for j, o := range st.objects {
		if j == i || o.Phase() != object.Moving {
			continue
		}
		u := o.Def().Type.Move(st.from[j], o.Status().To)
		relied(j, o.Def(), u, func(p object.ID, _ object.State) {
			if int(p) == i {
				s.problem(s.here, "S2: %s %s while %s relies on it", d.Name, d.Type.Actions[t.Action], o.Def().Name)
			}
		})
	}
}

// expand visits everything that can happen next.
func (s *searcher) expand(at int32) {
	s.here = at
	now := s.decode(s.queue[at])
	step := func(label string, moved bool, do func(*state)) {
		if s.res.Problem != "" {
			return
		}
		st := s.decode(s.queue[at])
		do(st)
		s.reach(st, at, label, moved)
	}
	name := func(id object.ID) string { return s.cfg.Site.Defs[id].Name }
	for k := range now.net {
		if k > 0 && now.net[k] == now.net[k-1] {
			continue
		}
		m := now.net[k]
		what := fmt.Sprintf("%s %s→%s", m.Kind, name(m.From), name(m.To))
		step(what, false, func(st *state) {
			st.net = slices.Delete(st.net, k, k+1)
			s.give(st, int(m.To), object.Event{What: object.Received, Message: m})
		})
		if now.budget[lose] > 0 {
			step(what+" is lost", false, func(st *state) {
				st.budget[lose]--
				st.net = slices.Delete(st.net, k, k+1)
			})
		}
		if now.budget[double] > 0 {
			step(what+" comes twice", false, func(st *state) {
				st.budget[double]--
				s.give(st, int(m.To), object.Event{What: object.Received, Message: m})
			})
		}
	}
	for i, o := range now.objects {
		n := name(object.ID(i))
		switch o.Phase() {
		case object.Checking:
			step(n+" is checked", false, func(st *state) {
				s.give(st, i, object.Event{What: object.Checked, State: st.world[i]})
			})
		case object.Moving:
			action := o.Def().Type.Actions[o.Def().Type.Move(now.from[i], o.Status().To).Action]
			step(n+" "+action+" ends", true, func(st *state) {
				st.world[i] = o.Status().To
				s.give(st, i, object.Event{What: object.Done, OK: true})
			})
			if now.budget[fail] > 0 {
				step(n+" "+action+" fails", false, func(st *state) {
					st.budget[fail]--
					s.give(st, i, object.Event{What: object.Done})
				})
			}
		case object.Backoff:
			step(n+" has waited", false, func(st *state) {
				s.give(st, i, object.Event{What: object.Alarm})
			})
		}
		if now.budget[die] > 0 {
			for _, effect := range []bool{false, true} {
				if effect && o.Phase() != object.Moving {
					continue
				}
				step(fmt.Sprintf("%s's agent fails (its act had its effect: %v)", n, effect), false, func(st *state) {
					st.budget[die]--
					if effect {
						st.world[i] = o.Status().To
					}
					s.give(st, i, object.Event{What: object.Started, Inc: o.Incarnation() + 1})
				})
			}
		}
		// Time passes only when nothing else can happen.
		if len(now.net) == 0 && o.Waiting() {
			step(n+" asks again", false, func(st *state) { s.give(st, i, object.Event{What: object.Nudge}) })
		}
	}
	if len(now.net) == 0 && !slices.ContainsFunc(now.objects, func(o *object.Object) bool { return !o.AtRest() }) {
		s.rest = append(s.rest, at)
	}
}

// reach records a state.
func (s *searcher) reach(st *state, from int32, label string, moved bool) {
	s.res.Steps++
	b := s.encode(st)
	sum := sha256.Sum256(b)
	key := [16]byte(sum[:16])
	to, known := s.seen[key]
	if !known {
		to = int32(len(s.queue))
		s.seen[key] = to
		s.queue = append(s.queue, b)
		s.from = append(s.from, from)
		s.label = append(s.label, label)
	}
	if from >= 0 {
		s.edges = append(s.edges, edge{from, to, moved})
	}
}

// judge searches the whole graph for deadlocks and livelocks.
func (s *searcher) judge() {
	n := len(s.queue)
	back := make([][]int32, n)
	for _, e := range s.edges {
		back[e.to] = append(back[e.to], e.from)
	}
	good := make([]bool, n)
	todo := slices.Clone(s.rest)
	for _, v := range todo {
		good[v] = true
	}
	for len(todo) > 0 {
		v := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, u := range back[v] {
			if !good[u] {
				good[u] = true
				todo = append(todo, u)
			}
		}
	}
	if i := slices.Index(good, false); i >= 0 {
		s.problem(int32(i), "never at rest again")
		return
	}
	// A transition on a cycle can happen for ever.
	group := components(n, s.edges)
	for _, e := range s.edges {
		if e.moved && group[e.from] == group[e.to] {
			s.problem(e.from, "transitions for ever")
			return
		}
	}
}

// encode encodes a state with relabelled epochs and incarnations.
func (s *searcher) encode(st *state) []byte {
	s.labels.relabel(st)
	slices.SortFunc(st.net, compare)
	b := make([]byte, 0, 256)
	for _, o := range st.objects {
		b = o.Append(b)
	}
	for i := range st.world {
		b = append(b, byte(st.world[i]), byte(st.from[i]))
	}
	b = append(b, st.budget[:]...)
	for i := range st.net {
		b = message(b, &st.net[i])
	}
	return b
}

// compare defines some fixed order of messages.
func compare(a, b object.Message) int {
	var x, y [messageSize]byte
	return bytes.Compare(message(x[:0], &a), message(y[:0], &b))
}

const messageSize = 26

func message(b []byte, m *object.Message) []byte {
	flags := byte(0)
	for i, v := range []bool{m.Urgent, m.Held, m.Eager, m.Lazy} {
		if v {
			flags |= 1 << i
		}
	}
	for _, v := range []uint32{uint32(m.From), uint32(m.To), m.FromInc, m.ToInc, m.Epoch} {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	return append(b, byte(m.Kind), byte(m.State), flags, 0, 0, 0)
}

func (s *searcher) decode(b []byte) *state {
	n := len(s.cfg.Site.Defs)
	st := &state{objects: make([]*object.Object, n), world: make([]object.State, n), from: make([]object.State, n)}
	for i := range n {
		o, rest, err := object.Decode(&s.cfg.Site.Defs[i], b)
		if err != nil {
			panic(err) // it was encoded a moment ago
		}
		st.objects[i], b = o, rest
	}
	for i := range n {
		st.world[i], st.from[i] = object.State(b[2*i]), object.State(b[2*i+1])
	}
	b = b[2*n:]
	copy(st.budget[:], b)
	for b = b[4:]; len(b) > 0; b = b[messageSize:] {
		u := func(i int) uint32 { return binary.BigEndian.Uint32(b[4*i:]) }
		f := b[22]
		st.net = append(st.net, object.Message{From: object.ID(u(0)), To: object.ID(u(1)), FromInc: u(2), ToInc: u(3), Epoch: u(4),
			Kind: object.Kind(b[20]), State: object.State(b[21]), Urgent: f&1 != 0, Held: f&2 != 0, Eager: f&4 != 0, Lazy: f&8 != 0})
	}
	return st
}

// relabeler renumbers the epochs of each link and the incarnations of each object from 1
// without gaps; 0 stays 0. It reuses its memory.
type relabeler struct {
	objects int
	epochs  [][]uint32 // by dependent and provider
	incs    [][]uint32 // by object
}

func newRelabeler(objects int) *relabeler {
	return &relabeler{objects, make([][]uint32, objects*objects), make([][]uint32, objects)}
}

func (r *relabeler) link(dependent, provider object.ID) *[]uint32 {
	return &r.epochs[int(dependent)*r.objects+int(provider)]
}

func (r *relabeler) relabel(st *state) {
	for _, lists := range [][][]uint32{r.epochs, r.incs} {
		for i := range lists {
			lists[i] = append(lists[i][:0], 0)
		}
	}
	note := func(list *[]uint32, v uint32) uint32 {
		if i, known := slices.BinarySearch(*list, v); !known {
			*list = slices.Insert(*list, i, v)
		}
		return v
	}
	place := func(list *[]uint32, v uint32) uint32 {
		i, _ := slices.BinarySearch(*list, v)
		return uint32(i)
	}
	for _, to := range []func(*[]uint32, uint32) uint32{note, place} {
		epoch := func(d, p object.ID, e uint32) uint32 { return to(r.link(d, p), e) }
		inc := func(id object.ID, n uint32) uint32 { return to(&r.incs[id], n) }
		for _, o := range st.objects {
			o.Relabel(epoch, inc)
		}
		for i := range st.net {
			m := &st.net[i]
			m.FromInc, m.ToInc = inc(m.From, m.FromInc), inc(m.To, m.ToInc)
			switch m.Kind {
			case object.Grant, object.Recall:
				m.Epoch = epoch(m.To, m.From, m.Epoch)
			case object.Resync:
			default:
				m.Epoch = epoch(m.From, m.To, m.Epoch)
			}
		}
	}
}

// components numbers the strongly connected components (Kosaraju's algorithm).
func components(n int, edges []edge) []int32 {
	next, back := make([][]int32, n), make([][]int32, n)
	for _, e := range edges {
		next[e.from] = append(next[e.from], e.to)
		back[e.to] = append(back[e.to], e.from)
	}
	var order []int32
	state := make([]int, n) // number of successors visited so far, plus 1
	for root := range n {
		if state[root] != 0 {
			continue
		}
		stack := []int32{int32(root)}
		state[root] = 1
		for len(stack) > 0 {
			v := stack[len(stack)-1]
			if i := state[v] - 1; i < len(next[v]) {
				state[v]++
				if u := next[v][i]; state[u] == 0 {
					state[u] = 1
					stack = append(stack, u)
				}
				continue
			}
			order = append(order, v)
			stack = stack[:len(stack)-1]
		}
	}
	group := make([]int32, n)
	for i := range group {
		group[i] = -1
	}
	for i := n - 1; i >= 0; i-- {
		if group[order[i]] >= 0 {
			continue
		}
		todo := []int32{order[i]}
		group[order[i]] = order[i]
		for len(todo) > 0 {
			v := todo[len(todo)-1]
			todo = todo[:len(todo)-1]
			for _, u := range back[v] {
				if group[u] < 0 {
					group[u] = order[i]
					todo = append(todo, u)
				}
			}
		}
	}
	return group
}
