// Package incidents has the leader's controller that records logins, refusals and exports in the audit log.
package incidents

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/coopr/coopr/consensus/duty/loop"
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Config configures a Recorder. All fields are required.
type Config struct {
	Machine *state.Machine
	Propose func(ctx context.Context, commands ...*pb.Command) ([]state.Answer, error)
	Logger  *slog.Logger
}

const (
	// every is the time between two records of the same principal or source, and action.
	every = time.Minute
	// mostStrangers, mostPrincipals and, for each tenant, mostOfTenant bound the records of refusals in that time. The others of each
	// type share one, and those of a tenant that has principals have one for the tenant, up to mostShared.
	mostStrangers, mostPrincipals, mostOfTenant, mostShared = 10, 500, 50, 500
	// mostWaiting bounds the other incidents that wait for their record.
	mostWaiting = 1000
	// others stands for strangers and principals who have no record of their own. No tenant, user or network has this name.
	others = "(others)"
)

// Recorder gathers incidents and records them. It is made for one term.
type Recorder struct {
	cfg   Config
	queue *loop.Queue[struct{}]

	mu      sync.Mutex
	waiting []model.Incident // that are not counted
	counted map[key]*count
	// strangers and principals are how many of counted have which, tenants those of each tenant, and shared those of other principals
	// of a tenant.
	strangers, principals, shared int
	tenants                       map[string]int
}

// key is what refusals are counted by. Source is "" for principals, and object is "" for refusals.
type key struct{ kind, tenant, actor, source, action, object string }

// count has the refusals of a key since its last record.
type count struct {
	model.Incident
	next time.Time // when there may be another record
}

// New returns the recorder of one term.
func New(cfg Config) *Recorder {
	r := &Recorder{cfg: cfg, counted: map[key]*count{}, tenants: map[string]int{}}
	r.queue = loop.New(loop.Config[struct{}]{
		Reconcile: func(ctx context.Context, _ struct{}) (time.Time, error) { return r.record(ctx) },
		Failed: func(_ struct{}, err error, _ time.Duration) {
			cfg.Logger.Warn("logins and refusals could not be recorded; they are recorded later", "error", err)
		},
	})
	return r
}

// Name returns the name of the duty.
func (r *Recorder) Name() string { return "incidents" }

// Restore does nothing: what an earlier leader had not recorded is lost with it.
func (r *Recorder) Restore(context.Context) error { return nil }

// Run records incidents until ctx ends.
func (r *Recorder) Run(ctx context.Context) error { return r.queue.Run(ctx) }

// Note notes an incident, or as many as it counts. It is recorded at once, or with others of its kind within a minute. Any goroutine
// may call it. As long as the mesh has voters of an older build, which do not understand incidents, they are dropped.
func (r *Recorder) Note(i model.Incident) { r.note(i, i.Counted()) }

// Report notes an incident that another agent reports. Those of all types are counted, so that no agent fills the audit log.
func (r *Recorder) Report(i model.Incident) { r.note(i, true) }

func (r *Recorder) note(i model.Incident, counted bool) {
	if !r.cfg.Machine.View().Understands(logformat.AuditLevel) {
		return
	}
	now := time.Now()
	i.First, i.Last, i.Count = now.UnixMilli(), now.UnixMilli(), max(i.Count, 1)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !counted {
		if len(r.waiting) < mostWaiting {
			r.waiting = append(r.waiting, i)
		}
		r.queue.Add(struct{}{})
		return
	}
	c := r.of(&i)
	if c.Count == 0 {
		i.Tenant, i.Actor, i.Action, i.Object = c.Tenant, c.Actor, c.Action, c.Object
		if c.Source == others {
			i.Source = others
		}
		c.Incident = i
		r.queue.AddAt(struct{}{}, c.next)
		return
	}
	c.Count += i.Count
	c.Last, c.Agent, c.Request = i.Last, i.Agent, i.Request
	if c.Source != others {
		c.Source = i.Source
	}
}

// of returns what counts a refusal. The caller holds r.mu.
func (r *Recorder) of(i *model.Incident) *count {
	k := key{i.Type, i.Tenant, i.Actor, "", i.Action, i.Object}
	full := r.principals >= mostPrincipals || r.tenants[i.Tenant] >= mostOfTenant
	if i.Actor == "" {
		k.source, full = i.Source, r.strangers >= mostStrangers
	}
	c := r.counted[k]
	if c == nil && full {
		k = r.other(i)
		c = r.counted[k]
	}
	if c != nil {
		return c
	}
	c = &count{Incident: model.Incident{Type: k.kind, Tenant: k.tenant, Actor: k.actor, Action: k.action, Object: k.object, Source: k.source}}
	r.counted[k] = c
	r.add(k, 1)
	return c
}

// other returns the key of what has none of its own. The caller holds r.mu.
func (r *Recorder) other(i *model.Incident) key {
	if i.Actor == "" {
		return key{kind: i.Type, source: others}
	}
	k := key{kind: i.Type, tenant: i.Tenant, actor: others}
	if r.counted[k] == nil && r.shared >= mostShared {
		k.tenant = ""
	}
	return k
}

// add counts a key. The caller holds r.mu.
func (r *Recorder) add(k key, n int) {
	switch {
	case k.source == others:
	case k.actor == others:
		if k.tenant != "" {
			r.shared += n
		}
	case k.actor == "":
		r.strangers += n
	default:
		r.principals += n
		if r.tenants[k.tenant] += n; r.tenants[k.tenant] == 0 {
			delete(r.tenants, k.tenant)
		}
	}
}

// record records what is due, and returns when more is.
func (r *Recorder) record(ctx context.Context) (time.Time, error) {
	now := time.Now()
	m := &pb.NoteIncidents{}
	r.mu.Lock()
	other := len(r.waiting)
	for i := range r.waiting {
		m.Incidents = append(m.Incidents, logformat.EncodeIncident(&r.waiting[i]))
	}
	sent := map[*count]int64{}
	var again time.Time
	for k, c := range r.counted {
		switch {
		case c.next.After(now):
			if again.IsZero() || c.next.Before(again) {
				again = c.next
			}
		case c.Count == 0:
			delete(r.counted, k)
			r.add(k, -1)
		default:
			m.Incidents = append(m.Incidents, logformat.EncodeIncident(&c.Incident))
			sent[c] = c.Count
		}
	}
	r.mu.Unlock()
	if len(m.Incidents) == 0 {
		return again, nil
	}
	answers, err := r.cfg.Propose(ctx, &pb.Command{Change: &pb.Command_NoteIncidents{NoteIncidents: m}})
	if err == nil {
		err = answers[0].Err
	}
	if err != nil {
		return time.Time{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = append([]model.Incident(nil), r.waiting[other:]...)
	next := now.Add(every)
	for c, n := range sent {
		c.Count, c.First, c.next = c.Count-n, c.Last, next
	}
	if len(sent) > 0 && (again.IsZero() || next.Before(again)) {
		again = next
	}
	return again, nil
}
