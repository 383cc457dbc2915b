// Package janitor has the leader's controllers that remove what has expired: clusters past
// their lease, records past their retention, parts of large commands that an earlier leader
// left behind, and machines at providers that belong to no node. Both look at everything at
// fixed times, so that they need no queue of keys.
package janitor

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/audit"
	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Config configures a Janitor. Zero times take the defaults.
type Config struct {
	Machine *state.Machine
	Propose func(ctx context.Context, commands ...*pb.Command) ([]state.Answer, error)
	// Delete starts the deletion of a cluster whose lease is over.
	Delete func(ctx context.Context, cl *model.Cluster) error
	Logger *slog.Logger
	// Every is the time between two sweeps; default one minute.
	Every time.Duration
	// Requests is how long request ids are remembered (default a day),
	// Operations how long those that ended are kept (default 30 days).
	Requests, Operations time.Duration
	// Audit is how long audit records are kept (default 90 days), AuditRecords
	// how many of them (5,000,000), and AuditMemory how many bytes (256 MiB).
	Audit        time.Duration
	AuditRecords uint64
	AuditMemory  uint64
}

// Janitor removes expired clusters and records.
type Janitor struct{ cfg Config }

// New returns the janitor of one term.
func New(cfg Config) *Janitor {
	def := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	def(&cfg.Every, time.Minute)
	def(&cfg.Requests, 24*time.Hour)
	def(&cfg.Operations, 30*24*time.Hour)
	def(&cfg.Audit, 90*24*time.Hour)
	if cfg.AuditRecords == 0 {
		cfg.AuditRecords = 5_000_000
	}
	if cfg.AuditMemory == 0 {
		cfg.AuditMemory = 256 << 20
	}
	return &Janitor{cfg}
}

// Name returns the name of the duty.
func (j *Janitor) Name() string { return "janitor" }

// Restore removes incomplete large commands. The agents that sent them do not lead any
// more; their callers send the commands again.
func (j *Janitor) Restore(ctx context.Context) error {
	parts := j.cfg.Machine.View().Parts()
	if len(parts) == 0 {
		return nil
	}
	_, err := j.cfg.Propose(ctx, &pb.Command{Change: &pb.Command_Prune{Prune: &pb.Prune{Parts: parts}}})
	return err
}

// Run sweeps at fixed times until ctx ends.
func (j *Janitor) Run(ctx context.Context) error {
	tick := time.NewTicker(j.cfg.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case now := <-tick.C:
			if err := j.Sweep(ctx, now); err != nil && ctx.Err() == nil {
				j.cfg.Logger.Warn("the janitor could not finish", "error", err)
			}
		}
	}
}

// Sweep removes what has expired by now.
func (j *Janitor) Sweep(ctx context.Context, now time.Time) error {
	v := j.cfg.Machine.View()
	var errs error
	for _, cl := range v.Clusters("") {
		if cl.ExpiresAt == 0 || cl.ExpiresAt > now.UnixMilli() || cl.Status == model.ClusterTerminated || cl.Status == model.ClusterPending {
			continue
		}
		j.cfg.Logger.Info("deleting a cluster whose lease is over", "cluster", cl.ID, "name", cl.Name)
		errs = errors.Join(errs, j.cfg.Delete(ctx, cl))
	}
	p := &pb.Prune{}
	old := now.Add(-j.cfg.Operations).UnixMilli()
	for _, op := range v.Operations("", "") {
		if op.Status.Ended() && op.EndedAt < old {
			p.Operations = append(p.Operations, op.ID)
		}
	}
	if before := now.Add(-j.cfg.Requests).UnixMilli(); v.OldestRequest() < before {
		p.RequestsBeforeMs = before
	}
	p.AuditBeforeMs, p.AuditKeep = j.audit(v.Audit().Stats(), now)
	if len(p.Operations) == 0 && p.RequestsBeforeMs == 0 && p.AuditKeep == 0 {
		return errs // an idle mesh writes nothing
	}
	_, err := j.cfg.Propose(ctx, &pb.Command{Change: &pb.Command_Prune{Prune: p}})
	return errors.Join(errs, err)
}

// audit returns which audit records to remove: those before a time, and all but the last
// keep; 0 and 0 for none. It tolerates some excess, so that a busy mesh does not prune, and
// record that it did, in every sweep.
func (j *Janitor) audit(s audit.Stats, now time.Time) (before int64, keep uint64) {
	keep = j.cfg.AuditRecords
	if s.Bytes > j.cfg.AuditMemory {
		keep = min(keep, uint64(float64(s.Records)*float64(j.cfg.AuditMemory)/float64(s.Bytes)))
	}
	before = now.Add(-j.cfg.Audit).UnixMilli()
	old := s.Records > 0 && s.Oldest < before-(j.cfg.Audit/100).Milliseconds()
	if !old && s.Records <= keep+keep/10 {
		return 0, 0
	}
	return before, max(keep, 1)
}
