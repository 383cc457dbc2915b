package voters

import (
	"cmp"
	"slices"
	"time"
)

// Candidate is an agent that the mesh knows.
type Candidate struct {
	ID, Addr string
	// Zone is the agent's zone; agents of one zone fail together.
	Zone string
	// Eligible: the agent may hold the log. An agent opts out by configuration, or
	// because its disk is sick.
	Eligible bool
	// Alive: gossip considers the agent alive.
	Alive bool
	// Leaving: the agent asks to leave in good order.
	Leaving bool
	// FeatureLevel is the newest kind of log entry that the agent understands.
	FeatureLevel int
	// JoinedAt is when the agent joined the mesh.
	JoinedAt time.Time
	// Shunned: the agent has failed recently as a member and must not be added again yet.
	Shunned bool
}

// Member is the leader's view of a member of the Raft group.
type Member struct {
	ID, Addr string
	Voter    bool
	Leader   bool
	// Silence is for how long the leader has not heard from the member; 0 for the leader itself.
	Silence time.Duration
	// Stable is for how long the member has been healthy without a break: it answers and has caught
	// up. 0 means that it is not healthy.
	Stable time.Duration
}

// Policy holds the times and bounds of the rules. Zero fields take defaults.
type Policy struct {
	// MaxVoters caps the voters (default 5; 1 or an odd number).
	MaxVoters int
	// MinFeatureLevel is the lowest feature level that a voter may have.
	MinFeatureLevel int
	// Reachable is the silence from which a voter no longer counts as reachable (default 2 s).
	Reachable time.Duration
	// DeadAfter is the silence after which a member counts as dead. Half of it is enough when gossip
	// does not consider the member alive either (default 30 s).
	DeadAfter time.Duration
	// GhostAfter is the silence after which a voter that the mesh no longer knows is removed even
	// without a replacement (default 10 min).
	GhostAfter time.Duration
	// StableFor is how long a member must be stable before it gets a vote (default 3 s).
	StableFor time.Duration
	// ZoneAfter is how long an agent must have been in the mesh before it replaces a healthy voter to
	// improve the spread over zones (default 2 min).
	ZoneAfter time.Duration
}

func (p Policy) withDefaults() Policy {
	def := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	def(&p.Reachable, 2*time.Second)
	def(&p.DeadAfter, 30*time.Second)
	def(&p.GhostAfter, 10*time.Minute)
	def(&p.StableFor, 3*time.Second)
	def(&p.ZoneAfter, 2*time.Minute)
	if p.MaxVoters <= 0 {
		p.MaxVoters = 5
	}
	return p
}

// Target returns how many of n eligible agents vote.
func (p Policy) Target(n int) int {
	p = p.withDefaults()
	t := 0
	switch {
	case n >= 5:
		t = 5
	case n >= 3:
		t = 3
	case n >= 1:
		t = 1
	}
	for t > p.MaxVoters {
		t -= 2
	}
	return max(t, min(n, 1))
}

// Kind is the kind of a Change.
type Kind string

// The kinds of change.
const (
	None     Kind = ""         // no change is needed, or the next one must wait
	Add      Kind = "add"      // add a member without a vote
	Promote  Kind = "promote"  // give a member its vote
	Demote   Kind = "demote"   // take a vote, keep the member
	Remove   Kind = "remove"   // end a membership
	Move     Kind = "move"     // store a member's new address
	Transfer Kind = "transfer" // transfer the leadership to this voter
)

// Change is one change of the group's membership or leadership.
type Change struct {
	Kind Kind
	// ID is the member that changes. Addr is its address, set for Add, Promote, Move and Transfer.
	ID, Addr string
	// Voter reports, for a Move, whether the member has a vote.
	Voter bool
	// Reason explains the change to people.
	Reason string
}

// View is the complete input of Decide.
type View struct {
	Now        time.Time
	Members    []Member
	Candidates []Candidate
	Policy     Policy
}

