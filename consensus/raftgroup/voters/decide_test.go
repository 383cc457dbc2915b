package voters

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a simulated mesh that carries out Decide's changes. Its String is a short notation of the
// members.
type world struct {
	now    time.Time
	policy Policy
	agents map[string]*agent
	trace  []string
}

type agent struct {
	Candidate
	up      bool // answers Raft and gossip
	mute    bool // answers gossip only: its Raft is down
	unknown bool // the mesh has forgotten it
	member  bool
	voter   bool
	leader  bool
	since   time.Time // since when the agent has been up or down
}

func newWorld() *world {
	return &world{now: time.Unix(1e9, 0), agents: map[string]*agent{}, policy: Policy{Reachable: time.Nanosecond}}
}

func (w *world) add(id, zone string) *agent {
	a := &agent{up: true, since: w.now.Add(-time.Hour)}
	a.Candidate = Candidate{ID: id, Addr: id, Zone: zone, Eligible: true, Alive: true, JoinedAt: w.now.Add(-time.Hour)}
	w.agents[id] = a
	return a
}

func (w *world) ids() []string {
	var ids []string
	for id := range w.agents {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (w *world) answers(a *agent) bool { return a.up && !a.mute }

func (w *world) down(id string) {
	a := w.agents[id]
	if a.up {
		a.up, a.since = false, w.now
	}
	w.elect()
}

func (w *world) voters() (all, live int) {
	for _, a := range w.agents {
		if a.voter {
			all++
			if w.answers(a) {
				live++
			}
		}
	}
	return all, live
}

func (w *world) quorate() bool {
	all, live := w.voters()
	return all > 0 && live >= all/2+1
}

// elect makes the first voter that answers the leader if the previous leader is gone.
func (w *world) elect() {
	ids := w.ids()
	for _, id := range ids {
		a := w.agents[id]
		if a.leader && !(w.answers(a) && a.voter) {
			a.leader = false
		}
		if a.leader {
			return
		}
	}
	if !w.quorate() {
		return
	}
	for _, id := range ids {
		if a := w.agents[id]; a.voter && w.answers(a) {
			a.leader = true
			return
		}
	}
}

func (w *world) view() View {
	v := View{Now: w.now, Policy: w.policy}
	for _, id := range w.ids() {
		a := w.agents[id]
		if !a.unknown {
			c := a.Candidate
			c.Alive = a.up
			v.Candidates = append(v.Candidates, c)
		}
		if a.member {
			m := Member{ID: id, Addr: id, Voter: a.voter, Leader: a.leader}
			if w.answers(a) {
				m.Stable = w.now.Sub(a.since)
			} else {
				// The Controller confirms reachability before it acts, so the simulation
				// reports silence at once.
				m.Silence = w.now.Sub(a.since) + time.Nanosecond
			}
			v.Members = append(v.Members, m)
		}
	}
	return v
}

func (w *world) apply(c Change) error {
	a := w.agents[c.ID]
	if a == nil {
		return fmt.Errorf("%+v is about nobody", c)
	}
	w.trace = append(w.trace, fmt.Sprintf("%s %s", c.Kind, c.ID))
	if n := len(w.trace); n > 60 {
		w.trace = w.trace[n-60:]
	}
	switch c.Kind {
	case Add:
		if a.member {
			return fmt.Errorf("%+v: is a member", c)
		}
		a.member, a.voter = true, false
	case Promote:
		if !a.member || a.voter {
			return fmt.Errorf("%+v: is not a member without a vote", c)
		}
		a.voter = true
	case Demote:
		if !a.voter || a.leader {
			return fmt.Errorf("%+v: is not a voter, or leads", c)
		}
		a.voter = false
	case Remove:
		if !a.member || a.leader {
			return fmt.Errorf("%+v: is not a member, or leads", c)
		}
		if !a.voter && a.mute {
			a.Shunned = true // as the Controller does
		}
		a.member, a.voter = false, false
	case Transfer:
		if !a.voter || a.leader || !w.answers(a) {
			return fmt.Errorf("%+v: cannot lead", c)
		}
		for _, b := range w.agents {
			b.leader = false
		}
		a.leader = true
	default:
		return fmt.Errorf("%+v: unexpected here", c)
	}
	return nil
}

// rest calls Decide repeatedly, while time passes, until it returns no more changes.
func (w *world) rest() error {
	quiet := 0
	for range 2000 {
		c := Decide(w.view())
		if c.Kind == None {
			if quiet++; quiet > 400 { // 400 times 5 s is longer than any time in the policy
				return nil
			}
		} else {
			quiet = 0
			was := w.quorate()
			if err := w.apply(c); err != nil {
				return err
			}
			if was && !w.quorate() {
				return fmt.Errorf("%+v took the majority away", c)
			}
		}
		w.now = w.now.Add(5 * time.Second)
	}
	return fmt.Errorf("does not come to rest")
}

func (w *world) String() string {
	var b strings.Builder
	for _, id := range w.ids() {
		a := w.agents[id]
		if !a.member {
			continue
		}
		switch {
		case a.leader:
			b.WriteString(id + "*")
		case a.voter:
			b.WriteString(id)
		default:
			b.WriteString("(" + id + ")")
		}
		if !w.answers(a) {
			b.WriteString("!")
		}
		b.WriteByte(' ')
	}
	return strings.TrimSpace(b.String())
}

// boot returns a world of n agents a, b, c…, each in the given zone or in a zone of its own. The first
// voters of them vote, and a leads.
func boot(n, voters int, zones ...string) *world {
	w := newWorld()
	for i := range n {
		id := string(rune('a' + i))
		zone := "z" + id
		if i < len(zones) {
			zone = zones[i]
		}
		a := w.add(id, zone)
		a.JoinedAt = a.JoinedAt.Add(time.Duration(i) * time.Second)
		a.member, a.voter, a.leader = i < voters, i < voters, i == 0
	}
	return w
}

func TestScenarios(t *testing.T) {
	step := func(name string, do func(w *world), want, trace string) func(*testing.T, *world) {
		return func(t *testing.T, w *world) {
			t.Helper()
			w.trace = nil
			do(w)
			if err := w.rest(); err != nil {
				t.Fatalf("%s: %v (%v)", name, err, w.trace)
			}
			if got := w.String(); got != want {
				t.Fatalf("%s: came to %q, want %q (%v)", name, got, want, w.trace)
			}
			if got := strings.Join(w.trace, ", "); trace != "?" && got != trace {
				t.Fatalf("%s: by %q, want %q", name, got, trace)
			}
		}
	}
	join := func(ids ...string) func(*world) {
		return func(w *world) {
			for _, id := range ids {
				w.add(id, "z"+id)
			}
		}
	}
	leave := func(id string) func(*world) { return func(w *world) { w.agents[id].Leaving = true } }
	gone := func(id string) func(*world) {
		return func(w *world) {
			delete(w.agents, id)
			w.elect()
		}
	}
	crash := func(ids ...string) func(*world) {
		return func(w *world) {
			for _, id := range ids {
				w.down(id)
			}
		}
	}
	forget := func(id string) func(*world) { return func(w *world) { w.agents[id].unknown = true } }
	none := func(*world) {}

	cases := map[string]struct {
		w     *world
		steps []func(*testing.T, *world)
	}{
		"growth from one to six and back to one": {boot(1, 1), []func(*testing.T, *world){
			step("alone", none, "a*", ""),
			step("two", join("b"), "a* (b)", "add b"),
			step("three", join("c"), "a* b c", "add c, promote b, promote c"),
			step("four", join("d"), "a* b c", ""),
			step("five", join("e"), "a* b c d e", "add d, promote d, add e, promote e"),
			step("six", join("f"), "a* b c d e", ""),
			step("leader leaves", leave("a"), "b* c d e f", "transfer b, demote a, remove a, add f, promote f"),
			step("is gone", gone("a"), "b* c d e f", ""),
			step("four left", leave("f"), "b* c d", "demote f, remove f, demote e, remove e"),
			step("gone", gone("f"), "b* c d", ""),
			step("three left", leave("c"), "b* d e", "demote c, remove c, add e, promote e"),
			step("gone", gone("c"), "b* d e", ""),
			step("two left", leave("d"), "b* (e)", "demote d, remove d, demote e"),
			step("gone", gone("d"), "b* (e)", ""),
			step("the voter leaves", leave("b"), "e*", "promote e, transfer e, demote b, remove b"),
		}},
		"dead voter with a spare": {boot(4, 3), []func(*testing.T, *world){
			step("crash", crash("b"), "a* c d", "add d, remove b, promote d"),
		}},
		"dead leader with a spare": {boot(4, 3), []func(*testing.T, *world){
			step("crash", crash("a"), "b* c d", "add d, remove a, promote d"),
		}},
		"dead voter without a spare stays": {boot(3, 3), []func(*testing.T, *world){
			step("crash", crash("b"), "a* b! c", ""),
			step("a newcomer", join("d"), "a* c d", "add d, remove b, promote d"),
		}},
		"dead voter that the mesh forgets": {boot(3, 3), []func(*testing.T, *world){
			step("crash", crash("b"), "a* b! c", ""),
			step("forgotten", forget("b"), "a* (c)", "remove b, demote c"),
		}},
		"forgotten but answering is left alone": {boot(3, 3), []func(*testing.T, *world){
			step("forgotten", forget("b"), "a* b c", ""),
		}},
		"two of five die, without spares": {boot(5, 5), []func(*testing.T, *world){
			step("crash", crash("b", "c"), "a* b! c! d e", ""),
		}},
		"two of five die, one spare": {boot(6, 5), []func(*testing.T, *world){
			step("crash", crash("b", "c"), "a* c! d e f", "add f, remove b, promote f"),
		}},
		"no majority, no change": {boot(4, 3), []func(*testing.T, *world){
			step("crash", crash("b", "c"), "a* b! c!", ""),
		}},
		"Raft down while gossip lives": {boot(4, 3), []func(*testing.T, *world){
			step("mute", func(w *world) { w.agents["c"].mute = true; w.agents["c"].since = w.now }, "a* b d", "add d, remove c, promote d"),
		}},
		"leaving is possible when the dead stand in the way": {boot(3, 3), []func(*testing.T, *world){
			step("crash", crash("c"), "a* b c!", ""),
			step("leave", leave("b"), "a*", "remove c, demote b, remove b"),
		}},
		"opting out waits for a successor": {boot(4, 3), []func(*testing.T, *world){
			step("opt out", func(w *world) { w.agents["a"].Eligible = false }, "b* c d", "add d, promote d, transfer b, demote a, remove a"),
		}},
		"opting out without a successor": {boot(3, 3), []func(*testing.T, *world){
			step("opt out", func(w *world) { w.agents["b"].Eligible = false }, "a* (c)", "demote b, remove b, demote c"),
		}},
		"too old for the log": {boot(4, 3), []func(*testing.T, *world){
			step("level", func(w *world) {
				w.policy.MinFeatureLevel = 2
				for _, id := range []string{"a", "b", "d"} {
					w.agents[id].FeatureLevel = 2
				}
			}, "a* b d", "add d, promote d, demote c, remove c"),
		}},
		"zones on the way up": {boot(1, 1, "x"), []func(*testing.T, *world){
			step("five in three zones", func(w *world) {
				w.add("b", "x")
				w.add("c", "x")
				w.add("d", "y")
				w.add("e", "y")
				w.policy.MaxVoters = 3
				w.add("f", "z")
			}, "a* d f", "?"),
		}},
		"zones by a swap": {boot(3, 3, "x", "x", "y"), []func(*testing.T, *world){
			step("a third zone", func(w *world) { w.add("d", "z") }, "a* c d", "add d, promote d, demote b, remove b"),
		}},
		"zones: no swap for nothing": {boot(4, 3, "x", "y", "z", "x"), []func(*testing.T, *world){
			step("rest", none, "a* b c", ""),
		}},
		"bootstrapped with two": {boot(2, 2), []func(*testing.T, *world){
			step("rest", none, "a* (b)", "demote b"),
		}},
		"a shunned spare is left alone": {boot(5, 3), []func(*testing.T, *world){
			step("crash", func(w *world) {
				w.policy.MaxVoters = 3
				w.agents["d"].Shunned = true
				w.down("b")
			}, "a* c e", "add e, remove b, promote e"),
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			for _, s := range c.steps {
				s(t, c.w)
			}
		})
	}
}

func TestMove(t *testing.T) {
	w := boot(3, 3)
	w.agents["b"].Addr = "elsewhere"
	if c := Decide(w.view()); c.Kind != Move || c.ID != "b" || c.Addr != "elsewhere" || !c.Voter {
		t.Fatalf("got %+v", c)
	}
	w.down("b") // the address that gossip holds for a dead agent does not count
	if c := Decide(w.view()); c.Kind != None {
		t.Fatalf("got %+v", c)
	}
}

func TestTarget(t *testing.T) {
	for n, want := range []int{0, 1, 1, 3, 3, 5, 5, 5} {
		if got := (Policy{}).Target(n); got != want {
			t.Errorf("of %d vote %d, want %d", n, got, want)
		}
		if got := (Policy{MaxVoters: 3}).Target(n); got != min(want, 3) {
			t.Errorf("of %d vote %d, want %d", n, got, min(want, 3))
		}
		if got := (Policy{MaxVoters: 1}).Target(n); got != min(want, 1) {
			t.Errorf("of %d vote %d, want %d", n, got, min(want, 1))
		}
	}
}

// TestLife checks the rules against random sequences of events.
func TestLife(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(t, "agents")
		zones := rapid.SliceOfN(rapid.SampledFrom([]string{"x", "y", "z"}), n, n).Draw(t, "zones")
		w := boot(n, rapid.IntRange(1, min(n, 5)).Draw(t, "voters"), zones...)
		w.policy.MaxVoters = rapid.SampledFrom([]int{1, 3, 5}).Draw(t, "max")
		for range rapid.IntRange(0, 6).Draw(t, "events") {
			id := rapid.SampledFrom(w.ids()).Draw(t, "who")
			a := w.agents[id]
			switch rapid.SampledFrom([]string{"crash", "up", "leave", "opt", "mute", "rest", "step", "forget", "join"}).Draw(t, "event") {
			case "crash":
				// Do not crash an agent if that would cost the majority: without one, Decide returns no
				// change.
				if _, live := w.voters(); !a.voter || !w.answers(a) || live-1 >= quorumOf(w) {
					w.down(id)
				}
			case "mute":
				if _, live := w.voters(); !a.voter || live-1 >= quorumOf(w) {
					if !a.mute {
						a.mute, a.since = true, w.now
					}
					w.elect()
				}
			case "up":
				if !a.up || a.mute {
					a.up, a.mute, a.unknown, a.Shunned, a.since = true, false, false, false, w.now
				}
			case "leave":
				a.Leaving = true
			case "opt":
				a.Eligible = !a.Eligible
			case "forget":
				a.unknown = !a.up
			case "join":
				w.add(fmt.Sprintf("n%d", len(w.agents)), rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "zone"))
			case "step":
				if c := Decide(w.view()); c.Kind != None {
					if err := w.apply(c); err != nil {
						t.Fatal(err)
					}
				}
				w.now = w.now.Add(time.Second)
			case "rest":
				if err := w.rest(); err != nil {
					t.Fatalf("%v; %s; %v", err, w, w.trace)
				}
			}
			if !w.quorate() {
				t.Fatalf("no majority: %s; %v", w, w.trace)
			}
		}
		w.elect()
		if err := w.rest(); err != nil {
			t.Fatalf("%v; %s; %v", err, w, w.trace)
		}
		check(t, w)
	})
}

