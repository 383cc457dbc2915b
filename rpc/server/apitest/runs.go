package apitest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/coopr/coopr/consensus/duty/runs"
	"github.com/coopr/coopr/consensus/logformat"
	replicated "github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/rpc/api"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/proto/record"
	"github.com/coopr/coopr/rpc/server"
)

// runView is the part of a state about profiles and runs.
type runView interface{ server.RunView }

// runTables holds a test mesh's profiles and runs, in the tables of real meshes but without a log.
// No controller carries out the runs: the test reports their events with Happen.
type runTables struct {
	machine *replicated.Machine
	index   uint64
}

// newRunTables returns tables with tenants and plugin types.
func newRunTables(tenants []string, types []model.PluginType) *runTables {
	m, err := replicated.New(replicated.Config{})
	if err != nil {
		panic(err)
	}
	t := &runTables{machine: m}
	for _, name := range tenants {
		t.must(&pb.Command{Change: &pb.Command_PutTenant{PutTenant: &pb.PutTenant{Tenant: &record.Tenant{Name: name}}}})
	}
	open := &pb.OpenSession{Agent: "id-a", Record: &record.Agent{Id: "id-a"}}
	for _, p := range types {
		m, err := logformat.EncodePluginType(&p)
		if err != nil {
			panic(err)
		}
		open.Types = append(open.Types, m)
	}
	t.must(&pb.Command{Change: &pb.Command_OpenSession{OpenSession: open}})
	return t
}

func (t *runTables) must(c *pb.Command) {
	if a := t.apply(Epoch, c); a.Err != nil {
		panic(a.Err)
	}
}

// apply applies a command at time now.
func (t *runTables) apply(now int64, c *pb.Command) replicated.Answer {
	t.index++
	data, err := proto.Marshal(&pb.Entry{Format: replicated.Format, FeatureLevel: replicated.FeatureLevel, MustUnderstand: true, NowMs: now,
		Commands: []*pb.Command{c}})
	if err != nil {
		return replicated.Answer{Err: err}
	}
	out, ok := t.machine.Apply(&raft.Log{Type: raft.LogCommand, Index: t.index, Data: data}).([][]replicated.Answer)
	if !ok {
		return replicated.Answer{Err: errors.New("an entry was not applied")}
	}
	return out[0][0]
}

// changeRuns writes to the tables about profiles and runs.
func (a *Agent) changeRuns(who model.Caller, command func(now int64) (*pb.Command, error)) (subject string, w api.Written, err error) {
	return a.changeTables(who, "run.changed", command)
}

// changeTables writes to the tables. A rejected run is stored too, and the error is problem.TooMany.
func (a *Agent) changeTables(who model.Caller, event string, command func(now int64) (*pb.Command, error)) (subject string, w api.Written,
	err error) {
	var full error
	w, err = a.write(who, func(st *state) ([]model.Event, error) {
		c, err := command(a.clock)
		if err != nil {
			return nil, err
		}
		c.Tenant, c.Actor = who.Tenant, who.Actor
		ans := a.runs.apply(a.clock, c)
		switch {
		case errors.Is(ans.Err, problem.TooMany):
			full = ans.Err
		case ans.Err != nil:
			return nil, ans.Err
		}
		subject, st.runView = ans.Subject, a.runs.machine.View()
		return []model.Event{{Type: event, Subject: subject}}, nil
	})
	if w.Repeated {
		subject, _ = a.runs.machine.View().Request(who)
	}
	if err == nil {
		err = full
	}
	return subject, w, err
}

func changeOf(c *pb.ChangeRuns) *pb.Command {
	return &pb.Command{Change: &pb.Command_ChangeRuns{ChangeRuns: c}}
}

// ChangeSetting writes or deletes a profile, a program, a schedule, preferences or a secret.
func (a *Agent) ChangeSetting(_ context.Context, who model.Caller, s api.Setting) (api.Written, error) {
	_, w, err := a.changeRuns(who, func(int64) (*pb.Command, error) {
		p, err := logformat.PutSetting(s.Kind, s.Name, s.Order, s.Value)
		if err != nil {
			return nil, err
		}
		p.System = s.System
		return changeOf(&pb.ChangeRuns{Change: &pb.ChangeRuns_Put{Put: p}}), nil
	})
	return w, err
}