// Decide returns the one next change, or None. It has no memory: the same view yields the same change,
// whatever the order of its lists. No change leaves fewer reachable voters than a majority.
func Decide(v View) Change {
	d := newDecision(v)
	if d.leader == nil || d.reachable(d.voters) < quorum(len(d.voters)) {
		return Change{} // no change could be committed
	}
	for _, rule := range []func() Change{
		d.moved,
		d.uselessMembers,
		d.ghosts,
		d.departing,
		d.missing,
		d.surplus,
		d.zones,
		d.spareMembers,
	} {
		if c := rule(); c.Kind != None {
			return c
		}
	}
	return Change{}
}

func quorum(voters int) int { return voters/2 + 1 }

// seat is a member together with the mesh's knowledge of it.
type seat struct {
	Member
	c     Candidate
	known bool // the mesh knows it
	dead  bool
	ghost bool
}

func (s *seat) leaving() bool { return s.known && s.c.Leaving }

type decision struct {
	now       time.Time
	p         Policy
	leader    *seat
	voters    []*seat
	others    []*seat // members without a vote
	outside   []Candidate
	target    int
	effective []*seat // voters that may keep their vote: alive, fit and not leaving
}

func newDecision(v View) *decision {
	d := &decision{now: v.Now, p: v.Policy.withDefaults()}
	candidates := make(map[string]Candidate, len(v.Candidates))
	for _, c := range v.Candidates {
		candidates[c.ID] = c
	}
	count := 0
	for _, m := range v.Members {
		s := &seat{Member: m}
		s.c, s.known = candidates[m.ID]
		delete(candidates, m.ID)
		silent := m.Silence
		if m.Leader {
			silent = 0
		}
		s.dead = silent >= d.p.DeadAfter || (silent >= d.p.DeadAfter/2 && !s.c.Alive)
		s.ghost = !s.known && silent >= d.p.GhostAfter
		if m.Voter {
			d.voters = append(d.voters, s)
			if m.Leader {
				d.leader = s
			}
		} else {
			d.others = append(d.others, s)
		}
		if !s.leaving() && !d.unfit(s) && !s.ghost && (m.Voter || (s.known && s.c.Alive && !s.dead)) {
			count++
		}
	}
	for _, c := range candidates {
		if d.usable(c) && c.Alive {
			count++
			if !c.Shunned {
				d.outside = append(d.outside, c)
			}
		}
	}
	d.target = d.p.Target(count)
	byID := func(a, b *seat) int { return cmp.Compare(a.ID, b.ID) }
	slices.SortFunc(d.voters, byID)
	slices.SortFunc(d.others, byID)
	for _, s := range d.voters {
		if !s.dead && !s.leaving() && !d.unfit(s) {
			d.effective = append(d.effective, s)
		}
	}
	d.sortForSeat(d.outside)
	return d
}

// usable reports whether an agent may vote at all.
func (d *decision) usable(c Candidate) bool {
	return c.Eligible && !c.Leaving && c.FeatureLevel >= d.p.MinFeatureLevel
}

// unfit reports whether a member may not vote any more, for another reason than that it leaves.
func (d *decision) unfit(s *seat) bool { return s.known && !s.c.Leaving && !d.usable(s.c) }

func (d *decision) reachable(list []*seat) int {
	n := 0
	for _, s := range list {
		if s.Leader || s.Silence < d.p.Reachable {
			n++
		}
	}
	return n
}

// safeWithout reports whether a majority is reachable once s no longer votes.
func (d *decision) safeWithout(s *seat) bool {
	rest := slices.DeleteFunc(slices.Clone(d.voters), func(v *seat) bool { return v == s })
	return len(rest) > 0 && d.reachable(rest) >= quorum(len(rest))
}

// crowding returns a measure of how unevenly seats are spread over zones: the sum of the squares of the
// numbers in each zone. Unless the spread is optimal, some swap of two seats lowers it.
func crowding(zones map[string]int) int {
	sum := 0
	for _, n := range zones {
		sum += n * n
	}
	return sum
}

func zonesOf(list []*seat) map[string]int {
	z := make(map[string]int)
	for _, s := range list {
		z[s.c.Zone]++
	}
	return z
}