func quorumOf(w *world) int {
	all, _ := w.voters()
	return all/2 + 1
}

// check compares a world at rest with the goals of the rules, which it computes by brute force.
func check(t *rapid.T, w *world) {
	fit := func(a *agent) bool { return a.Eligible && !a.Leaving && !a.unknown }
	var good []*agent // agents that may vote and answer
	known := 0
	for _, a := range w.agents {
		if fit(a) && w.answers(a) {
			good = append(good, a)
		}
		// The mesh considers a mute agent alive until it has been tried as a member. A
		// dead agent counts while it still has its vote.
		if fit(a) && (a.up || a.voter) {
			known++
		}
	}
	all, live := w.voters()
	if live < all/2+1 {
		t.Fatalf("no majority: %s", w)
	}
	target := max(1, w.policy.Target(known)) // the last voter cannot leave
	mutes := slices.ContainsFunc(w.ids(), func(id string) bool { return w.agents[id].mute })
	if len(good) >= target && !mutes && len(good) == known {
		// All agents are healthy: exactly the target number of agents vote, all of them
		// are fit, and the spread over zones is optimal.
		if all != target || live != target {
			t.Fatalf("%d voters, %d live, want %d of %d: %s; %v", all, live, target, known, w, w.trace)
		}
		zones := map[string]int{}
		for _, a := range w.agents {
			if a.voter {
				zones[a.Zone]++
				if !fit(a) {
					t.Fatalf("%s votes and should not: %s", a.ID, w)
				}
			}
		}
		leader := ""
		for _, a := range w.agents {
			if a.leader {
				leader = a.ID
			}
		}
		if best := bestCrowding(good, target, leader); target >= 3 && crowding(zones) != best {
			t.Fatalf("crowding %d, possible is %d: %s", crowding(zones), best, w)
		}
		others := 0
		for _, a := range w.agents {
			if a.member && !a.voter {
				others++
			}
		}
		want := 0
		if target == 1 {
			want = min(1, len(good)-1)
		}
		if others != want {
			t.Fatalf("%d members without a vote, want %d: %s; %v", others, want, w, w.trace)
		}
	}
	// A dead voter is kept only if no agent could replace it.
	for _, a := range w.agents {
		if a.voter && !w.answers(a) && fit(a) {
			for _, b := range good {
				if !b.voter && !mutes {
					t.Fatalf("%s is dead and votes, while %s could: %s; %v", a.ID, b.ID, w, w.trace)
				}
			}
		}
	}
}

