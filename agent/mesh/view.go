package mesh

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// view is the merged list of agents. Gossip and the agent registry update it; readers get sorted snapshots. The list is
// sorted only when it is read: in a storm of joins it changes hundreds of times between two reads.
type view struct {
	self string // this agent's id

	mu     sync.Mutex
	gossip map[string]Member
	record []Member // the agent registry, ordered by id
	// removed has the epochs of the agents that the registry has no more. What gossip still has of
	// their deaths does not count.
	removed map[string]uint64
	prune   chan struct{}   // removed has changed
	banned  map[string]bool // agents that others refuse, whatever they gossip
	merged  map[string]Member
	sorted  []Member // nil: out of date
	alive   int      // of merged
	heard   int      // entries of merged that are alive according to gossip
	subs    map[chan struct{}]struct{}
}

func newView(self string, me Member) *view {
	me.Gossip, me.Since = me.Status, time.Now()
	return &view{
		self:   self,
		gossip: map[string]Member{self: me}, merged: map[string]Member{self: me}, alive: 1, heard: 1,
		removed: map[string]uint64{}, prune: make(chan struct{}, 1), subs: map[chan struct{}]struct{}{},
	}
}

// gossiped applies the news of one agent by gossip. It returns the agent's entry before and after.
func (v *view) gossiped(m Member) (before, after Member) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.banned[m.ID] {
		return v.merged[m.ID], v.merged[m.ID]
	}
	if epoch, ok := v.removed[m.ID]; ok {
		if !m.Status.Alive() && m.Epoch <= epoch {
			return v.merged[m.ID], v.merged[m.ID]
		}
		delete(v.removed, m.ID) // it is back
	}
	v.gossip[m.ID] = m
	return v.merge(m.ID)
}

// gone returns the agents that were removed and are not back.
func (v *view) gone() map[string]bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := make(map[string]bool, len(v.removed))
	for id := range v.removed {
		out[id] = true
	}
	return out
}

// forget removes an agent from the gossip part of the view.
func (v *view) forget(id string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if id == v.self {
		return
	}
	delete(v.gossip, id)
	v.merge(id)
}

// ban removes agents from the view, whatever they gossip from now on. It reports whether that is new.
func (v *view) ban(ids []string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(ids) == len(v.banned) && !slices.ContainsFunc(ids, func(id string) bool { return !v.banned[id] }) {
		return false
	}
	v.banned = make(map[string]bool, len(ids))
	for _, id := range ids {
		v.banned[id] = true
		if _, ok := v.gossip[id]; ok && id != v.self {
			delete(v.gossip, id)
			v.merge(id)
		}
	}
	return true
}

// keep removes the agents that are not known to gossip from its part of the view. Failed agents stay while the registry
// has them: a new generation of gossip has not heard of dead agents.
func (v *view) keep(known map[string]bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for id, m := range v.gossip {
		failed := m.Status == StatusFailed && (len(v.record) == 0 || v.inRecord(id).Status != StatusNone)
		if !known[id] && id != v.self && !failed {
			delete(v.gossip, id)
			v.merge(id)
		}
	}
}

