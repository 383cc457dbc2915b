package state

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/profile"
	pb "github.com/coopr/coopr/rpc/proto"
)

// runs changes runs of programs.
type runs struct{ *writer }

// RunKey identifies a run among those of all tenants.
type RunKey struct{ Tenant, ID string }

// changeRuns carries out a change of profiles or runs. It is the only writer of these tables.
func (a runs) changeRuns(c *pb.Command, ch *pb.ChangeRuns) Answer {
	switch x := ch.Change.(type) {
	case *pb.ChangeRuns_Put:
		return a.settings().putSetting(c, x.Put)
	case *pb.ChangeRuns_Start:
		return a.startRun(c, x.Start)
	case *pb.ChangeRuns_Event:
		return a.runEvent(c, x.Event)
	case *pb.ChangeRuns_Prune:
		return a.pruneRuns(x.Prune.Runs)
	}
	return Answer{Err: problem.New(problem.Unsupported, "%T", ch.Change)}
}

// startRun starts a run within the limits of its profile and tenant. It also updates the schedule
// that the run came from.
func (a runs) startRun(c *pb.Command, s *pb.StartRun) Answer {
	if err := a.tenant(c.Tenant); err != nil {
		return Answer{Err: err}
	}
	var r *profile.Run
	var sched *profile.Schedule
	var err1, err2 error
	if s.Run != nil {
		r, err1 = logformat.DecodeRun(s.Run)
	}
	if s.Schedule != nil {
		sched, err2 = logformat.DecodeSchedule(s.Schedule)
	}
	if err := errors.Join(err1, err2); err != nil {
		return refuse(problem.Unsupported, "run: %v", err)
	}
	suspended := false
	if sched != nil {
		have := table.Get[profile.Schedule](a.txn, table.Schedules, "id", c.Tenant, sched.Name)
		if have == nil || have.Version != s.ScheduleVersion {
			return refuse(problem.Stale, "schedule %s changed after this run was due", sched.Name)
		}
		suspended = sched.Status == profile.SuspendedSchedule && have.Status != sched.Status
	}
	ans := Answer{}
	if r != nil {
		if ans = a.beginRun(c, r, s.ProfileVersion, logformat.DecodeLevels(s.Levels)); ans.Subject == "" {
			return ans // the run is not recorded
		}
	}
	if sched != nil {
		if sched.Version = a.index; ans.Subject != "" {
			sched.LastRun = ans.Subject
		}
		sched.Tenant = c.Tenant
		a.put(table.Schedules, sched)
		a.batch.Schedules = true
	}
	if suspended {
		a.event(model.Event{Type: "schedule.suspended", Tenant: c.Tenant, Subject: sched.Name, Status: sched.Status, Actor: c.Actor,
			Message: sched.Message})
	}
	return ans
}

func (a runs) beginRun(c *pb.Command, r *profile.Run, version uint64, levels profile.Levels) Answer {
	if table.Get[profile.Run](a.txn, table.Runs, "id", c.Tenant, r.ID) != nil {
		return refuse(problem.Stale, "run %s exists already; run the command again", r.ID)
	}
	ref, err := profile.ParseRef(r.Profile)
	if err != nil {
		return refuse(problem.Unsupported, "run: %v", err)
	}
	p := a.settings().profile(ref, c.Tenant)
	switch {
	case p == nil:
		return refuse(problem.NotFound, "there is no profile %s", ref)
	case p.Version != version:
		return refuse(problem.Stale, "profile %s changed after the run was requested; run the command again", ref)
	case p.Status == profile.Disabled:
		return refuse(problem.Conflict, "profile %s is disabled: enable it, or choose another", ref)
	}
	if err := a.roomForOne(c.Tenant, model.LimitRuns); err != nil {
		return Answer{Err: err}
	}
	r.Tenant, r.Version = c.Tenant, a.index
	full := a.full(c.Tenant, ref, p, r.Program, levels)
	if full != "" {
		r.Reject(full)
	}
	a.put(table.Runs, r)
	a.runChanged(r, c.Actor)
	ans := Answer{Subject: r.ID}
	if full != "" {
		ans.Err = problem.New(problem.TooMany, "%s; run %s is rejected", full, r.ID)
	}
	return ans
}

