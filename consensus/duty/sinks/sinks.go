package sinks

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/coopr/coopr/consensus/duty/loop"
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/audit"
	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Sink takes records of the audit log.
type Sink interface {
	// Deliver returns nil once the sink has all of the records. After an error they are delivered again, as after the loss of a
	// leader.
	Deliver(ctx context.Context, records []audit.Record) error
}

// Target is a sink that an operator configured.
type Target struct {
	Name, Type string
	Where      string // for people, without secrets
	Sink       Sink
	// Wants reports whether the sink gets a record, given the present labels of the record's cluster: none if the record is about no
	// cluster, or the state no longer has it. The mesh counts the other records as delivered. nil: the sink gets all.
	Wants func(r *audit.Record, labels map[string]string) bool
	// Most bounds the records of one delivery. 0: 1000.
	Most int
	// Every is the time from a delivery to the next one, unless more records wait than one has. 0: none.
	Every time.Duration
}

// Config configures a Controller. Machine, Propose and Logger are required.
type Config struct {
	Machine *state.Machine
	Propose func(ctx context.Context, commands ...*pb.Command) ([]state.Answer, error)
	Logger  *slog.Logger
	Targets []Target
	// Record is the time between two records of how far the sinks have come; 0 means a second.
	Record time.Duration
}

const (
	// mostRecords and mostBytes bound one delivery. A single record may be larger.
	mostRecords, mostBytes = 1000, 1 << 20
	// mostRead bounds the records that are searched at once for those that a sink gets.
	mostRead = 10 * mostRecords
	// patience bounds one delivery.
	patience = time.Minute
	// gather is how long more records are waited for before a delivery begins.
	gather = 100 * time.Millisecond
	// firstPause and longestPause are between attempts that fail.
	firstPause, longestPause = time.Second, time.Minute
)

// record is the key of the recording in the queue. No sink has this name.
const record = ""

// Controller delivers records. It is made for one term.
type Controller struct {
	cfg   Config
	queue *loop.Queue[string]

	mu       sync.Mutex
	sinks    map[string]*progress
	recorded time.Time // when the progress was recorded last
}

// progress is how far a sink has come.
type progress struct {
	target Target
	at     audit.Cursor // of the last record that it has taken
	saved  uint64       // the number that the state has
	from   uint64       // nothing up to this number is missed: the sink is newer
	lost   uint64
	// restored is when this leader began again, as its audit log was replaced; Unix milliseconds, or 0.
	restored int64
	// fault is why the latest attempt failed, failed since when attempts fail, pause the time until the next one, at retry.
	fault  error
	failed time.Time
	pause  time.Duration
	retry  time.Time
}

// number returns the number of the last record of which the sink has everything.
func (p *progress) number() uint64 {
	if p.at.Item == whole || p.at.Seq == 0 {
		return p.at.Seq
	}
	return p.at.Seq - 1
}

// whole is the item of a cursor after all items of a number.
const whole = 1 << 30

// New returns the controller of one term.
func New(cfg Config) *Controller {
	cfg.Record = cmp.Or(cfg.Record, time.Second)
	c := &Controller{cfg: cfg, sinks: map[string]*progress{}}
	c.queue = loop.New(loop.Config[string]{Reconcile: c.reconcile, Parallel: len(cfg.Targets) + 1, Gather: gather})
	return c
}

// Name returns the name of the duty.
func (c *Controller) Name() string { return "sinks" }

// Restore reads how far the sinks have come.
func (c *Controller) Restore(context.Context) error {
	c.read(0)
	return nil
}

// read reads how far the sinks have come. restored is when a snapshot replaced the state and its audit log in this term, in Unix
// milliseconds, or 0.
func (c *Controller) read(restored int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.cfg.Machine.View()
	taken, s := v.Sinks(), v.Audit().Stats()
	for _, t := range c.cfg.Targets {
		n, known := taken[t.Name]
		p := &progress{target: t, at: audit.Cursor{Seq: n, Item: whole}, saved: n, restored: restored}
		if !known {
			p.from = s.Head.Seq
		}
		if n > s.Head.Seq {
			c.cfg.Logger.Warn("the state says that a sink has records which the audit log does not have: it gets all that the log has", "sink",
				t.Name, "taken", n, "head", s.Head.Seq)
			p.saved = 0
			p.at.Seq, p.restored = s.Anchor.Seq, max(restored, time.Now().UnixMilli())
		}
		if old := c.sinks[t.Name]; old != nil { // a delivery that is under way goes on with the old one
			p.fault, p.failed, p.pause, p.retry, p.lost = old.fault, old.failed, old.pause, old.retry, old.lost
		}
		c.sinks[t.Name] = p
	}
}