func bestCrowding(good []*agent, k int, must string) int {
	best := 1 << 30
	var choose func(i, left int, zones map[string]int, has bool)
	choose = func(i, left int, zones map[string]int, has bool) {
		if left == 0 {
			if has {
				best = min(best, crowding(zones))
			}
			return
		}
		if i == len(good) {
			return
		}
		choose(i+1, left, zones, has)
		zones[good[i].Zone]++
		choose(i+1, left-1, zones, has || good[i].ID == must)
		zones[good[i].Zone]--
	}
	choose(0, k, map[string]int{}, false)
	return best
}

// TestOrderDoesNotMatter: the same view in another order yields the same change.
func TestOrderDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(t, "agents")
		w := boot(n, rapid.IntRange(1, min(n, 5)).Draw(t, "voters"),
			rapid.SliceOfN(rapid.SampledFrom([]string{"x", "y"}), n, n).Draw(t, "zones")...)
		for _, id := range w.ids() {
			a := w.agents[id]
			a.Leaving = rapid.Bool().Draw(t, "leaving")
			a.Eligible = rapid.Bool().Draw(t, "eligible")
			a.up = a.leader || rapid.Bool().Draw(t, "up")
			a.since = w.now.Add(-time.Duration(rapid.IntRange(0, 1000).Draw(t, "since")) * time.Second)
		}
		v := w.view()
		want := Decide(v)
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		r.Shuffle(len(v.Members), func(i, j int) { v.Members[i], v.Members[j] = v.Members[j], v.Members[i] })
		r.Shuffle(len(v.Candidates), func(i, j int) { v.Candidates[i], v.Candidates[j] = v.Candidates[j], v.Candidates[i] })
		if got := Decide(v); got != want {
			t.Fatalf("%+v in one order, %+v in another", want, got)
		}
	})
}
