package lease_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coopr/coopr/engine/lease"
)

// The search visits every state that a small mesh can reach, and judges each: two agents, one task, a leader
// and one that was deposed, three entries on their way to the log, and every order in which messages,
// entries, answers, losses, crashes, elections and the time can come, as often as they like. What is
// decided is decided by the rules of package lease, which the state, the dispatcher and the worker call.
//
// Four things hold. A worker works only under a valid lease; so no two agents work on one task, and no
// session ends while its worker works. The state accepts reports of valid leases only. A lease of a worker
// that is connected reaches it. A session without a stream can soon be ended, whatever terms follow.
//
// Times are ages that stop where they mean nothing more, terms and fences are only "this one" or "an
// earlier one", and hellos only "newer" or "older" than the last. Therefore the states are finite.
//
// Not searched are clocks that differ, orders to cancel, how a leader that slept counts silence (Checks), how
// an agent gets in after a refusal (Next), and the removal of an agent whose session is open.

// config is what is searched. Times are in ticks of the model.
type config struct {
	rules
	ttl, grace int
	deposed    int  // ticks for which a deposed leader goes on, not counting those for which it sleeps
	agents     int  // that take part
	entries    int  // that may be on their way to the log
	lasting    bool // nobody else is elected
	untidy     bool // keep in the states what makes no difference
}

// space returns what is searched with the rules that run.
func space(agents, ttl, grace, deposed int) config {
	return config{rules: today(lease.Timing{TTL: time.Duration(ttl) * tick, Grace: time.Duration(grace) * tick}),
		ttl: ttl, grace: grace, deposed: deposed, agents: agents, entries: 3}
}

// search visits every state, breadth first.
type search struct {
	cfg     config
	numbers map[agent]uint32
	forms   []agent
	known   map[packed]struct{}
	visited []visit
	taken   map[string]int // steps, by name
	waited  uint8
	problem string   // the first that was found
	trace   []string // a shortest way to it

	// The state that is expanded, and the step that is being taken from it.
	here  int32
	at    state
	next  state
	what  string
	wrong string
}

// visit is a visited state, and the step that first led to it.
type visit struct {
	state   packed
	from    int32
	what    string
	who     uint8
	swapped bool // the agents have changed their names after the step
}

// worksWithout is wrong with a worker that begins a task or goes on with it.
const worksWithout = "a worker works without a valid lease"

// nobody stands for an agent in steps that are not about one.
const nobody = 2

func run(c config) *search {
	s := &search{cfg: c, numbers: map[agent]uint32{}, known: map[packed]struct{}{}, taken: map[string]int{}, here: -1}
	for i := range s.at.agents {
		s.at.agents[i].left = never
	}
	s.step(nobody, "start", func(*state, *agent) {})
	for i := 0; i < len(s.visited) && s.problem == ""; i++ {
		s.here, s.at = int32(i), s.unpack(s.visited[i].state)
		s.expand()
	}
	return s
}

// step takes a step from the state that is expanded, judges the state that it leads to, and notes it if it
// is new.
func (s *search) step(who uint8, what string, change func(*state, *agent)) {
	if s.problem != "" {
		return
	}
	n := &s.next
	*n, s.what, s.wrong = s.at, what, ""
	change(n, &n.agents[who%nobody])
	if s.tidy(n); s.here >= 0 && s.wrong == "" && *n == s.at {
		return // nothing has changed
	}
	s.taken[s.what]++
	for i := range n.agents {
		s.waited = max(s.waited, n.agents[i].waited)
	}
	if s.wrong == "" {
		s.wrong = s.judge(n)
	}
	p, swapped := s.pack(n)
	v := visit{p, s.here, s.what, who, swapped}
	if s.wrong != "" {
		s.problem, s.trace = s.wrong, s.way(v)
		return
	}
	if _, known := s.known[p]; !known {
		s.known[p] = struct{}{}
		s.visited = append(s.visited, v)
	}
}

// judge returns what is wrong with a state, or "".
func (s *search) judge(n *state) string {
	for i := range n.agents {
		a := &n.agents[i]
		mine := n.task == uint8(i)+1
		switch {
		case a.does == working && !a.current && (a.left == never || s.cfg.inTouch(now, a.until())):
			return worksWithout
		case mine && a.session == none:
			return "a task is leased in a session that is over"
		case mine && a.stream == inside && a.talks() && !(a.does != nothing && a.current) && a.parcels&valid == 0 &&
			a.log[reporting] == 0:
			return "a lease does not reach its worker"
		case int(a.waited) > 3*s.cfg.ttl+2*s.cfg.grace-3:
			// The leader of the session waits for the TTL, and each voter for the TTL and the grace, both for less
			// than a tick more when the next one leads.
			return "the session of an agent without a stream goes on for ever"
		}
	}
	return ""
}

// way returns the steps to a state.
func (s *search) way(v visit) (steps []string) {
	list := []visit{v}
	for ; v.from >= 0; list = append(list, v) {
		v = s.visited[v.from]
	}
	slices.Reverse(list)
	swapped := false
	for _, v := range list[1:] {
		switch {
		case v.who == nobody:
			steps = append(steps, v.what)
		case swapped:
			steps = append(steps, fmt.Sprintf("%c: %s", 'B'-v.who, v.what))
		default:
			steps = append(steps, fmt.Sprintf("%c: %s", 'A'+v.who, v.what))
		}
		swapped = swapped != v.swapped
	}
	return steps
}