// Run delivers records until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	names := make([]string, len(c.cfg.Targets))
	for i, t := range c.cfg.Targets {
		names[i] = t.Name
	}
	if len(names) > 0 {
		stop := c.cfg.Machine.Watch(func(b state.Batch) {
			if b.Restored {
				c.cfg.Logger.Warn("the audit log was replaced by a snapshot's: numbers after its end are given again", "sinks", names)
				c.read(time.Now().UnixMilli())
			}
			c.queue.Add(names...)
		})
		defer stop()
		c.queue.Add(names...)
	}
	return c.queue.Run(ctx)
}

// reconcile makes one delivery to a sink, or records how far all have come. As long as the mesh has voters of an older build, which do
// not understand the record, it does neither.
func (c *Controller) reconcile(ctx context.Context, name string) (time.Time, error) {
	if !c.cfg.Machine.View().Understands(logformat.AuditLevel) {
		return time.Time{}, nil
	}
	if name == record {
		return c.record(ctx)
	}
	c.mu.Lock()
	p := c.sinks[name]
	v := c.cfg.Machine.View() // not one from before p was read
	trail := v.Audit()
	retry, from := p.retry, c.begin(p, trail)
	c.mu.Unlock()
	if retry.After(time.Now()) {
		return retry, nil
	}
	batch, wanted, more, err := take(v, trail, from, &p.target)
	if err == nil && len(batch) == 0 {
		return time.Time{}, nil
	}
	if err == nil && len(wanted) > 0 {
		limited, cancel := context.WithTimeout(ctx, patience)
		err = p.target.Sink.Deliver(limited, wanted)
		cancel()
	}
	if ctx.Err() != nil {
		return time.Time{}, ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		return c.fail(p, err), nil
	}
	if p.fault != nil {
		c.cfg.Logger.Info("a sink takes records of the audit log again", "sink", name)
	}
	p.fault, p.failed, p.pause, p.retry = nil, time.Time{}, 0, time.Time{}
	if len(wanted) > 0 && !more {
		p.retry = time.Now().Add(p.target.Every)
	}
	p.took(batch)
	if p.number() > p.saved {
		c.queue.AddAt(record, c.recorded.Add(c.cfg.Record))
	}
	return time.Now(), nil
}

// begin returns the place after which a sink continues. The caller holds c.mu.
func (c *Controller) begin(p *progress, trail *audit.Trail) audit.Cursor {
	anchor := trail.Stats().Anchor.Seq
	if p.at.Seq >= anchor {
		return p.at
	}
	if p.miss(anchor) {
		c.cfg.Logger.Warn("a sink was away for too long: records of the audit log were removed before it took them", "sink", p.target.Name,
			"after", p.at.Seq, "up to", anchor)
	}
	p.at = audit.Cursor{Seq: anchor, Item: whole}
	return p.at
}

// took notes that the sink has taken records.
func (p *progress) took(batch []audit.Record) {
	for _, r := range batch {
		if r.Seq > p.at.Seq+1 { // records between were dropped
			p.miss(r.Seq - 1)
		}
		if p.at = audit.CursorOf(&r); r.Item == r.Items {
			p.at.Item = whole
		}
	}
}

// miss notes that the records up to a number were dropped before the sink took them.
func (p *progress) miss(upTo uint64) bool {
	from := max(p.at.Seq, p.from)
	if upTo <= from {
		return false
	}
	p.lost += upTo - from
	return true
}

