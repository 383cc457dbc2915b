package raftgroup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coopr/coopr/consensus/logstore"
	"github.com/coopr/coopr/internal/hclogbridge"
)

// Config is what a member is made of. ID, FSM, Transport and Stores are required.
type Config struct {
	// ID is the agent's lasting identity. Addresses may change, this may not.
	ID string
	// FSM is the replicated state. Restore must replace all it holds. A
	// BatchingFSM is used as one.
	FSM raft.FSM
	// Transport carries the messages. Shutdown closes it. A
	// ServerAddressProvider, by which messages find a member that has moved, is
	// the transport's business.
	Transport raft.Transport
	// Stores keep log, votes and snapshots. They stay the caller's: close them
	// after Shutdown.
	Stores *logstore.Stores
	// Timing may be left zero.
	Timing Timing
	// Logger may be nil.
	Logger *slog.Logger
	// OnSick is called at most once, on a goroutine of its own, when the member
	// can no longer do its work: the error wraps logstore.ErrSick or
	// ErrTransferStuck. The owner shuts the member down, and makes a new one
	// when the cause is gone.
	OnSick func(error)
	// RecoveryDir, when set, is where a peers.json of the operator is looked for
	// at start (see RecoverFile).
	RecoveryDir string
}

// Group is one member. All methods may be called from any goroutine.
type Group struct {
	cfg    Config
	timing Timing
	raft   *raft.Raft
	log    *slog.Logger
	state  *tracker
	trans  *watchedTransport
	events *eventLog

	notify   chan bool     // raft's leadership changes; unbuffered, see pump
	done     chan struct{} // closed when the member has stopped
	sickOnce sync.Once

	mu          sync.Mutex
	closing     bool
	pending     map[*future]struct{}
	questions   int           // of the library, not answered yet; see ask
	drained     chan struct{} // closed when nothing is pending or asked any more; set while closing
	leaderMoved chan struct{} // closed at the next change of leader
	firstOf     uint64        // the last term of ours of which an entry has been applied here
	transfers   int           // under way
	reads       readRounds
}

// New starts a member. With empty stores it waits until Bootstrap is called or
// a leader contacts it.
func New(cfg Config) (*Group, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	g := &Group{
		cfg:         cfg,
		timing:      cfg.Timing.stretched(),
		log:         cfg.Logger,
		events:      newEventLog(),
		notify:      make(chan bool),
		done:        make(chan struct{}),
		pending:     make(map[*future]struct{}),
		leaderMoved: make(chan struct{}),
	}
	snapshots := &watchedSnapshots{SnapshotStore: cfg.Stores.Snapshots}
	g.state = newTracker(cfg.FSM, snapshots)
	g.trans = watchTransport(cfg.Transport, g.timing.HeartbeatTimeout/beats)

	conf := g.raftConfig()
	if cfg.RecoveryDir != "" {
		if err := g.recoverFromFile(conf, snapshots); err != nil {
			return nil, err
		}
	}
	if err := dropCovered(cfg.Stores); err != nil {
		return nil, fmt.Errorf("start Raft member %s: %w", cfg.ID, err)
	}
	r, err := start(conf, g.state.fsm(), cfg.Stores, snapshots, g.trans.forRaft())
	if err != nil {
		return nil, fmt.Errorf("start Raft member %s: %w", cfg.ID, err)
	}
	g.raft = r
	cfg.Stores.Guard().Arm()
	cfg.Stores.Guard().OnSick(g.sick)
	r.RegisterObserver(raft.NewObserver(nil, false, g.observe))
	go g.pump()
	return g, nil
}

func (c Config) validate() error {
	var faults []error
	need := func(ok bool, what string) {
		if !ok {
			faults = append(faults, fmt.Errorf("raftgroup: Config.%s is missing", what))
		}
	}
	need(c.ID != "", "ID")
	need(c.FSM != nil, "FSM")
	need(c.Transport != nil, "Transport")
	need(c.Stores != nil, "Stores")
	if err := c.Timing.Validate(); err != nil {
		faults = append(faults, fmt.Errorf("raftgroup: Config.Timing: %w", err))
	}
	return errors.Join(faults...)
}

