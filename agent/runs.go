package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coopr/coopr/consensus/duty/runs"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/rpc/api"
	pb "github.com/coopr/coopr/rpc/proto"
)

// runsDuty makes the duty that carries runs out.
func (a *Agent) runsDuty(m *member, l *leadership) *runs.Driver {
	c := &runs.Clusters{Machine: m.Machine, Propose: m.Propose, Start: l.orchestrator}
	return runs.New(runs.Config{
		Machine: m.Machine, Propose: m.Propose, Provisioner: c.Provisioner, Programs: c.Programs(), Random: rand.Uint32, Logger: a.log,
	})
}

// forever is the time-out of steps that have none.
const forever = 10 * 365 * 24 * time.Hour

// programs keeps what the tasks of a run's program are made from, by operation.
type programs struct {
	operation string
	source    *operation.Source
	nodes     []*model.Node
	run       *profile.Run
	version   uint64 // of the cluster
}

// program makes what a worker gets for a step of a program: the step stands among the
// cluster's services as one with an action "run".
func (t *tasks) program(v *state.View, op *model.Operation, cl *model.Cluster) (*programs, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.ran; p != nil && p.operation == op.ID && p.version == cl.Version {
		return p, nil
	}
	r, ok := v.RunOf(op.Tenant, op.Cluster)
	if !ok {
		return nil, fmt.Errorf("there is no run of cluster %s any more", op.Cluster)
	}
	with := *cl
	with.Definitions = maps.Clone(cl.Definitions)
	if with.Definitions == nil {
		with.Definitions = map[string]model.Service{}
	}
	for i := range r.Program.Steps {
		s := &r.Program.Steps[i]
		env, err := profile.Reveal(s.Env, func(name string) (string, bool) { return v.Secret(op.Tenant, name) })
		if err != nil {
			return nil, fmt.Errorf("step %s: variable %w", s.Name, err)
		}
		limit := forever
		if s.Timeout > 0 {
			limit = time.Duration(s.Timeout) * time.Millisecond
		}
		with.Definitions[s.Name] = model.Service{
			Base:        model.Base{Name: s.Name},
			Provisioner: model.ServiceProvisioner{Actions: map[string]model.ServiceAction{model.Run.Key(): {Type: operation.ProgramAutomator, Fields: s.Fields(r.Arguments, env), Timeout: limit.String()}}},
		}
	}
	nodes := v.Nodes(op.Tenant, op.Cluster)
	t.ran = &programs{operation: op.ID, source: operation.NewSource(&with, nodes), nodes: nodes, run: r, version: cl.Version}
	return t.ran, nil
}

// step makes the task of a step on a node.
func (t *tasks) step(v *state.View, op *model.Operation, cl *model.Cluster, n *model.Node, s *plan.State, u uint32) (*pb.Task, error) {
	p, err := t.program(v, op, cl)
	if err != nil {
		return nil, err
	}
	st, id := s.Task(u), string(model.OperationID(op.ID).Task(u))
	name := s.Graph.ServiceName(int(u))
	w, err := p.source.Work(op.ID, id, n, nil, model.Run, name)
	if err != nil {
		return nil, err
	}
	hosts, ips := make([]string, len(p.nodes)), make([]string, len(p.nodes))
	for i, other := range p.nodes {
		hosts[i], ips[i] = other.Hostname, other.IPAddresses["access_v4"]
	}
	env := map[string]string{
		"COOPR_RUN": p.run.ID, "COOPR_PROGRAM": p.run.Program.Name, "COOPR_STEP": name,
		"COOPR_NODES": strings.Join(hosts, " "), "COOPR_NODE_IPS": strings.Join(ips, " "), "COOPR_NODE_COUNT": strconv.Itoa(len(p.nodes)),
		"COOPR_NODE_INDEX": strconv.Itoa(slices.IndexFunc(p.nodes, func(other *model.Node) bool { return other.ID == n.ID })),
	}
	maps.Copy(env, op.Parameters)
	return &pb.Task{
		Id: id, Attempt: uint32(st.Attempt), Tenant: op.Tenant, Mesh: v.Mesh(), Cluster: op.Cluster, Operation: op.ID, Node: n.ID,
		Action: model.Run.String(), Service: name, Plugin: w.Plugin, Automator: w.Automator,
		Observe: st.Note != nil && st.Note.Observe, TimeoutMs: w.Timeout.Milliseconds(), Input: operation.WithParameters(w.Input, env), Resources: op.Resources,
	}, nil
}

// ChangeSetting does something to a profile, a program, a schedule, preferences or a secret.
func (b *backend) ChangeSetting(ctx context.Context, who model.Caller, s api.Setting) (api.Written, error) {
	p := &pb.PutSetting{Kind: s.Kind, Name: s.Name, Order: s.Order, System: s.System}
	if secret, ok := s.Value.(model.Secret); ok {
		p.Body = []byte(secret.Reveal())
	} else if s.Value != nil {
		var err error
		if p.Body, err = json.Marshal(s.Value); err != nil {
			return api.Written{}, err
		}
	}
	return b.propose(ctx, who, &pb.Command{Change: &pb.Command_ChangeRuns{ChangeRuns: &pb.ChangeRuns{Change: &pb.ChangeRuns_Put{Put: p}}}})
}

// StartRun begins a run.
func (b *backend) StartRun(ctx context.Context, who model.Caller, req api.StartRun) (string, api.Written, error) {
	m, _, ok := b.leader()
	if !ok {
		return "", api.Written{}, api.ErrNoLeader
	}
	const tries = 5
	for try := 1; ; try++ {
		v := m.Machine.View()
		p, err := runs.Prepare(v, who, runs.Start{
			Program: req.Program, Version: req.Version, Inline: req.Inline, Profile: req.Profile, Nodes: req.Nodes, Runtime: req.Runtime, Arguments: req.Arguments,
		}, time.Now(), rand.Uint32())
		if err != nil {
			if id, ok := v.Request(who); ok {
				return id, api.Written{Index: v.Index(), Repeated: true}, nil
			}
			return "", api.Written{}, mapError(err)
		}
		c, err := p.Command(who, nil, 0)
		if err != nil {
			return "", api.Written{}, err
		}
		answers, err := m.Propose(ctx, c)
		if err != nil {
			return "", api.Written{}, mapError(err)
		}
		a := answers[0]
		switch w := (api.Written{Index: a.Index, Repeated: a.Repeated}); {
		case errors.Is(a.Err, state.ErrStale) && try < tries:
			continue
		case errors.Is(a.Err, state.ErrLimit):
			return a.Subject, w, fmt.Errorf("%w: %s", api.ErrTooMany, strings.TrimPrefix(a.Err.Error(), state.ErrLimit.Error()+": "))
		case a.Err != nil:
			return "", w, mapError(a.Err)
		default:
			return a.Subject, w, nil
		}
	}
}

// OrderRun gives an order about a run.
func (b *backend) OrderRun(ctx context.Context, who model.Caller, run string, e profile.Event) (api.Written, error) {
	body, err := json.Marshal(e)
	if err != nil {
		return api.Written{}, err
	}
	return b.propose(ctx, who, &pb.Command{Change: &pb.Command_ChangeRuns{ChangeRuns: &pb.ChangeRuns{
		Change: &pb.ChangeRuns_Event{Event: &pb.RunEvent{Run: run, Event: body}},
	}}})
}