// fail notes that an attempt failed, and returns the time of the next one. The caller holds c.mu.
func (c *Controller) fail(p *progress, err error) time.Time {
	now := time.Now()
	if p.fault == nil {
		p.failed = now
		c.cfg.Logger.Warn("a sink does not take records of the audit log; they wait for it", "sink", p.target.Name, "error", err)
	}
	p.fault, p.pause = err, min(max(2*p.pause, firstPause), longestPause)
	p.retry = now.Add(p.pause)
	return p.retry
}

// most returns the largest number of records of a delivery.
func (t *Target) most() int { return cmp.Or(t.Most, mostRecords) }

// take returns the places of the next records of the log, and those of the records that a sink gets. more is true if a bound has ended the
// search and not the end of the log.
func take(v *state.View, trail *audit.Trail, from audit.Cursor, t *Target) (batch, wanted []audit.Record, more bool, err error) {
	bytes, clusters := 0, map[string]*model.Cluster{}
	err = trail.Each(&audit.Filter{}, false, from, func(r audit.Record) bool {
		batch = append(batch, audit.Record{Seq: r.Seq, Item: r.Item, Items: r.Items})
		cl, known := clusters[r.Cluster]
		if !known && r.Cluster != "" {
			cl, _ = v.Cluster(r.Tenant, r.Cluster)
			clusters[r.Cluster] = cl
		}
		var labels map[string]string
		if cl != nil && cl.ID == r.Cluster { // and not one that has the id for its name
			r.ClusterName, labels = cl.Name, cl.Labels
		}
		if t.Wants == nil || t.Wants(&r, labels) {
			wanted = append(wanted, r)
			bytes += 300 + len(r.Before) + len(r.After) + len(r.Message)
		}
		more = len(batch) >= mostRead || len(wanted) >= t.most() || bytes >= mostBytes
		return !more
	})
	return batch, wanted, more, err
}

// record records how far the sinks have come.
func (c *Controller) record(ctx context.Context) (again time.Time, err error) {
	c.mu.Lock()
	// Two sinks may ask for an entry before the first one is made.
	if next := c.recorded.Add(c.cfg.Record); time.Now().Before(next) {
		c.mu.Unlock()
		return next, nil
	}
	c.recorded = time.Now()
	m, of := &pb.MoveCursors{}, map[string]*progress{}
	for _, t := range c.cfg.Targets {
		if p := c.sinks[t.Name]; p.number() > p.saved {
			m.Cursors = append(m.Cursors, &pb.SinkCursor{Sink: t.Name, Number: p.number()})
			of[t.Name] = p
		}
	}
	c.mu.Unlock()
	if len(m.Cursors) == 0 {
		return again, nil
	}
	answers, err := c.cfg.Propose(ctx, &pb.Command{Change: &pb.Command_MoveCursors{MoveCursors: m}})
	if err == nil {
		err = answers[0].Err
	}
	if err != nil {
		return again, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range m.Cursors {
		of[x.Sink].saved = x.Number
	}
	return again, nil
}

// Report returns how far the sinks have come, in the order of the configuration.
func (c *Controller) Report() []model.AuditSink {
	trail := c.cfg.Machine.View().Audit()
	head := trail.Stats().Head.Seq
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]model.AuditSink, 0, len(c.cfg.Targets))
	for _, t := range c.cfg.Targets {
		p := c.sinks[t.Name]
		if p == nil {
			continue // the term has just begun
		}
		s := model.AuditSink{Name: t.Name, Type: t.Type, Target: t.Where, Number: p.number(), Lost: p.lost, Restored: p.restored}
		s.Behind = head - min(head, s.Number)
		if p.fault != nil {
			s.Fault, s.Failed = p.fault.Error(), p.failed.UnixMilli()
		}
		if s.Behind > 0 {
			// A place that is no longer kept has the oldest record that is.
			from := audit.Cursor{Seq: max(s.Number, trail.Stats().Anchor.Seq), Item: whole}
			_ = trail.Each(&audit.Filter{}, false, from, func(r audit.Record) bool { s.Oldest = r.Time; return false })
		}
		out = append(out, s)
	}
	return out
}

// Names returns the names of targets, sorted.
func Names(targets []Target) []string {
	out := make([]string, 0, len(targets))
	for _, t := range targets {
		out = append(out, t.Name)
	}
	slices.Sort(out)
	return out
}