// full returns the message about the limit that another run of a profile would exceed, or "".
func (a runs) full(tenant string, ref profile.Ref, p *profile.Profile, of profile.Program, levels profile.Levels) string {
	counted := func(r *profile.Run) bool { return true }
	count := func(index string, args ...any) profile.Load {
		var l profile.Load
		table.Each(a.txn, table.Runs, index, func(r *profile.Run) bool {
			if counted(r) {
				l.Count(r)
			}
			return true
		}, args...)
		return l
	}
	runs, launching := p.Limits.Bounds()
	if runs != profile.Unlimited || launching != profile.Unlimited {
		if why := count("up", ref.Tenant(tenant), ref.Name).Exceeds("profile "+ref.String(), runs, launching); why != "" {
			return why
		}
	}
	runs, launching = levels.Bounds()
	if runs != profile.Unlimited || launching != profile.Unlimited {
		if why := count("tenantup", tenant).Exceeds("tenant "+tenant, runs, launching); why != "" {
			return why
		}
	}
	runs, launching = levels.ProgramBounds()
	if (runs != profile.Unlimited || launching != profile.Unlimited) && a.view().Understands(logformat.ProgramLimitLevel) {
		counted = func(r *profile.Run) bool { return r.Program.Name == of.Name && r.Program.Version > 0 }
		return count("tenantup", tenant).Exceeds("program "+of.Name, runs, launching)
	}
	return ""
}

// runEvent applies an event to a run.
func (a runs) runEvent(c *pb.Command, e *pb.RunEvent) Answer {
	have := table.Get[profile.Run](a.txn, table.Runs, "id", c.Tenant, e.Run)
	if have == nil {
		return refuse(problem.NotFound, "there is no run %q", e.Run)
	}
	if e.Version != 0 && e.Version != have.Version {
		return refuse(problem.Stale, "run %s: an older record's event is ignored", e.Run)
	}
	ev, err := logformat.DecodeRunEvent(e.Event)
	if err != nil {
		return refuse(problem.Unsupported, "run %s: event: %v", e.Run, err)
	}
	if slices.Contains(profile.Orders, ev.Kind) {
		ev.Actor = c.Actor
	}
	next, err := have.Apply(*ev, a.now)
	if err != nil {
		return refuse(problem.Conflict, "%v", err)
	}
	a.putRun(next, c.Actor)
	return Answer{Subject: next.ID}
}

func (a runs) putRun(r *profile.Run, actor string) {
	r.Version = a.index
	a.put(table.Runs, r)
	a.runChanged(r, actor)
}

func (a runs) runChanged(r *profile.Run, actor string) {
	a.batch.Runs = append(a.batch.Runs, RunKey{r.Tenant, r.ID})
	if r.Schedule != "" && !r.Active() {
		a.batch.Schedules = true // a run of the schedule may start now
	}
	a.event(model.Event{
		Type: "run.changed", Tenant: r.Tenant, Cluster: r.Cluster.ID, Operation: r.Operation, Subject: r.ID,
		Status: string(r.Status) + "/" + string(r.Cluster.Status), Actor: actor, Message: r.Message,
	})
}

// exited records the exit code of a program's step on a node, if the worker knows it.
func (a runs) exited(op *model.Operation, s string, node string, output []byte, ok bool) {
	var o struct {
		Result struct {
			Exit *int `json:"exit"`
		} `json:"result"`
	}
	if json.Unmarshal(output, &o) != nil || o.Result.Exit == nil {
		return
	}
	table.Each(a.txn, table.Runs, "cluster", func(r *profile.Run) bool {
		if r.Tenant == op.Tenant && (r.Operation == "" || r.Operation == op.ID) && r.Active() {
			a.putRun(r.Exited(profile.Exit{Step: s, Node: node, Code: *o.Result.Exit}, ok), op.Actor)
			return false
		}
		return true
	}, op.Cluster)
}

// pruneRuns removes runs that are over, and adds them to the recorded usage.
func (a runs) pruneRuns(keys []string) Answer {
	for _, k := range keys {
		tenant, id, _ := strings.Cut(k, "/")
		r := table.Get[profile.Run](a.txn, table.Runs, "id", tenant, id)
		if r == nil || !r.Over() || r.Lost() {
			continue
		}
		if p := table.RunProfile(r); p != nil {
			a.used(p[0], table.UsedByProfile, p[1], r)
		}
		a.used(r.Tenant, table.UsedByProgram, r.Program.Name, r)
		a.remove(table.Runs, r)
	}
	return Answer{}
}

func (a runs) used(tenant, kind, name string, r *profile.Run) {
	u := table.UsageRow{Tenant: tenant, Kind: kind, Name: name}
	if old := table.Get[table.UsageRow](a.txn, table.Usages, "id", tenant, kind, name); old != nil {
		u = *old
	}
	u.Add(r, a.now)
	a.put(table.Usages, &u)
}
