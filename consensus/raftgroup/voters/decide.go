package voters

import (
	"cmp"
	"slices"
	"time"
)

// Candidate is an agent as the mesh knows it.
type Candidate struct {
	ID, Addr string
	// Zone is where it stands; agents of one zone fail together.
	Zone string
	// Eligible: it may hold the log. An agent opts out by configuration, or
	// because its disk is sick.
	Eligible bool
	// Alive: the gossip takes it for alive.
	Alive bool
	// Leaving: it asks to leave in good order.
	Leaving bool
	// FeatureLevel is the newest kind of log entry that it understands.
	FeatureLevel int
	// JoinedAt is when it joined the mesh.
	JoinedAt time.Time
	// Shunned: it has failed lately as a member and is not to be tried again yet.
	Shunned bool
}

// Member is a member of the Raft group as the leader sees it.
type Member struct {
	ID, Addr string
	Voter    bool
	Leader   bool
	// Silence is for how long the leader has not heard from it; 0 for itself.
	Silence time.Duration
	// Stable is for how long it has answered, alive and caught up, without a
	// break; 0 when it is not.
	Stable time.Duration
}

// Policy holds the times and bounds of the rules. Zero fields take defaults.
type Policy struct {
	// MaxVoters caps the voters (default 5; 1 or an odd number).
	MaxVoters int
	// MinFeatureLevel is what a voter must understand.
	MinFeatureLevel int
	// Reachable: a voter silent for less counts as there (default 2 s).
	Reachable time.Duration
	// DeadAfter: a member silent for so long is dead; half of it is enough when
	// the gossip agrees (default 30 s).
	DeadAfter time.Duration
	// GhostAfter: a voter that the mesh no longer knows at all, silent for so
	// long, is removed even without a replacement (default 10 min).
	GhostAfter time.Duration
	// StableFor: a member must be stable for so long before it gets a vote (default 3 s).
	StableFor time.Duration
	// ZoneAfter: an agent must have been in the mesh for so long before it takes
	// a vote from a healthy voter for the sake of zones (default 2 min).
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

// Target is how many of n eligible agents vote.
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

// Kind is what a Change does.
type Kind string

// The kinds of change.
const (
	None     Kind = ""         // all is as it should be, or must wait
	Add      Kind = "add"      // make a member without a vote
	Promote  Kind = "promote"  // give a member its vote
	Demote   Kind = "demote"   // take a vote, keep the member
	Remove   Kind = "remove"   // end a membership
	Move     Kind = "move"     // note a member's new address
	Transfer Kind = "transfer" // hand the leadership to this voter
)

// Change is one step.
type Change struct {
	Kind Kind
	// ID is the member it is about, Addr its address for Add, Promote and Move.
	ID, Addr string
	// Voter says of a Move whether the member has a vote.
	Voter bool
	// Reason is for people.
	Reason string
}

// View is all that Decide looks at.
type View struct {
	Now        time.Time
	Members    []Member
	Candidates []Candidate
	Policy     Policy
}

// Decide gives the one next change, or None. It has no memory: the same view
// gives the same answer, in whatever order its lists are. A change is never one
// that leaves fewer reachable voters than a majority.
func Decide(v View) Change {
	d := newDecision(v)
	if d.leader == nil || d.reachable(d.voters) < quorum(len(d.voters)) {
		return Change{} // nothing could be committed
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

// seat is a member together with what the mesh says about it.
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
	effective []*seat // voters that are there to stay
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

// usable says whether an agent may vote at all.
func (d *decision) usable(c Candidate) bool {
	return c.Eligible && !c.Leaving && c.FeatureLevel >= d.p.MinFeatureLevel
}

// unfit says that a member may not vote any more, other than because it leaves.
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

// safeWithout says whether a majority is reachable once s votes no more.
func (d *decision) safeWithout(s *seat) bool {
	rest := slices.DeleteFunc(slices.Clone(d.voters), func(v *seat) bool { return v == s })
	return len(rest) > 0 && d.reachable(rest) >= quorum(len(rest))
}

// crowding is a measure of how unevenly seats are spread over zones: the sum of
// the squares of the numbers in each. A swap of two seats that lowers it always
// exists unless the spread is the best there is.
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

// ready are the members without a vote that could take one now, the best first.
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

// departing lets go of voters that leave or have become unfit.
func (d *decision) departing() Change {
	for _, leader := range []bool{false, true} { // the leader last: it does the work
		for _, s := range d.voters {
			if s.Leader != leader || !(s.leaving() || d.unfit(s)) {
				continue
			}
			if d.unfit(s) && len(d.effective) < d.target && len(d.outside)+len(d.others) > 0 {
				continue // it goes when its successor votes
			}
			reason := "it leaves"
			if !s.leaving() {
				reason = "it may not hold the log any more"
			}
			if !d.safeWithout(s) {
				// The dead stand in the way.
				for _, x := range d.voters {
					if x.dead && x != s && d.safeWithout(x) {
						return Change{Kind: Remove, ID: x.ID, Reason: "it is dead, and " + s.ID + " can go only without it"}
					}
				}
				continue
			}
			if !s.Leader {
				// Demoted, it hears of it for certain; removed next.
				return Change{Kind: Demote, ID: s.ID, Reason: reason}
			}
			if to := d.heir(); to != nil {
				return Change{Kind: Transfer, ID: to.ID, Addr: to.Addr, Reason: "the leader " + s.ID + ": " + reason}
			}
		}
	}
	return Change{}
}

// heir is who takes over from a leader that goes.
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
	// From one voter to three in one go: two voters are worse than one.
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

// surplus takes votes that are too many.
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

// leastNeeded is the voter whose vote is missed least; never the leader.
func (d *decision) leastNeeded() *seat {
	list := slices.DeleteFunc(slices.Clone(d.effective), func(s *seat) bool { return s.Leader })
	if len(list) == 0 {
		return nil
	}
	z := zonesOf(d.effective)
	return slices.MinFunc(list, func(a, b *seat) int {
		return cmp.Or(
			compareBool(a.Silence < d.p.Reachable, b.Silence < d.p.Reachable), // the silent first
			cmp.Compare(z[b.c.Zone], z[a.c.Zone]),                             // then the crowded
			b.c.JoinedAt.Compare(a.c.JoinedAt),                                // then the new
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
		return Change{} // it is being made ready, or will be cleared away
	}
	for _, c := range d.outside {
		if d.better(c, out) {
			return Change{Kind: Add, ID: c.ID, Addr: c.Addr, Reason: "to spread the votes over zones"}
		}
	}
	return Change{}
}

// better says whether c in the place of out spreads the votes better.
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

// spareMembers keeps a standby where there is one voter, and sends away members
// without a vote that nobody waits for.
func (d *decision) spareMembers() Change {
	if len(d.effective) < d.target {
		return Change{} // they are on their way to a vote
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
			continue // being made ready for zones
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
