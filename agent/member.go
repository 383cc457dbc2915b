package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/coopr/coopr/agent/mesh"
	"github.com/coopr/coopr/consensus/duty/dispatch"
	"github.com/coopr/coopr/consensus/duty/janitor"
	"github.com/coopr/coopr/consensus/duty/orchestrate"
	"github.com/coopr/coopr/consensus/duty/sites"
	"github.com/coopr/coopr/consensus/duty/watch"
	"github.com/coopr/coopr/consensus/leader"
	"github.com/coopr/coopr/consensus/logstore"
	"github.com/coopr/coopr/consensus/raftgroup"
	"github.com/coopr/coopr/consensus/replica"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/wire"
)

// member is one life of the agent's Raft member, with the duties that run
// while it leads.
type member struct {
	*replica.Replica
	stores *logstore.Stores
	terms  *leader.Runner
	lead   atomic.Pointer[leadership]
}

// leadership is what an agent has only while it leads.
type leadership struct {
	dispatcher   *dispatch.Dispatcher
	orchestrator *orchestrate.Orchestrator
	watcher      *watch.Watcher
	sites        *sites.Keeper
	orphans      *janitor.Orphans
	broken       chan brokenConn
}

// leader gives the duties when this agent leads and they run.
func (a *Agent) leader() (*member, *leadership, bool) {
	m := a.member.Load()
	if m == nil {
		return nil, nil, false
	}
	l := m.lead.Load()
	_, ready := m.terms.Ready()
	return m, l, l != nil && ready
}

// raft keeps a Raft member running for as long as the agent may hold state. A
// member whose disk is sick is shut down, and begins anew when the disk is well.
func (a *Agent) raft(ctx context.Context) error {
	if !a.cfg.Eligible {
		<-ctx.Done()
		return nil
	}
	for pause := time.Second; ; pause = min(2*pause, time.Minute) {
		start := time.Now()
		err := a.oneMember(ctx)
		a.member.Store(nil)
		if ctx.Err() != nil {
			return nil
		}
		a.log.Error("this agent's part in the replicated state has stopped", "error", err, "again_in", pause)
		a.fault(err)
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

func (a *Agent) fault(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.faults = append(a.faults, err)
	if len(a.faults) > 8 {
		a.faults = a.faults[1:]
	}
}

func (a *Agent) openStores() (*logstore.Stores, error) {
	if a.cfg.OpenStores != nil {
		return a.cfg.OpenStores()
	}
	kind, err := logstore.ParseKind(a.cfg.Raft.Store)
	if err != nil {
		return nil, err
	}
	return logstore.Open(filepath.Join(a.cfg.DataDir, "raft"), kind, logstore.Options{Logger: a.log})
}

// errStopped says why a member was shut down by its owner.
var errStopped = errors.New("stopped")

// oneMember runs a member until it fails or ctx ends.
func (a *Agent) oneMember(ctx context.Context) (err error) {
	stores, err := a.openStores()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stores.Close()) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errStopped)
	transport := wire.NewRaftTransport(a.mux, a.peerAddr, a.log)
	timing := a.cfg.Timing
	if a.cfg.Raft.Multiplier > 0 && timing.Multiplier == 0 {
		timing.Multiplier = float64(a.cfg.Raft.Multiplier)
	}
	if a.cfg.Raft.SnapshotThreshold > 0 && timing.SnapshotThreshold == 0 {
		timing.SnapshotThreshold = uint64(a.cfg.Raft.SnapshotThreshold)
	}
	if a.cfg.Raft.TrailingLogs > 0 && timing.TrailingLogs == 0 {
		timing.TrailingLogs = uint64(a.cfg.Raft.TrailingLogs)
	}
	if timing.SnapshotInterval == 0 {
		timing.SnapshotInterval = a.cfg.Raft.SnapshotInterval // 0: Raft's default
	}
	r, err := replica.New(replica.Config{
		ID: a.id, Transport: transport, Stores: stores, Timing: timing, Logger: a.log,
		OnSick:      func(err error) { cancel(err) },
		OnHalt:      func(err error) { cancel(err) },
		RecoveryDir: a.cfg.DataDir,
	})
	if err != nil {
		return errors.Join(err, transport.Close())
	}
	m := &member{Replica: r, stores: stores}
	m.terms, err = leader.New(leader.Config{Group: r.Group, Logger: a.log, Duties: func(uint64) []leader.Duty { return a.duties(m) }})
	if err != nil {
		return err
	}
	a.member.Store(m)
	defer r.Machine.Watch(a.watch(m))()
	var g errgroup.Group
	g.Go(func() error { return m.terms.Run(ctx) })
	g.Go(func() error { return a.bootstrap(ctx, m) })
	select {
	case <-ctx.Done():
	case <-r.Group.Done():
		cancel(errors.New("the Raft member ended"))
	}
	a.member.CompareAndSwap(m, nil)
	stop, done := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer done()
	err = r.Group.Shutdown(stop)
	return errors.Join(context.Cause(ctx), g.Wait(), err)
}

