package member

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"golang.org/x/sync/errgroup"

	"github.com/coopr/coopr/agent/mesh"
	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/consensus/leader"
	"github.com/coopr/coopr/consensus/logstore"
	"github.com/coopr/coopr/consensus/raftgroup"
	"github.com/coopr/coopr/consensus/replica"
	"github.com/coopr/coopr/consensus/sealed"
	"github.com/coopr/coopr/consensus/state"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Mesh is the view of the mesh that gossip keeps; *mesh.Mesh implements it.
type Mesh interface {
	Members() []mesh.Member
	Member(id string) (mesh.Member, bool)
	// Subscribe returns a channel that receives a value after each change of the view.
	Subscribe() (changed <-chan struct{}, stop func())
	// JoinTried is closed once the agent has joined the mesh or has tried all addresses.
	JoinTried() <-chan struct{}
	// Answers reports whether an agent answers a probe now.
	Answers(ctx context.Context, id string) bool
}

// Peers connects to other agents; *peer.Pool implements it.
type Peers interface {
	// Client returns a client of the agent at an address, or of a wire.Target.
	Client(target string) (pb.PeerClient, error)
	// Drop closes the connection to an address, so that the next call dials again.
	Drop(addr string)
}

// Transport is a Raft transport that can be closed. Its owner closes it.
type Transport interface {
	raft.Transport
	raft.WithClose
}

// Config configures a Supervisor. All fields are required except
// ResourcesChanged and those whose comment names a default.
type Config struct {
	// ID is this agent's lasting identity, Build the version of its binary.
	ID, Build string
	// Eligible is false for an agent that never holds replicated state.
	Eligible bool
	// BootstrapExpect is the number of eligible agents that start the first Raft
	// group together. 0 means that this agent does not start one.
	BootstrapExpect int
	Stores          Stores
	// NewTransport returns the transport of one life of the member.
	NewTransport func() Transport
	Timing       raftgroup.Timing
	// Keyring has the mesh's keys on a voter; on another agent it is empty.
	Keyring *keyring.Ring
	// RecoveryDir is where an operator leaves the file that replaces the Raft group.
	RecoveryDir string

	Mesh     Mesh
	Peers    Peers
	Registry *Registry
	Leader   LeaderConfig
	// ResourcesChanged is called when the state refers to other plugin resources.
	ResourcesChanged func()
	// ResourcesFollowed reports whether the contents of this agent's plugin resources need no mesh key but the active one, and has them
	// encrypted again if they do. Nil: there are none.
	ResourcesFollowed func() (bool, error)
	Logger            *slog.Logger
}

// Supervisor keeps a Raft member running for as long as the agent runs.
type Supervisor struct {
	cfg    Config
	member atomic.Pointer[Member] // nil while there is none
	tally  *tally
}

// New returns a Supervisor that Run starts.
func New(cfg Config) *Supervisor { return &Supervisor{cfg: cfg, tally: newTally()} }

// Member returns the Raft member, or nil while this agent has none.
func (s *Supervisor) Member() *Member { return s.member.Load() }

// Leader returns the member and its leadership if this agent leads and its
// duties are running. The member is returned either way; it may be nil.
func (s *Supervisor) Leader() (*Member, *Leadership, bool) {
	m := s.member.Load()
	if m == nil {
		return nil, nil, false
	}
	l, ok := m.Leadership()
	return m, l, ok
}

// readyTimeout is how long AwaitReady waits for the duties of a new leader.
const readyTimeout = 3 * time.Second

// AwaitReady is like Leader, but it waits a few seconds for the duties of an
// agent that has just been elected.
func (s *Supervisor) AwaitReady(ctx context.Context) (*Member, *Leadership, error) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		m := s.member.Load()
		if m == nil {
			return nil, nil, errors.New("this agent holds no replicated state")
		}
		changed := m.terms.ReadyChanged()
		if l, ok := m.Leadership(); ok {
			return m, l, nil
		}
		if !m.Group.IsLeader() {
			return nil, nil, errors.New("this agent is not the leader")
		}
		select {
		case <-ctx.Done():
			return nil, nil, errors.New("this agent is the leader, but its duties are not running yet")
		case <-changed:
		}
	}
}