// recorded replaces the agent registry and reports whether the view changed. It keeps the slice.
func (v *view) recorded(records []Member) (changed bool) {
	if !slices.IsSortedFunc(records, byID) {
		records = slices.SortedFunc(slices.Values(records), byID)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	old := v.record
	v.record = records
	// The whole registry arrives for every change of a single agent. Walking two sorted lists in parallel is the cheapest
	// comparison.
	for len(old) > 0 || len(records) > 0 {
		var id string
		switch {
		case len(records) == 0 || len(old) > 0 && old[0].ID < records[0].ID:
			id = old[0].ID
			v.dropped(old[0])
			old = old[1:]
		case len(old) == 0 || records[0].ID < old[0].ID:
			id, records = records[0].ID, records[1:]
		default:
			same := old[0] == records[0]
			id, old, records = records[0].ID, old[1:], records[1:]
			if same {
				continue
			}
		}
		before, after := v.merge(id)
		changed = changed || before != after
	}
	return changed
}

// dropped notes that the registry has an agent no more. An agent that is dead according to gossip is
// forgotten. The caller holds v.mu.
func (v *view) dropped(m Member) {
	g := v.gossip[m.ID]
	if m.ID == v.self || g.Status.Alive() {
		return
	}
	delete(v.gossip, m.ID)
	v.removed[m.ID] = max(m.Epoch, g.Epoch)
}

// inRecord returns an agent's entry in the registry. The caller holds v.mu.
func (v *view) inRecord(id string) Member {
	if i, ok := slices.BinarySearchFunc(v.record, id, func(m Member, id string) int { return cmp.Compare(m.ID, id) }); ok {
		return v.record[i]
	}
	return Member{}
}

// merge updates one entry of the merged view. The caller holds v.mu.
func (v *view) merge(id string) (before, after Member) {
	before = v.merged[id]
	after = Merge(v.gossip[id], v.inRecord(id))
	if id == v.self && after.Status != StatusNone {
		// This agent is alive: a record of its death is contradicted, not believed.
		g := v.gossip[id]
		after.Self, after.Addr, after.Epoch, after.Status = g.Self, g.Addr, g.Epoch, g.Status
	}
	after.Since = before.Since
	if before.Status != after.Status {
		after.Since = time.Now()
	}
	switch {
	case after.Status == StatusNone:
		delete(v.merged, id)
		after = Member{}
	case before == after:
		return before, after
	default:
		v.merged[id] = after
	}
	v.sorted = nil
	v.alive += count(after.Alive()) - count(before.Alive())
	v.heard += count(after.Gossip == StatusAlive) - count(before.Gossip == StatusAlive)
	return before, after
}

func count(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// living returns the number of live agents, this one included.
func (v *view) living() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.alive
}

// hears returns the number of agents that are alive according to gossip, this one included.
func (v *view) hears() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.heard
}

func (v *view) members() []Member {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.sorted == nil {
		v.sorted = make([]Member, 0, len(v.merged))
		for _, m := range v.merged {
			v.sorted = append(v.sorted, m)
		}
		slices.SortFunc(v.sorted, byID)
	}
	return v.sorted
}

func (v *view) member(id string) (Member, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	m, ok := v.merged[id]
	return m, ok
}

func (v *view) size() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.merged)
}

func (v *view) notify() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for ch := range v.subs {
		signal(ch)
	}
}

func (v *view) subscribe() (<-chan struct{}, func()) {
	ch := make(chan struct{}, 1)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.subs[ch] = struct{}{}
	return ch, func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		delete(v.subs, ch)
	}
}

// Members returns the view, ordered by id, this agent included. The caller must not change the slice.
func (m *Mesh) Members() []Member { return m.view.members() }

// Member returns one agent of the view.
func (m *Mesh) Member(id string) (Member, bool) { return m.view.member(id) }

// Subscribe returns a channel that receives a value after the view has changed; several changes may be one value. The
// returned function ends the subscription; it does not close the channel.
func (m *Mesh) Subscribe() (<-chan struct{}, func()) { return m.view.subscribe() }

// Repair replaces the agent registry in the view. The records are all agents of the registry, with ID, Self, Addr,
// Epoch and Status, preferably ordered by id. Repair keeps the slice, so the caller must not change it. The owner calls
// Repair whenever the registry has changed. When Repair returns, the view has every failure in the registry. Agents that were
// removed from the mesh may still have the key of gossip, but nothing that they announce counts.
//
// A record of this agent itself is wrong if it says failed, leaving or left, or has a higher epoch. The agent refutes
// a wrong record by gossip, with a still higher epoch, unless it is leaving.
func (m *Mesh) Repair(records []Member, removed []string) {
	changed := m.view.ban(removed)
	changed = m.view.recorded(records) || changed
	for _, r := range records {
		if r.ID == m.cfg.ID {
			m.contradict(r)
			if r.Addr != "" && r.Addr != m.Addr() {
				signal(m.moved)
			}
		}
	}
	if changed {
		m.view.notify()
		signal(m.remember)
		signal(m.rejoin)
		signal(m.resized)
		signal(m.view.prune)
	}
}

// contradict raises this agent's epoch above that of a wrong record of it.
func (m *Mesh) contradict(r Member) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.leaving != nil {
		return
	}
	wrong := r.Status == StatusFailed || r.Status == StatusLeft || r.Status == StatusLeaving
	if r.Epoch < m.epoch || r.Epoch == m.epoch && !wrong {
		return
	}
	m.epoch = max(r.Epoch+1, uint64(time.Now().UnixMilli()))
	m.log.Info("the agent registry is wrong about this agent; it announces itself again", "recorded", r.Status.String(), "epoch", m.epoch)
	signal(m.announce)
}
