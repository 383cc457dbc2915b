package integrity

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/coopr/coopr/consensus/duty/loop"
	"github.com/coopr/coopr/consensus/state"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Config configures a Controller. All fields but Every are required.
type Config struct {
	// Self is the id of this member.
	Self    string
	Machine *state.Machine
	Propose func(ctx context.Context, commands ...*pb.Command) ([]state.Answer, error)
	// Members returns the members of the Raft group.
	Members func() []Member
	// Sums asks a member for the digests of its state at a checkpoint. It waits until the member has
	// applied the checkpoint.
	Sums func(ctx context.Context, member string, index uint64) (Answer, error)
	// Quarantine informs a member that its state differs from that of a majority. The member then gets
	// the state from the others.
	Quarantine func(ctx context.Context, member string, index uint64, tables []string) error
	Logger     *slog.Logger
	// Every is the time between two checkpoints; 0 means a minute.
	Every time.Duration
}

const (
	// answerTimeout is how long a member may take to compute its digests.
	answerTimeout = 30 * time.Second
	// quarantinePause is the least time between two quarantines. A member has its state again by then,
	// or the cause lies elsewhere.
	quarantinePause = 10 * time.Minute
	// checkpoint is the only key of the queue.
	checkpoint = "checkpoint"
)

// Controller compares the voters' copies of the state. It is made for one term.
type Controller struct {
	cfg   Config
	queue *loop.Queue[string]

	// end ends Run with a cause.
	end context.CancelCauseFunc

	// Used only by reconcile.
	began    time.Time       // when the first checkpoint of this term may be
	reported map[string]bool // the members that differed at the last checkpoint; "": there was no majority
	rested   time.Time       // until when no member is quarantined

	mu   sync.Mutex
	last Verdict
}

// New returns the controller of one term.
func New(cfg Config) *Controller {
	cfg.Every = cmp.Or(cfg.Every, time.Minute)
	c := &Controller{cfg: cfg, reported: map[string]bool{}}
	c.queue = loop.New(loop.Config[string]{
		Reconcile: c.reconcile, Backoff: cfg.Every / 10, MaxBackoff: cfg.Every,
		Failed: func(_ string, err error, pause time.Duration) {
			cfg.Logger.Warn("the voters' copies of the state could not be compared", "error", err, "again_in", pause)
		},
	})
	return c
}

// Name returns the name of the duty.
func (c *Controller) Name() string { return "integrity" }

// errDiffers ends the term of a leader that would decide by a wrong state.
var errDiffers = errors.New("this agent's copy of the state is not that of a majority of the voters")

// Restore fails if this member's copy of the state is known to differ, unless there is no other voter that could lead. It puts the first
// checkpoint off a little, because a new leader has much to do.
func (c *Controller) Restore(context.Context) error {
	others := func(m Member) bool { return m.Voter && m.ID != c.cfg.Self }
	if c.cfg.Machine.View().Differs(c.cfg.Self) && slices.ContainsFunc(c.cfg.Members(), others) {
		return errDiffers
	}
	c.began = time.Now().Add(c.cfg.Every / 6)
	return nil
}

// Run compares the copies at regular intervals until ctx ends. It fails as soon as this member's copy is found to differ.
func (c *Controller) Run(ctx context.Context) error {
	ctx, c.end = context.WithCancelCause(ctx)
	defer c.end(nil)
	c.queue.Add(checkpoint)
	err := c.queue.Run(ctx)
	if cause := context.Cause(ctx); errors.Is(cause, errDiffers) {
		return cause
	}
	return err
}