func (g *Group) raftConfig() *raft.Config {
	c := raft.DefaultConfig()
	g.timing.apply(c)
	c.LocalID = raft.ServerID(g.cfg.ID)
	c.ProtocolVersion = raft.ProtocolVersionMax
	c.BatchApplyCh = true
	c.ShutdownOnRemove = false // a member that was removed waits to be added again
	c.NoLegacyTelemetry = true
	c.NotifyCh = g.notify
	c.Logger = hclogbridge.New(g.log).Named("raft")
	return c
}

// dropCovered removes a log that ends before the newest snapshot begins. It is
// left by a crash, or a failed write, between the two steps in which a snapshot
// from the leader is installed. A store that allows no gaps would refuse every
// entry that follows the snapshot, for ever.
func dropCovered(s *logstore.Stores) error {
	m, ok := s.Log.(raft.MonotonicLogStore)
	if !ok || !m.IsMonotonic() {
		return nil
	}
	first, err := s.Log.FirstIndex()
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	last, err := s.Log.LastIndex()
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	list, err := s.Snapshots.List()
	if err != nil {
		return fmt.Errorf("list snapshots: %w", err)
	}
	if last == 0 || len(list) == 0 || list[0].Index <= last {
		return nil
	}
	// Opening checks the snapshot's sum: if it is damaged the log is still needed.
	_, rc, err := s.Snapshots.Open(list[0].ID)
	if err != nil {
		return nil // NewRaft will find an older one, or say so
	}
	if err := rc.Close(); err != nil {
		return fmt.Errorf("read snapshot %s: %w", list[0].ID, err)
	}
	return s.Log.DeleteRange(first, last)
}

// start turns the library's panic on a store that cannot be used into an error.
func start(conf *raft.Config, fsm raft.FSM, s *logstore.Stores, snapshots raft.SnapshotStore, t raft.Transport) (r *raft.Raft, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", ErrUnusable, p)
		}
	}()
	return raft.NewRaft(conf, fsm, s.Log, s.Stable, snapshots, t)
}

// ID is the member's identity.
func (g *Group) ID() string { return g.cfg.ID }

// Library is the member itself, for libraries that work on it (raft-autopilot).
// Entries handed in here bypass the safeguards of Apply.
func (g *Group) Library() *raft.Raft { return g.raft }

// Done is closed when the member has stopped.
func (g *Group) Done() <-chan struct{} { return g.done }

// sick passes a fault on that only a restart of the member can mend.
func (g *Group) sick(err error) {
	g.sickOnce.Do(func() {
		g.mu.Lock()
		closing := g.closing
		g.mu.Unlock()
		if closing {
			return
		}
		g.log.Error("the Raft member must stop", "error", err)
		if g.cfg.OnSick != nil {
			go g.cfg.OnSick(err)
		}
	})
}

// Shutdown stops the member: entries under way are given a moment to end, new
// ones are refused, then Raft and its transport are closed. A leader that
// leaves in good order calls Transfer before. When ctx ends first the error
// says so, and the rest of the stop goes on behind. Calls after the first wait
// for it too.
func (g *Group) Shutdown(ctx context.Context) error {
	g.mu.Lock()
	first := !g.closing
	g.closing = true
	var drained chan struct{}
	if first && len(g.pending)+g.questions > 0 {
		g.drained = make(chan struct{})
		drained = g.drained
	}
	g.mu.Unlock()
	if first {
		if drained != nil {
			// The library forgets to answer what it holds when it is shut
			// down. A moment is enough: without a majority the lease ends, and
			// a hanging write is given up.
			timer := time.NewTimer(4*g.timing.ElectionTimeout + g.cfg.Stores.Guard().Deadline())
			select {
			case <-drained:
			case <-timer.C:
			case <-ctx.Done():
			}
			timer.Stop()
		}
		stopped := g.raft.Shutdown()
		g.cfg.Stores.Guard().Release()
		go func() {
			if err := stopped.Error(); err != nil {
				g.log.Error("stop the Raft member", "error", err)
			}
			g.trans.stopAsking()
			g.abandonPending()
			close(g.done)
		}()
	}
	select {
	case <-g.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop Raft member %s: %w; it is still stopping", g.cfg.ID, ctx.Err())
	}
}