// Run keeps a member running until ctx ends. A member whose disk is sick is shut
// down and started again after a pause, until the disk works.
func (s *Supervisor) Run(ctx context.Context) error {
	if !s.cfg.Eligible {
		<-ctx.Done()
		return nil
	}
	for pause := time.Second; ; pause = min(2*pause, time.Minute) {
		start := time.Now()
		err := s.runMember(ctx)
		s.member.Store(nil)
		if ctx.Err() != nil {
			return nil
		}
		s.cfg.Logger.Error("the Raft member stopped; it is started again after a pause", "error", err, "pause", pause)
		switch {
		case errors.Is(err, logstore.ErrDamaged):
			s.putAside(ctx, err)
		case errors.Is(err, logstore.ErrDiskFull):
			s.makeRoom(ctx)
		}
		if time.Since(start) > time.Minute {
			pause = time.Second
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

var (
	errStopped = errors.New("the agent stopped the Raft member")
	errEnded   = errors.New("the Raft member ended by itself")
)

// runMember runs one life of the member, until it fails or ctx ends.
func (s *Supervisor) runMember(ctx context.Context) (err error) {
	stores, err := s.cfg.Stores.Open()
	if err != nil {
		return fmt.Errorf("open the Raft log: %w", err)
	}
	defer func() { err = errors.Join(err, stores.Close()) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errStopped)
	transport := s.cfg.NewTransport()
	r, err := replica.New(replica.Config{
		ID: s.cfg.ID, Transport: transport, Stores: stores, Timing: s.cfg.Timing, Logger: s.cfg.Logger,
		OnSick:      func(err error) { cancel(err) },
		OnHalt:      func(err error) { cancel(err) },
		RecoveryDir: s.cfg.RecoveryDir,
	})
	if err != nil {
		return errors.Join(err, transport.Close())
	}
	m := &Member{Replica: r, Box: sealed.NewBox(r.Machine, r.Propose, s.cfg.Keyring), cfg: &s.cfg, faults: make(chan error, 1),
		resealed: make(chan struct{}, 1), stores: stores}
	if m.voters, err = m.newVoters(); err != nil {
		return err
	}
	m.terms, err = leader.New(leader.Config{Group: r.Group, Logger: s.cfg.Logger, Duties: func(uint64) []leader.Duty { return m.duties() }})
	if err != nil {
		return err
	}
	s.member.Store(m)
	defer r.Machine.Watch(s.watch(m))()
	var g errgroup.Group
	g.Go(func() error { return m.terms.Run(ctx) })
	g.Go(func() error { return m.bootstrap(ctx) })
	g.Go(func() error { return m.compact(ctx) })
	g.Go(func() error { m.protect(ctx); return nil })
	g.Go(func() error { s.retire(ctx, m, cancel); return nil })
	go s.scrub(ctx, stores, m) // not waited for, as a disk may hang
	select {
	case <-ctx.Done():
	case <-r.Group.Done():
		cancel(errEnded)
	}
	s.member.CompareAndSwap(m, nil)
	stop, done := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer done()
	err = r.Group.Shutdown(stop)
	return errors.Join(context.Cause(ctx), g.Wait(), err)
}

// watch returns the function that follows the changes of a member's state.
func (s *Supervisor) watch(m *Member) func(state.Batch) {
	return func(b state.Batch) {
		if _, leads := m.Leadership(); leads {
			s.tally.add(b.Tally)
		}
		if b.Restored { // by the leader's snapshot
			m.distrusted.Store(false)
		}
		if (b.Resources || b.Restored) && s.cfg.ResourcesChanged != nil {
			s.cfg.ResourcesChanged()
		}
		if b.Resealed {
			select {
			case m.resealed <- struct{}{}:
			default:
			}
		}
		if b.Agents {
			v := m.Machine.View()
			s.cfg.Registry.load(v.Agents(), v.RemovedAgents())
		}
	}
}

// HandOver transfers the leadership to another voter before this agent stops. It
// does nothing on an agent that does not lead.
func (s *Supervisor) HandOver() {
	m := s.member.Load()
	if m == nil || !m.Group.IsLeader() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := m.Group.Transfer(ctx, ""); err != nil && !errors.Is(err, raftgroup.ErrNoPeer) {
		s.cfg.Logger.Warn("the leadership could not be transferred before this agent stops", "error", err)
	}
}

// foreign reports whether mesh is the id of another mesh than the one whose
// state this agent holds.
func (s *Supervisor) foreign(mesh string) bool {
	m := s.member.Load()
	if m == nil || mesh == "" {
		return false
	}
	own := m.Machine.View().Mesh()
	return own != "" && own != mesh
}
