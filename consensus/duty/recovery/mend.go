// Package recovery is the leader's duty that keeps clusters alive: it asks
// engine/recovery what to do for nodes that fail, and starts that
// (docs/decisions/023-recovery.md).
package recovery

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/recovery"
)

// Starter starts operations; the orchestrator does.
type Starter interface {
	Beside(ctx context.Context, who model.Caller, cluster string, op model.OperationType, units []operation.Unit) (*operation.Prepared, state.Answer, error)
	Operate(ctx context.Context, who model.Caller, cluster string, req operation.Request) (*operation.Prepared, state.Answer, error)
}

// Config of a Mender.
type Config struct {
	Machine *state.Machine
	Start   Starter
	Logger  *slog.Logger
	// Settle is how long changes are gathered, so that what fails together is
	// recovered together; 0 means 500 ms.
	Settle time.Duration
	// Again is when to try again what could not be started; 0 means 5 s.
	Again time.Duration
}

// Mender is the duty. It is made for one term, and keeps nothing but what it has
// still to look at: all that counts is in the state.
type Mender struct {
	cfg Config

	mu    sync.Mutex
	dirty map[string]bool // clusters to look at
	// restored says that all of them may be others.
	restored bool
	wake     chan struct{}

	due map[string]time.Time // when to look at clusters again; Run's
}

// New makes the mender of one term.
func New(cfg Config) *Mender {
	if cfg.Settle == 0 {
		cfg.Settle = 500 * time.Millisecond
	}
	if cfg.Again == 0 {
		cfg.Again = 5 * time.Second
	}
	return &Mender{cfg: cfg, dirty: map[string]bool{}, wake: make(chan struct{}, 1), due: map[string]time.Time{}}
}

// Name names the duty.
func (m *Mender) Name() string { return "recovery" }

// Restore looks at all clusters once.
func (m *Mender) Restore(context.Context) error {
	m.all()
	return nil
}

func (m *Mender) all() {
	v := m.cfg.Machine.View()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, cl := range v.Clusters("") {
		m.dirty[cl.ID] = true
	}
}

// changed notes the clusters that a batch touched.
func (m *Mender) changed(b state.Batch) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range b.Health {
		m.dirty[id] = true
	}
	for op := range b.Operations {
		m.dirty[string(model.OperationID(op).Cluster())] = true
	}
	m.poke()
}

func (m *Mender) poke() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Run looks at clusters when they change, and when a wait is over.
func (m *Mender) Run(ctx context.Context) error {
	stop := m.cfg.Machine.Watch(func(b state.Batch) {
		switch {
		case b.Restored:
			m.mu.Lock()
			m.restored = true
			m.mu.Unlock()
			m.poke()
		case len(b.Health)+len(b.Operations) > 0:
			m.changed(b)
		}
	})
	defer stop()
	timer := time.NewTimer(m.cfg.Settle)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-m.wake:
			timer.Reset(m.cfg.Settle)
			select { // gather
			case <-ctx.Done():
				return ctx.Err()
			case <-timer.C:
			}
		case <-timer.C:
		}
		m.round(ctx, time.Now())
		timer.Reset(m.next(time.Now()))
	}
}

// next gives the time until a wait is over.
func (m *Mender) next(now time.Time) time.Duration {
	wait := time.Hour
	for _, at := range m.due {
		wait = min(wait, max(at.Sub(now), 10*time.Millisecond))
	}
	return wait
}

// round looks at the clusters that changed or whose time has come.
func (m *Mender) round(ctx context.Context, now time.Time) {
	m.mu.Lock()
	restored := m.restored
	m.restored = false
	m.mu.Unlock()
	if restored {
		m.all()
	}
	m.mu.Lock()
	ids := m.dirty
	m.dirty = map[string]bool{}
	m.mu.Unlock()
	for id, at := range m.due {
		if !at.After(now) {
			ids[id] = true
		}
	}
	if len(ids) == 0 {
		return
	}
	v := m.cfg.Machine.View()
	for _, cl := range v.Clusters("") {
		if ids[cl.ID] {
			delete(m.due, cl.ID)
			m.look(ctx, v, cl, now)
		}
	}
}

// look does what has to be done for one cluster.
func (m *Mender) look(ctx context.Context, v *state.View, cl *model.Cluster, now time.Time) {
	s, ok := Standing(v, cl, now.UnixMilli())
	if !ok {
		return
	}
	d := recovery.Decide(s)
	if at := d.Wake(); at > 0 {
		m.due[cl.ID] = time.UnixMilli(at)
	}
	log := m.cfg.Logger.With("cluster", cl.ID)
	for _, w := range d.Waits {
		log.Debug("a node is not recovered now", "node", w.Node, "because", w.Why)
	}
	who := model.Caller{Tenant: cl.Tenant, Actor: model.Self, Role: model.RoleAdmin}
	var errs error
	if len(d.Restart) > 0 {
		units := make([]operation.Unit, len(d.Restart))
		for i, u := range d.Restart {
			units[i] = operation.Unit(u)
			log.Info("recovery restarts services", "node", u.Node, "services", u.Services)
		}
		_, _, err := m.cfg.Start.Beside(ctx, who, cl.ID, model.OpRecover, units)
		errs = errors.Join(errs, err)
	}
	if len(d.Replace) > 0 {
		log.Info("recovery replaces nodes", "nodes", d.Replace)
		_, _, err := m.cfg.Start.Operate(ctx, who, cl.ID, operation.Request{
			Type: model.OpReplaceNode, Victims: d.Replace, OnFailure: "leave", Forced: true, // what fails may fail to stop, too
		})
		errs = errors.Join(errs, err)
	}
	if errs != nil && ctx.Err() == nil {
		log.Warn("a recovery could not be started", "error", errs, "again_in", m.cfg.Again)
		m.due[cl.ID] = now.Add(m.cfg.Again)
	}
}

// Standing gives a cluster as recovery finds it; false where nothing fails, or
// where it has no business.
func Standing(v *state.View, cl *model.Cluster, now int64) (recovery.Standing, bool) {
	s := recovery.Standing{Cluster: cl, Now: now}
	switch cl.Status {
	case model.ClusterActive, model.ClusterInconsistent, model.ClusterPending:
	default:
		return s, false
	}
	s.Health = v.ClusterHealth(cl.Tenant, cl.ID)
	fails := func(h *model.NodeHealth) bool { return h.Machine != "" || len(h.Failing()) > 0 }
	if !slices.ContainsFunc(slices.Collect(maps.Values(s.Health)), fails) {
		return s, false
	}
	s.Nodes = v.Nodes(cl.Tenant, cl.ID)
	s.Busy = v.Busy(cl.Tenant, cl.ID)
	if op, ok := v.Operation(cl.Tenant, cl.Operation); ok && !op.Status.Ended() {
		s.Main = op.ID
		if op.Type == model.OpDelete {
			return s, false
		}
	}
	for _, op := range v.ActiveOperations() {
		if p, ok := v.Plan(op.ID); ok && op.Cluster == cl.ID && op.Tenant == cl.Tenant && op.Type.Beside() && op.Type != model.OpRun && op.Type != model.OpPlan {
			s.Recovering += len(p.Graph.Nodes)
			for _, id := range p.Graph.Nodes {
				s.Busy[id] = op.ID // begun or not
			}
		}
	}
	for _, h := range s.Health {
		if op, ok := v.Operation(cl.Tenant, h.Operation); ok && h.Replaced {
			s.Replaced = max(s.Replaced, op.CreatedAt)
		}
	}
	return s, true
}
