package dispatch

import (
	"context"
	"time"

	"github.com/coopr/coopr/consensus/state"
	pb "github.com/coopr/coopr/rpc/proto"
)

// ReportSoon is Report that does not wait for the commit.
func (d *Dispatcher) ReportSoon(session string, results []*pb.Result) {
	d.post(func() { d.async(func(ctx context.Context) { d.Report(ctx, session, results) }) })
}

// Report commits what became of leased tasks and confirms it to the worker,
// which may forget it then. Results that the state refuses are confirmed too:
// they will never be accepted. It blocks until the commit.
func (d *Dispatcher) Report(ctx context.Context, session string, results []*pb.Result) {
	if len(results) == 0 {
		return
	}
	now := time.Now()
	v := d.cfg.Machine.View()
	reports := map[string]*pb.Report{}
	var order []string
	var verdicts []*pb.Verdict
	for _, r := range results {
		op, u, err := state.ParseTaskID(r.Task)
		verdicts = append(verdicts, &pb.Verdict{Task: r.Task, Fence: r.Fence, Keep: true})
		if err != nil {
			continue
		}
		rep := reports[op]
		if rep == nil {
			rep = &pb.Report{Operation: op}
			reports[op] = rep
			order = append(order, op)
		}
		if r.Outcome != pb.Outcome_OUTCOME_SUCCEEDED || len(r.Output) > 0 || r.Adopted {
			o := &pb.Outputs{At: uint32(len(rep.Tasks)), Outcome: r.Outcome, Message: r.Message, Output: r.Output, LogTail: r.LogTail, Adopted: r.Adopted}
			if r.Outcome != pb.Outcome_OUTCOME_SUCCEEDED {
				o.RetryAtMs = d.backoff(failures(v, op, u), now)
			}
			rep.Outputs = append(rep.Outputs, o)
		}
		rep.Tasks = append(rep.Tasks, u)
		rep.Fences = append(rep.Fences, r.Fence)
	}
	d.propose(ctx, session, order, reports, verdicts)
}

func failures(v *state.View, op string, u uint32) int {
	if p, ok := v.Plan(op); ok && int(u) < p.Graph.Len() {
		if n := p.Note(u); n != nil {
			return n.Failures
		}
	}
	return 0
}

// Started notes that leases are at work; Returned takes back untouched ones.
func (d *Dispatcher) Started(ctx context.Context, session string, list []*pb.Started) {
	d.marks(ctx, session, list, &pb.Report{Started: true})
}

// Returned takes back leases that their worker did not touch.
func (d *Dispatcher) Returned(ctx context.Context, session string, list []*pb.Started) {
	d.marks(ctx, session, list, &pb.Report{Returned: true})
}

func (d *Dispatcher) marks(ctx context.Context, session string, list []*pb.Started, kind *pb.Report) {
	reports := map[string]*pb.Report{}
	var order []string
	var verdicts []*pb.Verdict
	for _, s := range list {
		op, u, err := state.ParseTaskID(s.Task)
		if err != nil {
			continue
		}
		rep := reports[op]
		if rep == nil {
			rep = &pb.Report{Operation: op, Started: kind.Started, Returned: kind.Returned}
			reports[op] = rep
			order = append(order, op)
		}
		rep.Tasks = append(rep.Tasks, u)
		rep.Fences = append(rep.Fences, s.Fence)
		if kind.Returned {
			verdicts = append(verdicts, &pb.Verdict{Task: s.Task, Fence: s.Fence, Keep: true})
		}
	}
	d.propose(ctx, session, order, reports, verdicts)
}

func (d *Dispatcher) propose(ctx context.Context, session string, order []string, reports map[string]*pb.Report, verdicts []*pb.Verdict) {
	if len(order) == 0 {
		return
	}
	commands := make([]*pb.Command, len(order))
	for i, op := range order {
		commands[i] = &pb.Command{Change: &pb.Command_Report{Report: reports[op]}}
	}
	if _, err := d.cfg.Propose(ctx, commands...); err != nil {
		// The worker keeps its results until they are confirmed and reports
		// them again in its next session.
		d.cfg.Logger.Debug("reports were not committed", "error", err)
		d.post(func() {
			if s := d.sessions[session]; s != nil && s.conn != nil {
				s.conn.Close()
			}
		})
		return
	}
	d.post(func() {
		for _, op := range order {
			if reports[op].Started {
				continue
			}
			q := d.queues[op]
			if q == nil {
				continue
			}
			for i, u := range reports[op].Tasks {
				// A result of an old lease was refused, and frees nothing.
				if h := q.held[u]; h != nil && h.granted && h.fence == reports[op].Fences[i] {
					d.release(q, u)
				}
			}
		}
		if s := d.sessions[session]; s != nil {
			d.send(s, &pb.LeaderMessage{Confirmed: verdicts})
		}
	})
}

// Save keeps a value for a plugin in the replicated state.
func (d *Dispatcher) Save(ctx context.Context, saves []*pb.SaveState) {
	var commands []*pb.Command
	for _, s := range saves {
		op, u, err := state.ParseTaskID(s.Task)
		if err != nil {
			continue
		}
		commands = append(commands, &pb.Command{Change: &pb.Command_SaveValue{SaveValue: &pb.SaveValue{Operation: op, Task: u, Fence: s.Fence, Key: s.Key, Value: s.Value}}})
	}
	if len(commands) == 0 {
		return
	}
	if _, err := d.cfg.Propose(ctx, commands...); err != nil {
		d.cfg.Logger.Warn("a plugin's values were not kept", "error", err)
	}
}
