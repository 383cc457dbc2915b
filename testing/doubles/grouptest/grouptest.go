// Package grouptest is a complete Raft group for tests. Its members run in one process
// over in-memory transports. A test can make disks sick, cut the network, and crash members
// and restart them from their stores. It runs inside testing/synctest as well as in real time.
package grouptest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coopr/coopr/consensus/logstore"
	"github.com/coopr/coopr/consensus/raftgroup"
	"github.com/coopr/coopr/testing/doubles/faultystore"
)

// Patience is how long a test waits before it fails. Within a synctest bubble the
// wait takes no real time.
const Patience = 2 * time.Minute

// Options configure a Cluster. The zero value is valid.
type Options struct {
	Timing raftgroup.Timing
	Logger *slog.Logger
	Store  logstore.Options // its Wrap is ignored: each member's Disk takes that place
	// Stores, when set, opens a member's stores instead of the surviving
	// in-memory ones.
	Stores func(id string, wrap func(raft.LogStore, raft.StableStore) (raft.LogStore, raft.StableStore)) (*logstore.Stores, error)
	// FSM, when set, returns a member's state machine, which is a Journal otherwise.
	FSM func(id string) raft.FSM
	// RecoveryDir, when set, returns a member's directory for a recovery file.
	RecoveryDir func(id string) string
	// Transport, when set, wraps a member's transport.
	Transport func(id string, t *raft.InmemTransport) raft.Transport
	// KeepSick leaves a sick member running. Otherwise the cluster shuts it down, as an agent does.
	KeepSick bool
}

// Cluster is the group of members and the network between them.
type Cluster struct {
	t       testing.TB
	o       Options
	mu      sync.Mutex
	members map[string]*Member
	order   []string
	cut     map[[2]string]bool
}

// Member is one member. Its stores survive Crash.
type Member struct {
	ID, Addr string
	Disk     *faultystore.Disk

	c     *Cluster
	log   *raft.InmemStore
	snaps *logstore.MemorySnapshots

	// Below: nil when down. Owned by Cluster.mu.
	group  *raftgroup.Group
	fsm    raft.FSM
	stores *logstore.Stores
	trans  *raft.InmemTransport
	sick   error
	old    *logstore.Stores // the stores of the previous run
}

// New returns a Cluster without members.
func New(t testing.TB, o Options) *Cluster {
	return &Cluster{t: t, o: o, members: make(map[string]*Member), cut: make(map[[2]string]bool)}
}

// Start creates n members a, b, c…, starts them, and bootstraps a group of all of them.
func Start(t testing.TB, n int, o Options) *Cluster {
	t.Helper()
	c := New(t, o)
	var servers []raftgroup.Server
	for i := range n {
		m := c.Add(string(rune('a' + i)))
		servers = append(servers, raftgroup.Server{ID: m.ID, Addr: m.Addr, Voter: true})
	}
	for _, m := range c.Members() {
		if err := m.Group().Bootstrap(context.Background(), servers); err != nil {
			t.Fatalf("bootstrap %s: %v", m.ID, err)
		}
	}
	return c
}

// Add creates a member with empty stores and starts it; the member waits to be added to the group.
func (c *Cluster) Add(id string) *Member {
	c.t.Helper()
	m := c.Make(id)
	m.Start()
	return m
}

// Make creates a member with empty stores without starting it.
func (c *Cluster) Make(id string) *Member {
	m := &Member{ID: id, Addr: "addr-" + id, Disk: &faultystore.Disk{}, c: c,
		log: raft.NewInmemStore(), snaps: logstore.NewMemorySnapshots(2)}
	c.mu.Lock()
	c.members[id] = m
	c.order = append(c.order, id)
	c.mu.Unlock()
	return m
}

// Members returns all members, running or not, in the order of their creation.
func (c *Cluster) Members() []*Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]*Member, 0, len(c.order))
	for _, id := range c.order {
		out = append(out, c.members[id])
	}
	return out
}

