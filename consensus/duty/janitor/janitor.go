// Package janitor has the leader's controllers that remove what has expired: clusters past
// their lease, records past their retention, parts of large commands that were never
// completed, and machines at providers that belong to no node. Both controllers examine
// everything at fixed times: the keys of their queues are what they do, not things of the state.
package janitor

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/coopr/coopr/consensus/duty/loop"
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Retention is how long the state keeps what has ended. Zero values take the defaults.
type Retention struct {
	// Clusters is how long terminated clusters are kept with their operations (default 7 days), and
	// ClusterCount how many of them (2,000).
	Clusters     time.Duration
	ClusterCount int
	// Operations is how long the operations of other clusters are kept after their end (default 30
	// days).
	Operations time.Duration
	// Requests is how long request ids are remembered (default a day).
	Requests time.Duration
	// Audit is how long audit records are kept (default 90 days), AuditRecords how many of them
	// (5,000,000), and AuditMemory how many bytes (256 MiB).
	Audit        time.Duration
	AuditRecords uint64
	AuditMemory  uint64
	// Sinks are those of the audit log. While one has not taken a record, the limits of the log are larger by AuditWait percent.
	Sinks     []string
	AuditWait uint64
}

// Config configures a Janitor. Zero times take the defaults.
type Config struct {
	Machine *state.Machine
	Propose func(ctx context.Context, commands ...*pb.Command) ([]state.Answer, error)
	// Delete starts the deletion of a cluster whose lease is over. It does not if the lease ends at another time by then.
	Delete func(ctx context.Context, cl *model.Cluster) error
	Logger *slog.Logger
	// Every is the time between two sweeps; default one minute.
	Every time.Duration
	Retention
}

const (
	// most is how many rows one entry removes.
	most = 1000
	// partsPause is how long after its last part a large command is given up.
	partsPause = 10 * time.Minute
)

// Janitor removes expired clusters and records.
type Janitor struct {
	cfg   Config
	parts map[string]arrived // used only by Sweep

	mu   sync.Mutex
	last model.Sweep
}

// arrived is how many parts of a large command had arrived, and since when.
type arrived struct {
	parts int
	since time.Time
}

// New returns the janitor of one term.
func New(cfg Config) *Janitor {
	cfg.Every = cmp.Or(cfg.Every, time.Minute)
	cfg.Clusters = cmp.Or(cfg.Clusters, 7*24*time.Hour)
	cfg.ClusterCount = cmp.Or(cfg.ClusterCount, 2000)
	cfg.Operations = cmp.Or(cfg.Operations, 30*24*time.Hour)
	cfg.Requests = cmp.Or(cfg.Requests, 24*time.Hour)
	cfg.Audit = cmp.Or(cfg.Audit, 90*24*time.Hour)
	cfg.AuditRecords = cmp.Or(cfg.AuditRecords, 5_000_000)
	cfg.AuditMemory = cmp.Or(cfg.AuditMemory, 256<<20)
	return &Janitor{cfg: cfg, parts: map[string]arrived{}}
}

// Name returns the name of the duty.
func (j *Janitor) Name() string { return "janitor" }

// Restore removes the parts of incomplete large commands. The agents that sent them are no
// longer leaders, and their callers send the commands again.
func (j *Janitor) Restore(ctx context.Context) error {
	parts := slices.Sorted(maps.Keys(j.cfg.Machine.View().Parts()))
	if len(parts) == 0 {
		return nil
	}
	return j.prune(ctx, &pb.Prune{Parts: parts})
}

// Run sweeps at fixed times until ctx ends. It does not wait before the first sweep, because terms
// may be short.
func (j *Janitor) Run(ctx context.Context) error {
	return loop.Repeat(ctx, j.cfg.Every, func(ctx context.Context, now time.Time) {
		if err := j.Sweep(ctx, now); err != nil && ctx.Err() == nil {
			j.cfg.Logger.Warn("the janitor could not finish", "error", err)
		}
	})
}

// Last returns what the latest sweep removed.
func (j *Janitor) Last() model.Sweep {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.last
}

