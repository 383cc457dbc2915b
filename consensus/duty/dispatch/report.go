package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
)

// ReportSoon is like Report, but does not wait for the commit. The entry of a report that
// frees a node also has the lease of the node's next task, if follow allows it.
func (d *Dispatcher) ReportSoon(session string, results []*pb.Result) {
	d.post(func() {
		if !slices.ContainsFunc(results, func(r *pb.Result) bool { return len(r.Output) > 0 }) {
			reportNow(d, session, results)
			return
		}
		d.async(func(ctx context.Context) {
			ready, waiting := d.seals.results(ctx, session, results)
			d.post(func() {
				reportNow(d, session, ready)
				reportLater(d, waiting)
			})
		})
	})
}

// reportNow proposes results that are ready for the log. Only the owner calls it.
func reportNow(d *Dispatcher, session string, results []*pb.Result) {
	rs := d.reports(results)
	next := d.follow(session, rs.list)
	d.async(func(ctx context.Context) { _ = d.propose(ctx, session, rs, next) }) // the worker repeats lost reports
}

// Report commits the results of leased tasks and confirms them to the worker, which may
// forget them then. Results that the state refuses are confirmed, too, as they will never be
// accepted. Report blocks until the commit.
func (d *Dispatcher) Report(ctx context.Context, session string, results []*pb.Result) {
	if len(results) == 0 {
		return
	}
	ready, waiting := d.seals.results(ctx, session, results)
	_ = d.propose(ctx, session, d.reports(ready), &round{}) // the worker repeats lost reports
	d.post(func() { reportLater(d, waiting) })
}

// reportLater reports results that have begun to wait, once they can be encrypted. Their worker holds them, and their nodes, meanwhile.
// Only the owner calls it.
func reportLater(d *Dispatcher, results []*pb.Result) {
	if len(results) == 0 {
		return
	}
	d.async(func(ctx context.Context) {
		for len(results) > 0 {
			select {
			case <-ctx.Done():
				return
			case <-time.After(afterUnsealed):
			}
			var ready map[string][]*pb.Result
			ready, results = d.seals.again(ctx, results)
			for session, list := range ready {
				_ = d.propose(ctx, session, d.reports(list), &round{}) // the worker repeats lost reports
			}
		}
	})
}

// reports are a worker's reports, one for each operation.
type reports struct {
	list     []*pb.Report
	verdicts []*pb.Verdict // the confirmations for the worker
}

// of returns the report of an operation. A new one is of the same kind as kind.
func (r *reports) of(op string, kind *pb.Report) *pb.Report {
	for _, rep := range r.list {
		if rep.Operation == op {
			return rep
		}
	}
	rep := &pb.Report{Operation: op, Started: kind.Started, Returned: kind.Returned}
	r.list = append(r.list, rep)
	return rep
}

func (d *Dispatcher) reports(results []*pb.Result) reports {
	now := time.Now()
	v := d.cfg.Machine.View()
	rs := reports{verdicts: make([]*pb.Verdict, 0, len(results))}
	for _, r := range results {
		op, u, err := model.TaskID(r.Task).Split()
		rs.verdicts = append(rs.verdicts, &pb.Verdict{Task: r.Task, Fence: r.Fence, Keep: true})
		if err != nil {
			continue
		}
		rep := rs.of(string(op), &pb.Report{})
		r = checked(v, string(op), u, r)
		if r.Outcome != pb.Outcome_OUTCOME_SUCCEEDED || len(r.Output) > 0 || r.Adopted {
			o := &pb.Outputs{At: uint32(len(rep.Tasks)), Outcome: r.Outcome, Message: r.Message, Output: r.Output, LogTail: r.LogTail,
				Adopted: r.Adopted}
			if r.Outcome != pb.Outcome_OUTCOME_SUCCEEDED {
				o.RetryAtMs = d.cfg.backoff(failures(v, string(op), u), now)
			}
			rep.Outputs = append(rep.Outputs, o)
		}
		rep.Tasks = append(rep.Tasks, u)
		rep.Fences = append(rep.Fences, r.Fence)
	}
	return rs
}

// checked returns the result, or a failure in its place if its output is forbidden or malformed. The
// agent that reports it checked it, too, but it is not trusted with more than its task.
func checked(v *state.View, op string, u uint32, r *pb.Result) *pb.Result {
	p, ok := v.Plan(op)
	if !ok || int(u) >= p.Graph.Len() {
		return r // the state refuses the report
	}
	if err := p.Graph.Action[u].CheckOutput(r.Output); err != nil {
		outcome := pb.Outcome_OUTCOME_FATAL
		if errors.Is(err, model.ErrMalformedOutput) {
			outcome = pb.Outcome_OUTCOME_UNKNOWN
		}
		return &pb.Result{Task: r.Task, Fence: r.Fence, Outcome: outcome, Message: err.Error(), LogTail: r.LogTail}
	}
	return r
}