// Member returns the member with that id, or nil if there is none.
func (c *Cluster) Member(id string) *Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.members[id]
}

// Start starts a stopped member from its stores.
func (m *Member) Start() {
	m.c.t.Helper()
	m.c.Until("the last write of "+m.ID+"'s last life to come back", m.ended)
	if err := m.TryStart(); err != nil {
		m.c.t.Fatalf("start %s: %v", m.ID, err)
	}
}

// ended reports whether the stores of the member's previous run are closed.
func (m *Member) ended() bool {
	m.c.mu.Lock()
	old := m.old
	m.c.mu.Unlock()
	if old == nil {
		return true
	}
	select {
	case <-old.Closed():
		return true
	default:
		return false
	}
}

// TryStart is Start, but it returns an error when the member cannot start.
func (m *Member) TryStart() error {
	if !m.ended() {
		return fmt.Errorf("start %s: %w", m.ID, logstore.ErrInUse) // as with stores on disk
	}
	stores, err := m.openStores()
	if err != nil {
		return err
	}
	_, trans := raft.NewInmemTransport(raft.ServerAddress(m.Addr))
	var fsm raft.FSM = &Journal{}
	if m.c.o.FSM != nil {
		fsm = m.c.o.FSM(m.ID)
	}
	var network raft.Transport = trans
	if m.c.o.Transport != nil {
		network = m.c.o.Transport(m.ID, trans)
	}
	cfg := raftgroup.Config{
		ID: m.ID, FSM: fsm, Transport: network, Stores: stores,
		Timing: m.c.o.Timing, Logger: m.c.o.Logger, OnSick: m.onSick,
	}
	if cfg.Logger != nil {
		cfg.Logger = cfg.Logger.With("member", m.ID)
	}
	if m.c.o.RecoveryDir != nil {
		cfg.RecoveryDir = m.c.o.RecoveryDir(m.ID)
	}
	g, err := raftgroup.New(cfg)
	if err != nil {
		return errors.Join(err, stores.Close())
	}
	m.c.mu.Lock()
	m.group, m.fsm, m.stores, m.trans, m.sick = g, fsm, stores, trans, nil
	m.c.mu.Unlock()
	m.c.rewire()
	return nil
}

func (m *Member) openStores() (*logstore.Stores, error) {
	if m.c.o.Stores != nil {
		return m.c.o.Stores(m.ID, m.Disk.Wrap)
	}
	o := m.c.o.Store
	o.Wrap = m.Disk.Wrap
	return logstore.FromParts(m.log, m.log, m.snaps, o)
}

func (m *Member) onSick(err error) {
	m.c.mu.Lock()
	m.sick = err
	keep := m.c.o.KeepSick
	m.c.mu.Unlock()
	if !keep {
		m.stop()
	}
}

// Sick returns the fault that the member has reported, or nil.
func (m *Member) Sick() error {
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	return m.sick
}

// Group returns the running member, or nil when it is stopped.
func (m *Member) Group() *raftgroup.Group {
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	return m.group
}

// Up reports whether the member runs.
func (m *Member) Up() bool { return m.Group() != nil }

// FSM returns the member's state machine, or nil when the member is stopped.
func (m *Member) FSM() raft.FSM {
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	return m.fsm
}

// Journal returns the member's state machine if Options.FSM is not set.
func (m *Member) Journal() *Journal { return m.FSM().(*Journal) }

// Crash stops a member without notice to the others: it cuts the member's network first.
func (m *Member) Crash() { m.stop() }

func (m *Member) stop() {
	m.c.mu.Lock()
	g, stores, trans := m.group, m.stores, m.trans
	m.group, m.fsm, m.stores, m.trans = nil, nil, nil, nil
	if g != nil {
		m.old = stores
	}
	m.c.mu.Unlock()
	if g == nil {
		return
	}
	m.c.rewire()
	trans.DisconnectAll()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	if err := g.Shutdown(ctx); err != nil {
		m.c.t.Errorf("stop %s: %v", m.ID, err)
	}
	if err := stores.Close(); err != nil && !errors.Is(err, logstore.ErrStuck) {
		m.c.t.Errorf("close the stores of %s: %v", m.ID, err)
	}
}