// Sweep removes what has expired by now. While the mesh is held, only the audit log is kept within its bounds.
func (j *Janitor) Sweep(ctx context.Context, now time.Time) error {
	v := j.cfg.Machine.View()
	var errs error
	clusters, held := v.Clusters(""), v.Hold() != nil
	if held {
		clusters = nil
	}
	errs = errors.Join(j.warn(ctx, v, clusters, now), j.endLeases(ctx, clusters, now))
	done, requests := model.Sweep{At: now.UnixMilli()}, v.RequestsBefore(j.oldestRequest(now))
	due := j.due(v, now)
	if held {
		due = nil
	}
	for _, p := range due {
		if err := j.prune(ctx, p); err != nil {
			errs = errors.Join(errs, err)
			break // what is left is found again
		}
		done.Clusters += len(p.Clusters)
		done.Operations += len(p.Operations)
		if p.RequestsBeforeMs > 0 {
			done.Requests += min(most, requests-done.Requests)
		}
	}
	if !v.Understands(logformat.AuditLevel) {
		if p := j.plainExcess(v.Audit().Stats(), now); p != nil {
			errs = errors.Join(errs, j.prune(ctx, p))
		}
	}
	for _, p := range j.audit(v, now) {
		errs = errors.Join(errs, j.propose(ctx, &pb.Command{Change: &pb.Command_PruneAudit{PruneAudit: p}}))
	}
	if errs != nil {
		done.Fault = errs.Error()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.last = done
	return errs
}

func (j *Janitor) prune(ctx context.Context, p *pb.Prune) error {
	return j.propose(ctx, &pb.Command{Change: &pb.Command_Prune{Prune: p}})
}

func (j *Janitor) propose(ctx context.Context, c *pb.Command) error {
	answers, err := j.cfg.Propose(ctx, c)
	if err != nil {
		return err
	}
	return answers[0].Err
}

// due returns the removals that are due, each small enough for one entry. An idle mesh has none, and
// writes nothing.
func (j *Janitor) due(v *state.View, now time.Time) []*pb.Prune {
	var out []*pb.Prune
	rows := most // those of the last entry
	room := func(n int) *pb.Prune {
		if rows+n > most && rows > 0 {
			out, rows = append(out, &pb.Prune{}), 0
		}
		rows += n
		return out[len(out)-1]
	}
	clusters, operations := j.over(v, now)
	for _, c := range clusters {
		for n := len(c.operations) - 1; n >= most-1; n-- { // the oldest is the last
			p := room(1)
			p.Operations, c.operations = append(p.Operations, c.operations[n]), c.operations[:n]
		}
		p := room(1 + len(c.operations))
		p.Clusters = append(p.Clusters, &pb.PruneCluster{Tenant: c.Tenant, Id: c.ID, Version: c.Version})
	}
	for _, id := range operations {
		p := room(1)
		p.Operations = append(p.Operations, id)
	}
	for _, id := range j.abandoned(v, now) {
		p := room(1)
		p.Parts = append(p.Parts, id)
	}
	for left := v.RequestsBefore(j.oldestRequest(now)); left > 0; left -= most {
		room(most).RequestsBeforeMs = j.oldestRequest(now)
	}
	return out
}

// oldestRequest returns the time of the oldest request ids that are remembered.
func (j *Janitor) oldestRequest(now time.Time) int64 { return now.Add(-j.cfg.Requests).UnixMilli() }

// terminated is a terminated cluster, the time of its end, and those of its operations that are kept.
type terminated struct {
	*model.Cluster
	ended      int64
	operations []string
}

// over returns the terminated clusters whose retention is over, and such operations of other clusters.
func (j *Janitor) over(v *state.View, now time.Time) (clusters []terminated, operations []string) {
	ended := map[string]*terminated{}
	for _, cl := range v.Clusters("") {
		if cl.Status == model.ClusterTerminated {
			ended[cl.ID] = &terminated{Cluster: cl}
		}
	}
	old := now.Add(-j.cfg.Operations).UnixMilli()
	for _, op := range v.Operations("", "") {
		if t := ended[op.Cluster]; t != nil {
			t.ended = max(t.ended, op.EndedAt)
			t.operations = append(t.operations, op.ID)
		} else if op.Status.Ended() && op.EndedAt < old {
			operations = append(operations, op.ID)
		}
	}
	newest := slices.SortedFunc(maps.Values(ended), func(a, b *terminated) int {
		return cmp.Or(cmp.Compare(b.ended, a.ended), cmp.Compare(b.ID, a.ID))
	})
	old = now.Add(-j.cfg.Clusters).UnixMilli()
	for i, t := range newest {
		if i >= j.cfg.ClusterCount || t.ended < old {
			clusters = append(clusters, *t)
		}
	}
	return clusters, operations
}

// abandoned returns the large commands of which no part has arrived for a while.
func (j *Janitor) abandoned(v *state.View, now time.Time) (out []string) {
	have := v.Parts()
	for id, n := range have {
		switch a, known := j.parts[id]; {
		case !known || a.parts != n:
			j.parts[id] = arrived{n, now}
		case now.Sub(a.since) >= partsPause:
			out = append(out, id)
		}
	}
	maps.DeleteFunc(j.parts, func(id string, _ arrived) bool { return have[id] == 0 })
	slices.Sort(out)
	return out
}
