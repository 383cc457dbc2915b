package raftgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coopr/coopr/consensus/logstore"
	"github.com/coopr/coopr/internal/hclogbridge"
)

// Config configures a member. ID, FSM, Transport and Stores are required.
type Config struct {
	// ID is the agent's lasting identity. Addresses may change; the ID may not.
	ID string
	// FSM is the replicated state. Its Restore must replace the whole state. If FSM is a
	// BatchingFSM, it receives batches.
	FSM raft.FSM
	// Transport carries the messages. Shutdown closes it. A ServerAddressProvider, by which messages
	// find a member that has moved, is configured in the transport.
	Transport raft.Transport
	// Stores keep log, votes and snapshots. The caller owns them and closes them after Shutdown.
	Stores *logstore.Stores
	// Timing may be left zero.
	Timing Timing
	// Logger may be nil.
	Logger *slog.Logger
	// OnSick is called at most once, on a goroutine of its own, when the member can no longer work.
	// The error wraps logstore.ErrSick or ErrTransferStuck. The owner shuts the member down and starts
	// a new one when the cause is gone.
	OnSick func(error)
	// RecoveryDir, when set, is the directory where New looks for a peers.json of the operator (see
	// RecoverFile).
	RecoveryDir string
}

// Group is one member of a Raft group. All methods may be called from any goroutine.
type Group struct {
	cfg     Config
	timing  Timing
	waits   *timeouts
	raft    *raft.Raft
	log     *slog.Logger
	state   *tracker
	trans   *watchedTransport
	events  *eventLog
	pending *pending
	reads   readRounds

	notify   chan bool     // raft's leadership changes; unbuffered, see eventLog.follow
	done     chan struct{} // closed when the member has stopped
	sickOnce sync.Once

	mu          sync.Mutex
	leaderMoved chan struct{} // closed at the next change of leader
	firstOf     uint64        // the last term led by this member of which it has applied an entry
	transfers   int           // transfers of leadership under way
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
		pending:     newPending(),
		leaderMoved: make(chan struct{}),
	}
	g.reads.g = g
	snapshots := &watchedSnapshots{SnapshotStore: cfg.Stores.Snapshots}
	snapshots.recall()
	g.state = newTracker(cfg.FSM, snapshots, cfg.Stores.Guard())
	g.waits = newTimeouts(g.timing, g.log)
	g.trans = watchTransport(cfg.Transport, g.waits)
	g.trans.damaged = cfg.Stores.Guard().Damaged

	conf := cfg.raft(g.timing, g.notify)
	if cfg.RecoveryDir != "" {
		if err := recoverFromFile(cfg, conf, g.state.fsm(), snapshots); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(dropCovered(cfg.Stores), checkSnapshots(cfg.Stores), checkLast(cfg.Stores.Log)); err != nil {
		return nil, fmt.Errorf("start Raft member %s: %w", cfg.ID, err)
	}
	if cfg.Stores.Guard().Abstains() {
		// A member that may not vote may not stand for election either. It waits for a leader.
		g.waits.abstain(conf)
	}
	r, err := start(conf, g.state.fsm(), cfg.Stores, snapshots, g.trans.forRaft())
	if err != nil {
		return nil, fmt.Errorf("start Raft member %s: %w", cfg.ID, g.state.explain(err))
	}
	g.raft = r
	cfg.Stores.Guard().Arm() // before the first message of another member
	go g.trans.inbox.run(cfg.Transport.Consumer(), r, cfg.Stores.Guard())
	go g.waits.follow(r, g.done)
	cfg.Stores.Guard().OnSick(g.sick)
	r.RegisterObserver(raft.NewObserver(nil, false, g.observe))
	if conf.HeartbeatTimeout == never && !cfg.Stores.Guard().OnMayVote(g.waits.stand) {
		g.waits.stand()
	}
	go g.events.follow(g.notify, g.done, g.log, g.probe)
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

// raft returns the library's configuration. The library announces its leadership on notify.
func (c Config) raft(timing Timing, notify chan<- bool) *raft.Config {
	lib := raft.DefaultConfig()
	timing.apply(lib)
	lib.LocalID = raft.ServerID(c.ID)
	lib.ProtocolVersion = raft.ProtocolVersionMax
	lib.BatchApplyCh = true
	lib.ShutdownOnRemove = false // a removed member waits to be added again
	lib.NoLegacyTelemetry = true
	lib.NotifyCh = notify
	lib.Logger = hclogbridge.New(c.Logger).Named("raft")
	return lib
}

// dropCovered deletes the log if it ends before the index of the newest snapshot. A crash or a failed
// write between the two steps that install a leader's snapshot leaves such a log. A store that allows
// no gaps would refuse every entry after the snapshot for ever.
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
	// Opening checks the snapshot's checksum: if the snapshot is damaged, the log is still needed.
	_, rc, err := s.Snapshots.Open(list[0].ID)
	if err != nil {
		return nil // NewRaft finds an older snapshot, or fails
	}
	if err := rc.Close(); err != nil {
		return fmt.Errorf("read snapshot %s: %w", list[0].ID, err)
	}
	return s.Log.DeleteRange(first, last)
}