// Last returns the verdict about the last checkpoint of this term. It is empty before the first.
func (c *Controller) Last() Verdict {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// reconcile makes a checkpoint if one is due and the state has changed since the last one.
func (c *Controller) reconcile(ctx context.Context, _ string) (time.Time, error) {
	now := time.Now()
	index, at := c.cfg.Machine.LastCheckpoint()
	if due := at.Add(c.cfg.Every); now.Before(due) || now.Before(c.began) {
		return later(due, c.began), nil
	}
	if c.cfg.Machine.View().Index() == index && c.Last().Index == index {
		return now.Add(c.cfg.Every), nil
	}
	answers, err := c.cfg.Propose(ctx, &pb.Command{Change: &pb.Command_Checkpoint{Checkpoint: &pb.Checkpoint{}}})
	if err != nil {
		return time.Time{}, err
	}
	if err := answers[0].Err; err != nil {
		return time.Time{}, err
	}
	members := c.cfg.Members()
	v := Decide(answers[0].Index, members, c.ask(ctx, members, answers[0].Index))
	c.mu.Lock()
	c.last = v
	c.mu.Unlock()
	return now.Add(c.cfg.Every), c.act(ctx, v)
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// ask asks all members at once. Members that do not answer are not compared.
func (c *Controller) ask(ctx context.Context, members []Member, index uint64) map[string]Answer {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	answers := make(map[string]Answer, len(members))
	var mu sync.Mutex
	var all errgroup.Group
	for _, m := range members {
		all.Go(func() error {
			a, err := c.cfg.Sums(ctx, m.ID, index)
			if err != nil {
				c.cfg.Logger.Debug("a member's copy of the state is not compared", "member", m.ID, "index", index, "error", err)
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			answers[m.ID] = a
			return nil
		})
	}
	_ = all.Wait() // no function returns an error
	return answers
}

// act records a verdict that differs from the last one, and has one member that differs for the second
// time in a row get its state from the others. A verdict that names a member rests on a majority of
// the voters without it, so that the group can continue without the member. If it names this member,
// the term ends.
func (c *Controller) act(ctx context.Context, v Verdict) error {
	known := c.cfg.Machine.View()
	for _, id := range v.Same {
		if known.Differs(id) {
			c.cfg.Logger.Info("a member's state is that of a majority of the voters again", "member", id, "index", v.Index)
			if err := c.record(ctx, &pb.ReportDivergence{Server: id, Index: v.Index, Agrees: true}); err != nil {
				return err
			}
		}
	}
	before := c.reported
	c.reported = map[string]bool{}
	if len(v.Split) > 0 {
		c.cfg.Logger.Error("no majority of the voters has the same state; a person must decide which is right (docs/operations.md)",
			"index", v.Index, "different", v.Split)
		c.reported[""] = true
		if !before[""] {
			return c.record(ctx, &pb.ReportDivergence{Index: v.Index, Tables: v.Split})
		}
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(v.Odd)) {
		tables := v.Odd[id]
		c.cfg.Logger.Error("a member's state differs from that of a majority of the voters (docs/operations.md)",
			"member", id, "index", v.Index, "different", tables)
		c.reported[id] = true
		switch now := time.Now(); {
		case !before[id] && !known.Differs(id):
			if err := c.record(ctx, &pb.ReportDivergence{Server: id, Index: v.Index, Tables: tables}); err != nil {
				return err
			}
			if id == c.cfg.Self && c.cfg.Machine.View().Differs(id) {
				c.end(errDiffers)
				return nil
			}
		case now.After(c.rested):
			c.rested = now.Add(quarantinePause)
			if err := c.record(ctx, &pb.ReportDivergence{Server: id, Index: v.Index, Tables: tables, Quarantine: true}); err != nil {
				return err
			}
			if err := c.cfg.Quarantine(ctx, id, v.Index, tables); err != nil {
				return err
			}
		}
	}
	return nil
}

// record writes an event and a record of the audit log.
func (c *Controller) record(ctx context.Context, d *pb.ReportDivergence) error {
	answers, err := c.cfg.Propose(ctx, &pb.Command{Change: &pb.Command_ReportDivergence{ReportDivergence: d}})
	if err != nil {
		return err
	}
	return answers[0].Err
}
