// Package janitor is the leader's duty that removes what its time is over for:
// clusters past their lease, records past their retention, halves of large
// commands that a leader left behind.
package janitor

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Config of a Janitor. Zero times take the defaults.
type Config struct {
	Machine *state.Machine
	Propose func(ctx context.Context, commands ...*pb.Command) ([]state.Answer, error)
	// Delete starts the deletion of a cluster whose lease is over.
	Delete func(ctx context.Context, cl *model.Cluster) error
	Logger *slog.Logger
	// Every is how often it looks; default one minute.
	Every time.Duration
	// Requests is how long request ids are remembered (default a day),
	// Operations how long those that ended are kept (default 30 days).
	Requests, Operations time.Duration
}

// Janitor is the duty.
type Janitor struct{ cfg Config }

// New makes the janitor of one term.
func New(cfg Config) *Janitor {
	def := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	def(&cfg.Every, time.Minute)
	def(&cfg.Requests, 24*time.Hour)
	def(&cfg.Operations, 30*24*time.Hour)
	return &Janitor{cfg}
}

// Name names the duty.
func (j *Janitor) Name() string { return "janitor" }

// Restore removes the halves of large commands: whoever sent them leads no
// more, and will send them whole again.
func (j *Janitor) Restore(ctx context.Context) error {
	parts := j.cfg.Machine.View().Parts()
	if len(parts) == 0 {
		return nil
	}
	_, err := j.cfg.Propose(ctx, &pb.Command{Change: &pb.Command_Prune{Prune: &pb.Prune{Parts: parts}}})
	return err
}

// Run looks now and then.
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

// Sweep does one round.
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
	if len(p.Operations) == 0 && p.RequestsBeforeMs == 0 {
		return errs // nothing to write: an idle mesh stays idle
	}
	_, err := j.cfg.Propose(ctx, &pb.Command{Change: &pb.Command_Prune{Prune: p}})
	return errors.Join(errs, err)
}