// TestSearch shows that nothing is wrong in any state: of two agents, of one agent in finer time, where a
// deposed leader goes on for two fifths of the TTL, and of one agent without what keeps the states few.
func TestSearch(t *testing.T) {
	untidy := space(1, 2, 1, 0)
	untidy.untidy = true
	spaces := map[string]config{"one agent, finer time": space(1, 5, 5, 2), "one agent, untidy": untidy}
	if !testing.Short() {
		spaces["two agents"] = space(2, 2, 1, 0)
	}
	for name, c := range spaces {
		t.Run(name, func(t *testing.T) {
			s := run(c)
			t.Logf("%d states, a session was kept for %d ticks at most", len(s.visited), s.waited)
			if s.problem != "" {
				t.Fatalf("%s\n%s", s.problem, strings.Join(s.trace, "\n"))
			}
			for _, what := range []string{
				"begins the task", "cancels its tasks", "report is committed", "returns a task", "drops a task",
				"hello with a lease is committed", "older hello is refused", "is removed",
				"lease in a session that is over is refused", "report of a lease that is over is refused",
				"end of a session of an earlier term is committed", "leaves, and its session is to end",
				"the deposed leader resumes", "the other voter sees the end of a term", "the other voter starts again",
			} {
				if s.taken[what] == 0 {
					t.Errorf("never happens: %s", what)
				}
			}
			if (s.taken["lease is refused"] == 0) != (c.agents == 1) {
				t.Error("the task is leased to one agent while the other has it, or never tried")
			}
		})
	}
}

// TestSearchFindsBrokenRules breaks each rule in a way that was a bug once, or that is a likely mistake.
func TestSearchFindsBrokenRules(t *testing.T) {
	const (
		works = worksWithout
		never = "a lease does not reach its worker"
		hangs = "the session of an agent without a stream goes on for ever"
	)
	timing := lease.Timing{TTL: 2 * tick, Grace: tick}
	always := func(bool) bool { return true }
	answered := func(answered bool) bool { return answered }
	for what, c := range map[string]struct {
		problem string
		spoil   func(*config)
	}{
		"the state opens a session for an older hello of the same process": {works, func(c *config) {
			c.opens = func(last, hello lease.Hello) bool { return hello.Incarnation >= last.Incarnation }
		}},
		"the state forgets the hellos of an agent that is removed": {"an agent that was removed is back without another hello", func(c *config) {
			c.removed = func(lease.Hello, int64) lease.Hello { return lease.Hello{} }
		}},
		"the state keeps leases that a hello does not list": {never, func(c *config) {
			c.keeps = func(uint64, []uint64) bool { return true }
		}},
		"the state leases a task in a session that is over": {"a task is leased in a session that is over", func(c *config) {
			c.grants = func(_, held bool) bool { return !held }
		}},
		"the state leases a task that a worker has": {works, func(c *config) {
			c.agents = 2
			c.grants = func(open, _ bool) bool { return open }
		}},
		"the state does not compare fences": {"the report of a lease that is over is accepted", func(c *config) {
			c.valid = func(held bool, _, _ uint64) bool { return held }
		}},
		"the dispatcher leaves the grace out": {works, func(c *config) { c.inherited = lease.Timing{TTL: 2 * tick}.Inherited }},
		"the dispatcher counts from each new term": {hangs, func(c *config) {
			c.inherited = func(now, ended time.Time, _ bool) time.Time { return timing.Inherited(now, ended, false) }
		}},
		"the dispatcher ends a session before its worker stops": {works, func(c *config) {
			c.mayEnd = lease.Timing{TTL: tick}.MayEnd
		}},
		"the dispatcher ends the session of a leaving agent at once": {works, func(c *config) {
			c.leaves = func(leaving bool, _ int) bool { return leaving }
		}},
		// Two rules keep this out: a worker whose leases have ended also asks for a new session.
		"the dispatcher answers in a session whose end it has proposed": {works, func(c *config) {
			c.answers, c.stays, c.lasting = always, true, true
			c.renews = func(now, until time.Time) bool { return until.IsZero() || lease.InTouch(now, until) }
		}},
		"the dispatcher ignores a session when the proposal was not answered":     {hangs, func(c *config) { c.meets = answered }},
		"the dispatcher does not send a lease when the proposal was not answered": {never, func(c *config) { c.sends = answered }},
		"a deposed leader answers for longer than the grace":                      {works, func(c *config) { c.deposed = 2 }},
		"the worker counts from the answer": {works, func(c *config) {
			c.until = func(_, answered time.Time) time.Time { return lease.Until(answered, 2*tick) }
		}},
		"the worker relies on its leases until it hears of another session": {works, func(c *config) {
			c.inTouch = func(_, until time.Time) bool { return !until.IsZero() }
		}},
		"the worker takes back leases that have ended": {works, func(c *config) {
			c.renews = func(_, _ time.Time) bool { return true }
		}},
		"the worker goes on in a session in which its leases have ended": {works, func(c *config) {
			c.stays = true
			c.renews = func(now, until time.Time) bool { return until.IsZero() || lease.InTouch(now, until) }
		}},
		"the worker begins a task of an earlier session": {works, func(c *config) {
			c.begins = func(_, _ string, now, until time.Time) bool { return lease.InTouch(now, until) }
		}},
		"the worker begins a task after its leases have ended": {works, func(c *config) {
			c.begins = func(leasedIn, session string, _, _ time.Time) bool { return leasedIn == session }
		}},
	} {
		t.Run(what, func(t *testing.T) {
			cfg := space(1, 2, 1, 0)
			c.spoil(&cfg)
			s := run(cfg)
			t.Logf("%d states: %s\n%s", len(s.visited), s.problem, strings.Join(s.trace, "\n"))
			if s.problem != c.problem {
				t.Errorf("%q was found, not %q", s.problem, c.problem)
			}
		})
	}
}