// sortForSeat puts the best candidate for a vote first.
func (d *decision) sortForSeat(list []Candidate) {
	z := zonesOf(d.effective)
	slices.SortFunc(list, func(a, b Candidate) int {
		return cmp.Or(
			cmp.Compare(z[a.Zone], z[b.Zone]),
			a.JoinedAt.Compare(b.JoinedAt),
			cmp.Compare(a.ID, b.ID),
		)
	})
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// ready returns the members without a vote that could take one now, the best first.
func (d *decision) ready() []*seat {
	var list []*seat
	for _, s := range d.others {
		if s.known && d.usable(s.c) && !s.dead && s.Stable >= d.p.StableFor {
			list = append(list, s)
		}
	}
	z := zonesOf(d.effective)
	slices.SortFunc(list, func(a, b *seat) int {
		return cmp.Or(
			cmp.Compare(z[a.c.Zone], z[b.c.Zone]),
			a.c.JoinedAt.Compare(b.c.JoinedAt),
			cmp.Compare(a.ID, b.ID),
		)
	})
	return list
}

func (d *decision) moved() Change {
	for _, s := range append(slices.Clone(d.voters), d.others...) {
		if s.known && s.c.Alive && s.c.Addr != "" && s.c.Addr != s.Addr {
			return Change{Kind: Move, ID: s.ID, Addr: s.c.Addr, Voter: s.Voter, Reason: "it has moved here from " + s.Addr}
		}
	}
	return Change{}
}

func (d *decision) uselessMembers() Change {
	for _, s := range d.others {
		reason := ""
		switch {
		case s.leaving():
			reason = "it leaves"
		case d.unfit(s):
			reason = "it may not hold the log any more"
		case s.dead:
			reason = "it does not answer"
		}
		if reason != "" {
			return Change{Kind: Remove, ID: s.ID, Reason: reason}
		}
	}
	return Change{}
}

func (d *decision) ghosts() Change {
	for _, s := range d.voters {
		if s.ghost && d.safeWithout(s) {
			return Change{Kind: Remove, ID: s.ID, Reason: "the mesh does not know it any more"}
		}
	}
	return Change{}
}

// departing takes the vote from voters that leave or have become unfit.
func (d *decision) departing() Change {
	for _, leader := range []bool{false, true} { // the leader last: it does the work
		for _, s := range d.voters {
			if s.Leader != leader || !(s.leaving() || d.unfit(s)) {
				continue
			}
			if d.unfit(s) && len(d.effective) < d.target && len(d.outside)+len(d.others) > 0 {
				continue // it keeps its vote until its successor votes
			}
			reason := "it leaves"
			if !s.leaving() {
				reason = "it may not hold the log any more"
			}
			if !d.safeWithout(s) {
				// A dead voter that still counts may be the obstacle.
				for _, x := range d.voters {
					if x.dead && x != s && d.safeWithout(x) {
						return Change{Kind: Remove, ID: x.ID, Reason: "it is dead, and " + s.ID + " can go only without it"}
					}
				}
				continue
			}
			if !s.Leader {
				// A demoted member still receives the log, so it learns of its demotion. It is removed next.
				return Change{Kind: Demote, ID: s.ID, Reason: reason}
			}
			if to := d.heir(); to != nil {
				return Change{Kind: Transfer, ID: to.ID, Addr: to.Addr, Reason: "the leader " + s.ID + ": " + reason}
			}
		}
	}
	return Change{}
}

// heir returns the voter that takes over from a leader that leaves, or nil.
func (d *decision) heir() *seat {
	var best *seat
	for _, s := range d.effective {
		if s.Leader || s.Silence >= d.p.Reachable {
			continue
		}
		if best == nil || s.Stable > best.Stable {
			best = s
		}
	}
	return best
}

// missing fills empty seats.
func (d *decision) missing() Change {
	need := d.target - len(d.effective)
	if need <= 0 {
		return Change{}
	}
	// One voter becomes three only when two members are ready: two voters are worse than one.
	pair := len(d.voters) == 1 && len(d.effective) == 1 && d.target >= 3
	ready := d.ready()
	if len(ready) > 0 && !(pair && len(ready) < 2) {
		for _, s := range d.voters {
			if s.dead && len(d.voters) >= d.target && d.safeWithout(s) {
				return Change{Kind: Remove, ID: s.ID, Reason: "it is dead and " + ready[0].ID + " is ready to replace it"}
			}
		}
		if d.reachable(d.voters)+1 >= quorum(len(d.voters)+1) {
			return Change{Kind: Promote, ID: ready[0].ID, Addr: ready[0].Addr, Reason: "a voter is missing"}
		}
	}
	want := 1
	if pair {
		want = 2
	}
	if len(d.others) < want && len(d.outside) > 0 {
		c := d.outside[0]
		return Change{Kind: Add, ID: c.ID, Addr: c.Addr, Reason: "a voter is missing"}
	}
	return Change{}
}

// surplus removes dead voters that are not needed, and demotes voters beyond the target.
func (d *decision) surplus() Change {
	if len(d.effective) < d.target {
		return Change{}
	}
	for _, s := range d.voters {
		if s.dead && d.safeWithout(s) {
			return Change{Kind: Remove, ID: s.ID, Reason: "it is dead and not needed"}
		}
	}
	if len(d.effective) == d.target {
		return Change{}
	}
	if s := d.leastNeeded(); s != nil && d.safeWithout(s) {
		return Change{Kind: Demote, ID: s.ID, Reason: "there are more voters than needed"}
	}
	return Change{}
}

// leastNeeded returns the voter whose vote is needed least, or nil. It is never the leader.
func (d *decision) leastNeeded() *seat {
	list := slices.DeleteFunc(slices.Clone(d.effective), func(s *seat) bool { return s.Leader })
	if len(list) == 0 {
		return nil
	}
	z := zonesOf(d.effective)
	return slices.MinFunc(list, func(a, b *seat) int {
		return cmp.Or(
			compareBool(a.Silence < d.p.Reachable, b.Silence < d.p.Reachable), // silent voters first
			cmp.Compare(z[b.c.Zone], z[a.c.Zone]),                             // then those of crowded zones
			b.c.JoinedAt.Compare(a.c.JoinedAt),                                // then the newest
			cmp.Compare(b.ID, a.ID),
		)
	})
}

// zones swaps a voter of a crowded zone for an agent of an emptier one. Surplus
// completes the swap.
func (d *decision) zones() Change {
	if d.target < 3 || len(d.voters) != d.target || len(d.effective) != d.target || d.reachable(d.voters) != d.target {
		return Change{}
	}
	out := d.leastNeeded()
	for _, s := range d.ready() {
		if d.better(s.c, out) {
			return Change{Kind: Promote, ID: s.ID, Addr: s.Addr, Reason: "to spread the votes over zones"}
		}
	}
	if len(d.others) > 0 {
		return Change{} // the member is catching up, or spareMembers removes it
	}
	for _, c := range d.outside {
		if d.better(c, out) {
			return Change{Kind: Add, ID: c.ID, Addr: c.Addr, Reason: "to spread the votes over zones"}
		}
	}
	return Change{}
}

// better reports whether the votes are spread better if c replaces out.
func (d *decision) better(c Candidate, out *seat) bool {
	if out == nil || d.now.Sub(c.JoinedAt) < d.p.ZoneAfter {
		return false
	}
	z := zonesOf(d.effective)
	before := crowding(z)
	z[out.c.Zone]--
	z[c.Zone]++
	return crowding(z) < before
}

// spareMembers keeps one standby if the group has one voter, and removes members without a vote that are
// not needed.
func (d *decision) spareMembers() Change {
	if len(d.effective) < d.target {
		return Change{} // these members are about to get a vote
	}
	if d.target == 1 {
		switch {
		case len(d.others) == 0 && len(d.outside) > 0:
			c := d.outside[0]
			return Change{Kind: Add, ID: c.ID, Addr: c.Addr, Reason: "as a standby"}
		case len(d.others) > 1:
			return Change{Kind: Remove, ID: d.worstOther().ID, Reason: "one standby is enough"}
		}
		return Change{}
	}
	out := d.leastNeeded()
	for _, s := range d.others {
		if len(d.voters) == d.target && s.known && d.better(s.c, out) {
			continue // it is catching up for a swap of zones
		}
		return Change{Kind: Remove, ID: s.ID, Reason: "it is not needed"}
	}
	return Change{}
}

func (d *decision) worstOther() *seat {
	return slices.MinFunc(d.others, func(a, b *seat) int {
		return cmp.Or(cmp.Compare(a.Stable, b.Stable), cmp.Compare(b.ID, a.ID))
	})
}