// StartRun starts a run.
func (a *Agent) StartRun(_ context.Context, who model.Caller, req api.StartRun) (string, api.Written, error) {
	return a.changeRuns(who, func(now int64) (*pb.Command, error) {
		p, err := runs.Prepare(a.runs.machine.View(), who, runs.Start{
			Program: req.Program, Version: req.Version, Inline: req.Inline, Profile: req.Profile, Nodes: req.Nodes, Runtime: req.Runtime,
			Arguments: req.Arguments,
		}, time.UnixMilli(now), 0)
		if err != nil {
			return nil, err
		}
		return p.Command(who, nil, 0)
	})
}

// OrderRun carries out an order about a run.
func (a *Agent) OrderRun(_ context.Context, who model.Caller, run string, e profile.Event) (api.Written, error) {
	_, w, err := a.changeRuns(who, func(int64) (*pb.Command, error) {
		change, err := logformat.RunEvent(run, 0, e)
		return &pb.Command{Change: change}, err
	})
	return w, err
}

// Happen applies events to a run of tenant "acme", as the leader does.
func (a *Agent) Happen(run string, events ...profile.Event) {
	for _, e := range events {
		if _, err := a.OrderRun(context.Background(), model.Caller{Tenant: "acme", Actor: model.Self}, run, e); err != nil {
			panic(fmt.Sprintf("run %s, event %s: %v", run, e.Kind, err))
		}
	}
}

// The sequences of events at the end of a run's cluster.
var (
	// Gone is the deletion of the cluster.
	Gone = []profile.Event{{Kind: profile.Requested, Operation: "00000001-003"}, {Kind: profile.Saw, Seen: profile.SeenNotExists}}
	// Lost is the failed deletion of the cluster, which becomes an orphan.
	Lost = []profile.Event{{Kind: profile.Requested}, {Kind: profile.Saw, Seen: profile.SeenOrphaned}}
)

// Up returns the events with which a run's cluster of n nodes is created and its program starts
// as operation 00000001-002.
func Up(n int) []profile.Event {
	c := &profile.RunCluster{Name: "c"}
	for i := range n {
		c.Nodes = append(c.Nodes, profile.RunNode{ID: fmt.Sprintf("00000001-%d", i+1),
			Properties: map[string]string{"hostname": fmt.Sprintf("c1-%d.local", i+1), "access_v4": fmt.Sprintf("10.0.0.%d", i+1)}})
	}
	return []profile.Event{
		{Kind: profile.Asking}, {Kind: profile.Returned, Cluster: &profile.RunCluster{Name: "c"}, ID: "00000001", Operation: "00000001-001"},
		{Kind: profile.Saw, Seen: profile.SeenRunning}, {Kind: profile.Ready, Cluster: c}, {Kind: profile.Begun, Operation: "00000001-002"},
	}
}

// Ended returns the event of a program's end.
func Ended(s profile.Status, why string) profile.Event {
	return profile.Event{Kind: profile.ProgramIs, Status: s, Message: why}
}

// Writes adds a task for a step to the run whose program is operation 00000001-002. The task ran on
// one node, wrote text to its log and succeeded.
func (a *Agent) Writes(step, text string) {
	const op = "00000001-002"
	_, _ = a.change(model.Caller{Tenant: "acme"}, func(st *state) ([]model.Event, error) {
		t := model.Task{ID: fmt.Sprintf("%s/%d", op, len(st.Tasks[op])), Operation: op, Cluster: "00000001", Node: "00000001-1",
			Hostname: "c1-1.local", Service: step, Action: model.Run, Status: model.TaskSucceeded, Attempt: 1}
		t.Attempts = []model.TaskAttempt{{Number: 1, Agent: "a", Outcome: t.Status.String(), Leased: a.clock, Ended: a.clock}}
		if len(st.Tasks[op]) == 0 {
			st.Ops = append(st.Ops, &model.Operation{ID: op, Tenant: "acme", Cluster: "00000001", Type: model.OpRun, Status: model.OpRunning})
		}
		st.Tasks[op] = append(st.Tasks[op], t)
		a.logs[t.ID] = append(a.logs[t.ID], text...)
		return nil, nil
	})
}
