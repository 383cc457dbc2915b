package apitest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coopr/coopr/agent/member"
	"github.com/coopr/coopr/agent/tasks"
	"github.com/coopr/coopr/consensus/duty/dispatch"
	"github.com/coopr/coopr/consensus/duty/incidents"
	"github.com/coopr/coopr/consensus/duty/integrity"
	"github.com/coopr/coopr/consensus/duty/janitor"
	"github.com/coopr/coopr/consensus/duty/keys"
	"github.com/coopr/coopr/consensus/duty/logins"
	"github.com/coopr/coopr/consensus/duty/orchestrate"
	"github.com/coopr/coopr/consensus/duty/sinks"
	"github.com/coopr/coopr/consensus/duty/sites"
	"github.com/coopr/coopr/consensus/duty/uses"
	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/consensus/leader"
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/logstore"
	"github.com/coopr/coopr/consensus/raftgroup"
	"github.com/coopr/coopr/consensus/replica"
	"github.com/coopr/coopr/consensus/sealed"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/lease"
	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/proto/record"
	"github.com/coopr/coopr/testing/doubles/logtest"
	"github.com/coopr/coopr/testing/doubles/memkeys"
)

// Store is a Raft member with the state that the agents of one test mesh share. It leads a group
// of its own.
type Store struct {
	member *member.Member
	stores *logstore.Stores
	ring   *keyring.Ring
	lead   atomic.Pointer[member.Leadership]
	terms  *leader.Runner
	ticks  atomic.Int64 // of the clock
	logs   *taskLogs
	stop   func()
}

// The tokens of a new store.
const (
	Root  = "root-token"  // of the mesh, which every agent knows
	Super = "super-token" // root of tenant "main"
	Admin = "admin-token" // alice, admin of tenant "acme"
	User  = "user-token"  // bob, user of tenant "acme"
	Other = "other-token" // carol, user of tenant "acme"
	Guest = "guest-token" // dave, with read access to tenant "acme"
)

// Epoch is the time at which a store's clock starts, in Unix milliseconds. The clock goes on by a
// second with each entry of the log.
const Epoch = 1_750_000_000_000

const (
	peerAddr = "127.0.0.1:55055"
	apiAddr  = "127.0.0.1:55054"
	worker   = "session-a" // the session whose tasks the test carries out
	slots    = 4
	forever  = 1000 * time.Hour
)

