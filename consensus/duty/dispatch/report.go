package dispatch

import (
	"context"
	"time"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
)

// ReportSoon is like Report, but does not wait for the commit. The entry of a report that
// frees a node also has the lease of the node's next task, if follow allows it.
func (d *Dispatcher) ReportSoon(session string, results []*pb.Result) {
	d.post(func() {
		rs := d.reports(results)
		next := d.follow(session, rs.list)
		d.async(func(ctx context.Context) { d.propose(ctx, session, rs, next) })
	})
}

// Report commits the results of leased tasks and confirms them to the worker, which may
// forget them then. Results that the state refuses are confirmed, too, as they will never be
// accepted. Report blocks until the commit.
func (d *Dispatcher) Report(ctx context.Context, session string, results []*pb.Result) {
	if len(results) > 0 {
		d.propose(ctx, session, d.reports(results), &round{})
	}
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
		if r.Outcome != pb.Outcome_OUTCOME_SUCCEEDED || len(r.Output) > 0 || r.Adopted {
			o := &pb.Outputs{At: uint32(len(rep.Tasks)), Outcome: r.Outcome, Message: r.Message, Output: r.Output, LogTail: r.LogTail,
				Adopted: r.Adopted}
			if r.Outcome != pb.Outcome_OUTCOME_SUCCEEDED {
				o.RetryAtMs = d.backoff(failures(v, string(op), u), now)
			}
			rep.Outputs = append(rep.Outputs, o)
		}
		rep.Tasks = append(rep.Tasks, u)
		rep.Fences = append(rep.Fences, r.Fence)
	}
	return rs
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
	d.propose(ctx, session, rs, &round{})
}

// propose commits reports, and in the same entry the leases that follow them.
func (d *Dispatcher) propose(ctx context.Context, session string, rs reports, next *round) {
	if len(rs.list) == 0 {
		return
	}
	commands := make([]*pb.Command, 0, len(rs.list)+len(next.parts))
	for _, rep := range rs.list {
		commands = append(commands, &pb.Command{Change: &pb.Command_Report{Report: rep}})
	}
	answers, err := d.cfg.Propose(ctx, next.commands(commands)...)
	if err != nil {
		// The worker keeps its results until they are confirmed and reports
		// them again in its next session.
		d.cfg.Logger.Debug("reports were not committed", "error", err)
		d.post(func() {
			if s := d.sessions[session]; s != nil && s.conn != nil {
				s.conn.Close()
			}
		})
		if next.count > 0 {
			d.lost(ctx, next)
		}
		return
	}
	d.post(func() {
		for _, rep := range rs.list {
			if rep.Started {
				continue
			}
			q := d.queues[rep.Operation] // nil once the operation is over
			for i, u := range rep.Tasks {
				d.hasEnded(func(e ending) bool { return e.lease == lease{rep.Operation, u} && e.fence == rep.Fences[i] })
				if q == nil {
					continue
				}
				// A result of an old lease was refused, and frees nothing.
				if h := q.held[u]; h != nil && h.granted && h.fence == rep.Fences[i] {
					d.release(q, u)
				}
			}
		}
		if s := d.sessions[session]; s != nil {
			d.send(s, &pb.LeaderMessage{Confirmed: rs.verdicts})
		}
	})
	if next.count > 0 {
		d.deliver(ctx, next, answers[len(rs.list):])
	}
}

// Save stores values for plugins in the replicated state.
func (d *Dispatcher) Save(ctx context.Context, saves []*pb.SaveState) {
	var commands []*pb.Command
	for _, s := range saves {
		op, u, err := model.TaskID(s.Task).Split()
		if err != nil {
			continue
		}
		commands = append(commands, &pb.Command{Change: &pb.Command_SaveValue{SaveValue: &pb.SaveValue{Operation: string(op), Task: u,
			Fence: s.Fence, Key: s.Key, Value: s.Value}}})
	}
	if len(commands) == 0 {
		return
	}
	if _, err := d.cfg.Propose(ctx, commands...); err != nil {
		d.cfg.Logger.Warn("values of a plugin were not stored", "error", err)
	}
}
