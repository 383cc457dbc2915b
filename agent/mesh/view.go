package mesh

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// view is the merged list of agents. Gossip events and records come in, sorted snapshots go out; the list is only
// sorted when somebody asks, for in a storm of joins nobody can read 500 versions of it.
type view struct {
	self string // our own id

	mu     sync.Mutex
	gossip map[string]Member
	record []Member // in the order of ids
	merged map[string]Member
	sorted []Member // nil: out of date
	alive  int      // of merged
	heard  int      // alive by gossip alone, of merged
	subs   map[chan struct{}]struct{}
}

func newView(self string, me Member) *view {
	me.Gossip, me.Since = me.Status, time.Now()
	return &view{
		self:   self,
		gossip: map[string]Member{self: me}, merged: map[string]Member{self: me}, alive: 1, heard: 1,
		subs: map[chan struct{}]struct{}{},
	}
}

// gossiped takes in what gossip says of one agent, and gives its entry before and after.
func (v *view) gossiped(m Member) (before, after Member) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.gossip[m.ID] = m
	return v.merge(m.ID)
}

// forget drops what gossip said of an agent.
func (v *view) forget(id string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if id == v.self {
		return
	}
	delete(v.gossip, id)
	v.merge(id)
}

// keep drops what gossip said of agents it no longer knows. Those that failed stay, unless they were taken out of the
// record: gossip that began anew has not heard of the dead.
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

// recorded replaces the list of record, and says whether that changed anything. It keeps the slice.
func (v *view) recorded(records []Member) (changed bool) {
	if !slices.IsSortedFunc(records, byID) {
		records = slices.SortedFunc(slices.Values(records), byID)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	old := v.record
	v.record = records
	// Most have not changed in a list of hundreds that comes again for every one that has: two sorted lists side by side
	// are the cheapest comparison.
	for len(old) > 0 || len(records) > 0 {
		var id string
		switch {
		case len(records) == 0 || len(old) > 0 && old[0].ID < records[0].ID:
			id, old = old[0].ID, old[1:]
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

// inRecord is what the record says of one agent. v.mu is held.
func (v *view) inRecord(id string) Member {
	if i, ok := slices.BinarySearchFunc(v.record, id, func(m Member, id string) int { return cmp.Compare(m.ID, id) }); ok {
		return v.record[i]
	}
	return Member{}
}

// merge brings one entry up to date. v.mu is held.
func (v *view) merge(id string) (before, after Member) {
	before = v.merged[id]
	after = Merge(v.gossip[id], v.inRecord(id))
	if id == v.self && after.Status != StatusNone {
		// We know best: a record of our death is contradicted, not believed.
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

// living is the number of agents that are alive, this one included.
func (v *view) living() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.alive
}

// hears is the number of agents that gossip has alive, this one included.
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

// Members is the view, ordered by id, this agent included. The slice is shared: do not change it.
func (m *Mesh) Members() []Member { return m.view.members() }

// Member gives one agent of the view.
func (m *Mesh) Member(id string) (Member, bool) { return m.view.member(id) }

// Subscribe gives a channel that gets a value after the view changed; several changes may be one value. Call the
// function when done: the channel is not closed.
func (m *Mesh) Subscribe() (<-chan struct{}, func()) { return m.view.subscribe() }

// Repair replaces the list of record: the whole replicated agents table as Members (ID, Self, Addr, Epoch and Status
// set), best in the order of ids. The slice is kept. The owner calls it whenever the table changed. A death in it is in the view when Repair returns. If the record
// has this agent itself as failed or left, the agent contradicts by gossip with a higher epoch.
func (m *Mesh) Repair(records []Member) {
	changed := m.view.recorded(records)
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
	}
}

// contradict raises our epoch over that of a record that is wrong about us.
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
	m.log.Info("the list of record is wrong about this agent, contradicting", "recorded", r.Status.String(), "epoch", m.epoch)
	signal(m.announce)
}