// Stop heals all disks and stops all members, so that no goroutine stays behind.
func (c *Cluster) Stop() {
	for _, m := range c.Members() {
		m.Disk.Heal()
	}
	var all sync.WaitGroup
	for _, m := range c.Members() {
		all.Go(m.stop)
	}
	all.Wait()
}

// Partition cuts the network into sides. Members that no side names are cut off from all others. The
// cut also holds for members that start later.
func (c *Cluster) Partition(sides ...[]string) {
	side := map[string]int{}
	for i, s := range sides {
		for _, id := range s {
			side[id] = i + 1
		}
	}
	c.mu.Lock()
	c.cut = make(map[[2]string]bool)
	for i, a := range c.order {
		for _, b := range c.order[i+1:] {
			if side[a] != side[b] || side[a] == 0 {
				c.cut[[2]string{a, b}], c.cut[[2]string{b, a}] = true, true
			}
		}
	}
	c.mu.Unlock()
	c.rewire()
}

// Heal ends all cuts.
func (c *Cluster) Heal() {
	c.mu.Lock()
	c.cut = make(map[[2]string]bool)
	c.mu.Unlock()
	c.rewire()
}

// rewire connects each pair of running members unless the network between them is cut.
func (c *Cluster) rewire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.members {
		if a.trans == nil {
			continue
		}
		for _, b := range c.members {
			addr := raft.ServerAddress(b.Addr)
			if b.trans == nil || c.cut[[2]string{a.ID, b.ID}] {
				a.trans.Disconnect(addr)
			} else {
				a.trans.Connect(addr, b.trans)
			}
		}
	}
}

// Until waits for a condition. If the condition stays false for Patience, the test fails and names it.
func (c *Cluster) Until(what string, ok func() bool) {
	c.t.Helper()
	Until(c.t, what, ok)
}

// Until waits for a condition. If the condition stays false for Patience, the test fails and names it.
func Until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(Patience); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for: %s", what)
		}
		<-time.After(2 * time.Millisecond)
	}
}

// Leader waits for a member that leads and can commit, and returns it.
func (c *Cluster) Leader() *Member {
	c.t.Helper()
	return c.LeaderAmong()
}

// LeaderAmong is Leader for the named members only, or for all members if none are named.
func (c *Cluster) LeaderAmong(ids ...string) *Member {
	c.t.Helper()
	var found *Member
	c.Until(fmt.Sprintf("a leader among %v", ids), func() bool {
		for _, m := range c.Members() {
			if len(ids) > 0 && !contains(ids, m.ID) {
				continue
			}
			g := m.Group()
			if g == nil || !g.IsLeader() {
				continue
			}
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			err := g.Barrier(ctx)
			cancel()
			if err == nil {
				found = m
				return true
			}
		}
		return false
	})
	return found
}

func contains(list []string, s string) bool {
	for _, l := range list {
		if l == s {
			return true
		}
	}
	return false
}

// Apply submits an entry to the current leader until the entry is certainly committed. It submits an
// entry with an unknown outcome again, so the entry may be applied twice.
func (c *Cluster) Apply(data string) {
	c.t.Helper()
	c.Until("the entry "+data, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		return c.Leader().Group().Apply([]byte(data)).Wait(ctx) == nil
	})
}

// Agree waits until all running members hold the same journal, and returns its entries.
func (c *Cluster) Agree() []string {
	c.t.Helper()
	var want []string
	c.Until("all members to agree", func() bool {
		lead, ok := c.Leader().FSM().(*Journal)
		if !ok {
			return false // it has just stopped
		}
		want = lead.Entries()
		for _, m := range c.Members() {
			if !m.Up() {
				continue
			}
			j, ok := m.FSM().(*Journal)
			if !ok || !equal(j.Entries(), want) {
				return false
			}
		}
		return true
	})
	return want
}

func equal(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}