func failures(v *state.View, op string, u uint32) int {
	if p, ok := v.Plan(op); ok && int(u) < p.Graph.Len() {
		if n := p.Note(u); n != nil {
			return n.Failures
		}
	}
	return 0
}

// Started notes that workers have begun leased tasks.
func (d *Dispatcher) Started(ctx context.Context, session string, list []*pb.Started) {
	d.marks(ctx, session, list, &pb.Report{Started: true})
}

// Returned takes back leases that their worker did not begin.
func (d *Dispatcher) Returned(ctx context.Context, session string, list []*pb.Started) {
	d.marks(ctx, session, list, &pb.Report{Returned: true})
}

func (d *Dispatcher) marks(ctx context.Context, session string, list []*pb.Started, kind *pb.Report) {
	var rs reports
	for _, s := range list {
		op, u, err := model.TaskID(s.Task).Split()
		if err != nil {
			continue
		}
		rep := rs.of(string(op), kind)
		rep.Tasks = append(rep.Tasks, u)
		rep.Fences = append(rep.Fences, s.Fence)
		if kind.Returned {
			rs.verdicts = append(rs.verdicts, &pb.Verdict{Task: s.Task, Fence: s.Fence, Keep: true})
		}
	}
	_ = d.propose(ctx, session, rs, &round{}) // the next hello shows what the worker holds
}

// propose commits reports, and in the same entry the leases that follow them. It returns an
// error if nobody knows whether they were committed.
func (d *Dispatcher) propose(ctx context.Context, session string, rs reports, next *round) error {
	if len(rs.list) == 0 {
		return nil
	}
	commands := make([]*pb.Command, 0, len(rs.list)+len(next.parts))
	for _, rep := range rs.list {
		commands = append(commands, &pb.Command{Change: &pb.Command_Report{Report: rep}})
	}
	_, err := d.cfg.Propose(ctx, next.commands(commands)...)
	if err != nil {
		// The worker keeps its results until they are confirmed and reports
		// them again in its next session.
		d.cfg.Logger.Debug("reports were not committed", "error", err)
		d.post(func() {
			if s := d.sessions[session]; s != nil && s.conn != nil {
				s.conn.Close()
			}
		})
		if next.count > 0 && pause(ctx) {
			d.post(func() { d.giveUp(next) })
		}
		return err
	}
	d.post(func() {
		d.sessions[session].send(&pb.LeaderMessage{Confirmed: rs.verdicts})
		d.giveUp(next)
	})
	return nil
}

// over releases the tasks whose attempts a batch ended. An attempt under an old lease frees nothing.
func (b *book) over(list []state.Attempts) {
	for _, l := range list {
		q := b.queues[l.Operation] // nil once the operation is over
		for i, v := range l.Vertices {
			at, fence := taskKey{l.Operation, v}, l.Fences[i]
			b.hasEnded(func(e ending) bool { return e.taskKey == at && e.fence == fence })
			if q == nil {
				continue
			}
			if h := q.held[v]; h != nil && h.granted && h.fence == fence {
				b.release(q, v)
			}
		}
	}
}

// savePortion is how many bytes of values go into one entry, as the size of an entry is bounded.
const savePortion = 256 << 10

// Save stores values of plugins in the replicated state, and confirms them to the worker up to the
// number last. Values that the state refuses are confirmed, too, as they will never be accepted. After
// an error nobody knows which values were stored; the worker has to send them again, and before the
// results of their tasks.
func (d *Dispatcher) Save(ctx context.Context, session string, saves []*pb.SaveState, last uint64) error {
	if len(saves) == 0 {
		return nil
	}
	var commands []*pb.Command
	size := 0
	commit := func() error {
		answers, err := d.cfg.Propose(ctx, commands...)
		if err != nil {
			return fmt.Errorf("the values that plugins saved for their tasks were not stored: %w", err)
		}
		for _, a := range answers {
			if a.Err != nil {
				d.cfg.Logger.Warn("a value that a plugin saved for its task was refused", "error", a.Err)
			}
		}
		commands, size = nil, 0
		return nil
	}
	for _, s := range saves {
		op, u, err := model.TaskID(s.Task).Split()
		if err != nil {
			continue
		}
		if s, err = d.seals.saved(ctx, s, string(op), u); err != nil {
			pause(ctx) // the worker sends it again at once
			return fmt.Errorf("a value that a plugin saved for its task was not encrypted: %w", err)
		}
		if s == nil {
			continue
		}
		n := len(s.Key) + len(s.Value)
		if size+n > savePortion && len(commands) > 0 {
			if err := commit(); err != nil {
				return err
			}
		}
		size += n
		commands = append(commands, &pb.Command{Change: &pb.Command_SaveValue{SaveValue: &pb.SaveValue{Operation: string(op), Task: u,
			Fence: s.Fence, Key: s.Key, Value: s.Value}}})
	}
	if len(commands) > 0 {
		if err := commit(); err != nil {
			return err
		}
	}
	d.post(func() { d.sessions[session].send(&pb.LeaderMessage{Saved: last}) })
	return nil
}