// NewStore returns a store with the tenants "main" and "acme" and their tokens. Close stops it.
func NewStore() *Store {
	s := &Store{logs: &taskLogs{texts: map[string][]byte{}, changed: make(chan struct{})}}
	log := raft.NewInmemStore()
	var err error
	s.stores, err = logstore.FromParts(log, log, logstore.NewMemorySnapshots(2), logstore.Options{Deadline: -1})
	check(err)
	addr, transport := raft.NewInmemTransport(peerAddr)
	r, err := replica.New(replica.Config{
		ID: id("a"), Transport: transport, Stores: s.stores, Timing: raftgroup.Timing{HeartbeatTimeout: 10 * time.Millisecond}, Now: s.tick,
	})
	check(err)
	s.ring, err = keyring.Open(&memkeys.Store{})
	check(err)
	s.member = &member.Member{Replica: r, Box: sealed.NewBox(r.Machine, r.Propose, s.ring)}
	s.terms, err = leader.New(leader.Config{Group: r.Group, Duties: s.duties})
	check(err)
	applied := make(chan struct{}, 1)
	unwatch := r.Machine.Watch(func(state.Batch) {
		s.logs.notify()
		select {
		case applied <- struct{}{}:
		default:
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { check(s.terms.Run(ctx)) })
	s.stop = func() {
		cancel()
		unwatch()
		running.Wait()
		check(r.Group.Shutdown(context.Background()))
		check(s.stores.Close())
	}
	check(r.Group.Bootstrap(ctx, []raftgroup.Server{{ID: id("a"), Addr: string(addr), Voter: true}}))
	for !s.ready() {
		changed := s.terms.ReadyChanged()
		if !s.ready() {
			<-changed
		}
	}
	// The first search for orphans is an entry, too. After it, only requests move the clock.
	for r.Machine.View().Orphans().At == 0 {
		<-applied
	}
	s.seed()
	return s
}

// Close stops the store.
func (s *Store) Close() { s.stop() }

// id returns the id of an agent.
func id(name string) string { return "id-" + name }

// check panics if something fails that cannot fail in a test.
func check(err error) {
	if err != nil {
		panic(fmt.Sprintf("apitest: %v", err))
	}
}

// clock returns the present time.
func (s *Store) clock() time.Time {
	return time.UnixMilli(Epoch).Add(time.Duration(s.ticks.Load()) * time.Second)
}

// tick returns the time of the next entry.
func (s *Store) tick() time.Time {
	s.ticks.Add(1)
	return s.clock()
}

func (s *Store) ready() bool {
	_, ok := s.terms.Ready()
	return ok
}

// duties returns the duties that requests use. No duty acts by itself, except that the
// orchestrator starts what follows an operation. The janitor is not among them, as it would
// remove what is old by the clock of the machine, nor is integrity, as there is one copy of the state.
func (s *Store) duties(uint64) []leader.Duty {
	m, propose, log := s.member.Machine, s.member.Propose, slog.New(slog.DiscardHandler)
	k := keys.New(keys.Config{
		Machine: m, Propose: propose, Box: s.member.Box, Ring: s.ring, ID: id("a"), Logger: log,
		Members: func() []keys.Member { return []keys.Member{{ID: id("a"), Voter: true}} },
	})
	l := &member.Leadership{
		Dispatcher: dispatch.New(dispatch.Config{
			Machine: m, Propose: propose, Tasks: tasks.NewBuilder(m, s.member.Box, ""), Logger: log, Timing: lease.Timing{TTL: forever},
			Jitter: func() float64 { return 0 }, Seal: k.Sealer.SealResults,
		}),
		Orchestrator: orchestrate.New(orchestrate.Config{
			Machine: m, Propose: propose, Logger: log, Rank: plugins{}.Rank, Seal: k.Sealer.SealFields, SealHidden: k.Sealer.SealHidden,
		}),
		Sites: sites.New(sites.Config{Machine: m, Propose: propose, Logger: log, Node: sites.NodeAccess(s.member.Box), Paused: sites.Resting,
			Box: s.member.Box, Seal: k.Sealer.SealObjects}),
		Orphans: janitor.NewOrphans(janitor.OrphansConfig{
			Machine: m, Propose: propose, Finder: finder{}, Opener: s.member.Box, Logger: log, Every: forever,
		}),
		Janitor:   janitor.New(janitor.Config{Machine: m, Propose: propose, Logger: log}),
		Integrity: integrity.New(integrity.Config{Machine: m, Propose: propose, Logger: log}),
		Logins:    logins.New(logins.Config{Machine: m, Propose: propose, Ring: s.ring, Box: s.member.Box, Logger: log}),
		Uses:      uses.New(uses.Config{Machine: m, Propose: propose, Logger: log}),
		Keys:      k,
		Incidents: incidents.New(incidents.Config{Machine: m, Propose: propose, Logger: log}),
		Sinks: sinks.New(sinks.Config{Machine: m, Propose: propose, Logger: log, Targets: []sinks.Target{
			{Name: "siem", Type: "syslog", Where: "tls://logs.example.com:6514"},
		}}),
	}
	check(l.Sinks.Restore(context.Background()))
	s.lead.Store(l)
	return []leader.Duty{l.Orchestrator, l.Dispatcher, l.Sites, l.Orphans}
}

// seed writes what every test mesh begins with.
func (s *Store) seed() {
	for _, t := range []model.Tenant{{Name: "main"}, {Name: "acme", MaxClusters: 3, MaxNodes: 12000}} {
		put, err := logformat.PutTenant(&t, true)
		check(err)
		s.Must(&pb.Command{Change: put})
	}
	s.Must(&pb.Command{Change: &pb.Command_OpenSession{OpenSession: &pb.OpenSession{
		Session: worker, Agent: id("a"), Types: []*record.PluginType{logtest.PluginType(cloud), logtest.PluginType(shell)},
		Record: logtest.Agent(model.Agent{ID: id("a"), Name: "a", PeerAddr: peerAddr, APIAddr: apiAddr, Build: "test", Slots: slots}),
	}}})
	tokens := map[string]model.Token{
		Super: {ID: "t1", Actor: "root", Tenant: "main", Role: model.RoleSuperadmin},
		Admin: {ID: "t2", Actor: "alice", Tenant: "acme", Role: model.RoleAdmin},
		User:  {ID: "t3", Actor: "bob", Tenant: "acme", Role: model.RoleUser},
		Other: {ID: "t4", Actor: "carol", Tenant: "acme", Role: model.RoleUser},
		Guest: {ID: "t5", Actor: "dave", Tenant: "acme", Role: model.RoleRead},
	}
	for _, secret := range slices.Sorted(maps.Keys(tokens)) {
		t, sum := tokens[secret], sha256.Sum256([]byte(secret))
		s.Must(&pb.Command{Change: &pb.Command_PutToken{PutToken: &pb.PutToken{
			Hash: sum[:], Actor: t.Actor, Tenant: t.Tenant, Role: string(t.Role), Id: t.ID,
		}}})
	}
}

// Must commits a command, which must succeed.
func (s *Store) Must(c *pb.Command) state.Answer {
	answers, err := s.member.Propose(context.Background(), c)
	check(err)
	check(answers[0].Err)
	return answers[0]
}

// RecordUses records the uses of tokens that requests have noted.
func (s *Store) RecordUses() { check(s.lead.Load().Uses.Flush(context.Background())) }

// Index returns the index of the present state.
func (s *Store) Index() uint64 { return s.member.Machine.View().Index() }

// Prune drops all but the newest records of the audit log.
func (s *Store) Prune(keep uint64) {
	s.Must(&pb.Command{Change: &pb.Command_Prune{Prune: &pb.Prune{AuditKeep: keep}}})
}