// peerAddr gives where an agent is now.
func (a *Agent) peerAddr(id string) (string, error) {
	if m, ok := a.mesh.Member(id); ok && m.RPCAddr != "" {
		return m.RPCAddr, nil
	}
	return "", fmt.Errorf("agent %s is not in the mesh's view", id)
}

// bootstrap starts the first group, once, when enough agents have met and
// nobody holds any state.
func (a *Agent) bootstrap(ctx context.Context, m *member) error {
	if a.cfg.BootstrapExpect == 0 {
		return nil
	}
	select { // who was not asked yet may have a group
	case <-a.mesh.Looked():
	case <-ctx.Done():
		return nil
	}
	changed, stop := a.mesh.Subscribe()
	defer stop()
	why := ""
	answers := map[string]mesh.RaftState{}
	for {
		if m.Group.Stats().LastIndex > 0 || len(m.Group.Servers()) > 0 {
			if s := m.Group.Servers(); len(s) == 1 && s[0].ID == a.id {
				a.campaign(m)
			}
			return nil // there is a group, and we know it
		}
		group := false // somebody belongs to one: ours may come at any time, but we start none
		answers[a.id] = mesh.RaftState{}
		d := mesh.ShouldBootstrap(a.id, a.mesh.Members(), a.cfg.BootstrapExpect, answers)
		for _, other := range d.Ask {
			if st, err := a.askState(ctx, other.RPCAddr, ""); err == nil {
				answers[other.ID] = mesh.RaftState{HasState: st.HasState, Peers: serverIDs(st.Servers)}
				group = group || st.HasState
			}
		}
		if len(d.Ask) > 0 {
			d = mesh.ShouldBootstrap(a.id, a.mesh.Members(), a.cfg.BootstrapExpect, answers)
		}
		if d.Bootstrap {
			var servers []raftgroup.Server
			for _, s := range d.Servers {
				servers = append(servers, raftgroup.Server{ID: s.ID, Addr: s.RPCAddr, Voter: true})
			}
			a.log.Info("starting the first Raft group", "voters", len(servers))
			if err := m.Group.Bootstrap(ctx, servers); err != nil && !errors.Is(err, raftgroup.ErrHasState) {
				return fmt.Errorf("start the first Raft group: %w", err)
			} else if err == nil {
				a.campaign(m)
			}
			return nil
		}
		if d.Why != why {
			why = d.Why
			a.log.Info("no Raft group yet", "why", why)
		}
		clear(answers) // what was heard may change until the next look
		again, look := changed, 500*time.Millisecond
		if group {
			// Most agents of a large mesh are never asked to join the group: they
			// must not ask everybody twice a second for the rest of their lives.
			again, look = nil, time.Minute
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again:
		case <-time.After(look):
		}
	}
}

// campaign spares a group that nobody can be leading yet the wait for a silence.
func (a *Agent) campaign(m *member) {
	if err := m.Group.Campaign(); err != nil {
		a.log.Debug("the election waits for a silence", "error", err)
	}
}

func serverIDs(list []*pb.Server) []string {
	var out []string
	for _, s := range list {
		out = append(out, s.Id)
	}
	return out
}

// askState asks an agent what it knows of Raft; mesh is set where it is to be taken into this one.
func (a *Agent) askState(ctx context.Context, addr, mesh string) (*pb.StatusResponse, error) {
	c, err := a.pool.Client(addr)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return c.Status(ctx, &pb.StatusRequest{Mesh: mesh})
}

// handOver gives the leadership to another voter before this agent stops.
func (a *Agent) handOver() {
	m := a.member.Load()
	if m == nil || !m.Group.IsLeader() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := m.Group.Transfer(ctx, ""); err != nil && !errors.Is(err, raftgroup.ErrNoPeer) {
		a.log.Warn("could not hand the leadership over", "error", err)
	}
}