// checkSnapshots returns an error if the log on the disk does not continue what the newest whole snapshot
// holds. The library would panic when it looks for the entries in between.
func checkSnapshots(s *logstore.Stores) error {
	if s.Dir() == "" {
		return nil
	}
	first, err := s.Log.FirstIndex()
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	list, err := s.Snapshots.List()
	if err != nil {
		return fmt.Errorf("list snapshots: %w", err)
	}
	var covered uint64
	var faults error
	for _, m := range list {
		_, rc, err := s.Snapshots.Open(m.ID)
		if err == nil {
			covered = m.Index
			err = rc.Close()
		}
		if err == nil {
			break
		}
		faults = errors.Join(faults, fmt.Errorf("snapshot %s: %w", m.ID, err))
	}
	switch {
	case errors.Is(faults, fs.ErrPermission): // it may be whole
		return fmt.Errorf("%w: %w: the agent's user must own the data directory", ErrUnusable, faults)
	case covered == 0 && len(list) > 0:
		return fmt.Errorf("%w: %w: no snapshot is whole: %w", ErrUnusable, logstore.ErrDamaged, faults)
	case first > covered+1:
		return errors.Join(fmt.Errorf("%w: %w: the snapshots end at entry %d and the log begins at %d",
			ErrUnusable, logstore.ErrDamaged, covered, first), faults)
	case faults != nil:
		return checkGap(s.Log, max(first, covered+1), list[0].Index, faults)
	}
	return nil
}

// checkGap returns an error if the log lacks an entry between a whole snapshot and the newest one, which has faults. A snapshot that the
// leader sent may stand above such a gap.
func checkGap(log raft.LogStore, first, newest uint64, faults error) error {
	last, err := log.LastIndex()
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	for i := first; i <= min(newest, last); i++ {
		if err := log.GetLog(i, &raft.Log{}); err != nil {
			return errors.Join(fmt.Errorf("%w: %w: entry %d: %w", ErrUnusable, logstore.ErrDamaged, i, err), faults)
		}
	}
	return nil
}

// checkLast returns an error if the last entry is damaged. The library reads that entry, too, but does not wrap the error
// of the store.
func checkLast(log raft.LogStore) error {
	last, err := log.LastIndex()
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	if last == 0 {
		return nil
	}
	if err := log.GetLog(last, &raft.Log{}); err != nil {
		return fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	return nil
}

// start starts the library's member. It returns an error where the library panics on an unusable store.
func start(conf *raft.Config, fsm raft.FSM, s *logstore.Stores, snapshots raft.SnapshotStore, t raft.Transport) (r *raft.Raft, err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case error:
			err = fmt.Errorf("%w: %w", ErrUnusable, p)
		default:
			err = fmt.Errorf("%w: %v", ErrUnusable, p)
		}
	}()
	return raft.NewRaft(conf, fsm, s.Log, s.Stable, snapshots, t)
}

// ID returns the member's identity.
func (g *Group) ID() string { return g.cfg.ID }

// Library returns the library's member, for other libraries that need it (raft-autopilot). Entries
// submitted to it bypass the safeguards of Apply.
func (g *Group) Library() *raft.Raft { return g.raft }

// Done returns a channel that is closed when the member has stopped.
func (g *Group) Done() <-chan struct{} { return g.done }

// sick reports a fault to Config.OnSick that only a restart of the member can repair.
func (g *Group) sick(err error) {
	g.sickOnce.Do(func() {
		if g.pending.closed() {
			return
		}
		g.log.Error("the Raft member can no longer work; it must be restarted", "error", err)
		if g.cfg.OnSick != nil {
			go g.cfg.OnSick(err)
		}
	})
}

// Shutdown stops the member. It refuses new entries, waits a moment for those under way, and then
// closes Raft and its transport. A leader that leaves in good order calls Transfer before. When ctx
// ends first, Shutdown returns an error and the stop continues in the background. Later calls wait for
// the same stop.
func (g *Group) Shutdown(ctx context.Context) error {
	first, drained := g.pending.close()
	if first {
		if drained != nil {
			// The library does not answer the entries that it holds when it is shut down. A short
			// wait is enough: without a majority the lease ends, and the guard abandons a hanging write.
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
				g.log.Error("the Raft member did not stop cleanly", "error", err)
			}
			g.trans.stopAsking()
			g.trans.inbox.stop()
			g.pending.abandon()
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
