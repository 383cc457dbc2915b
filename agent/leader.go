package agent

import (
	"context"
	crand "crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/coopr/coopr/consensus/duty/dispatch"
	"github.com/coopr/coopr/consensus/duty/janitor"
	"github.com/coopr/coopr/consensus/duty/orchestrate"
	"github.com/coopr/coopr/consensus/duty/recovery"
	"github.com/coopr/coopr/consensus/duty/watch"
	"github.com/coopr/coopr/consensus/leader"
	"github.com/coopr/coopr/consensus/raftgroup/voters"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	pb "github.com/coopr/coopr/rpc/proto"
)

// FirstTenant is the tenant that a new mesh has, and that of the root token
// where a request names no other.
const FirstTenant = "default"

// duties makes what this agent does while it leads.
func (a *Agent) duties(m *member) []leader.Duty {
	d := dispatch.New(dispatch.Config{
		Machine: m.Machine, Propose: m.Propose, Tasks: newTasks(m.Machine), Logger: a.log, TTL: a.cfg.TTL, Jitter: rand.Float64,
	})
	l := &leadership{broken: make(chan brokenConn, 1024), dispatcher: d, orchestrator: orchestrate.New(orchestrate.Config{Machine: m.Machine, Propose: m.Propose, Logger: a.log, Rank: a.Rank, First: firstLeases(d)})}
	l.watcher = watch.New(watch.Config{Machine: m.Machine, Propose: m.Propose, Tasks: watchTasks{newTasks(m.Machine)}, Logger: a.log, TTL: a.cfg.TTL})
	l.orphans = janitor.NewOrphans(janitor.OrphansConfig{
		Machine: m.Machine, Propose: m.Propose, Finder: finder{a, m}, Logger: a.log,
		Every: a.cfg.Orphans.Every, Delete: a.cfg.Orphans.Delete, Grace: a.cfg.Orphans.Grace,
	})
	l.sites = a.siteKeeper(m)
	m.lead.Store(l)
	keeper, err := a.voterDuty(m)
	if err != nil {
		panic(err) // only a wrong configuration of ours
	}
	return []leader.Duty{
		&seed{a, m},
		l.orchestrator,
		l.dispatcher,
		l.watcher,
		l.sites,
		recovery.New(recovery.Config{Machine: m.Machine, Start: l.orchestrator, Logger: a.log}),
		a.runsDuty(m, l),
		janitor.New(janitor.Config{Machine: m.Machine, Propose: m.Propose, Logger: a.log, Audit: a.cfg.Audit.Retention, AuditRecords: uint64(a.cfg.Audit.Records), AuditMemory: uint64(a.cfg.Audit.Memory), Delete: func(ctx context.Context, cl *model.Cluster) error {
			who := model.Caller{Tenant: cl.Tenant, Actor: model.Self, Role: model.RoleAdmin}
			_, _, err := l.orchestrator.Operate(ctx, who, cl.ID, operation.Request{Type: model.OpDelete})
			return err
		}}),
		l.orphans,
		keeper,
		&telling{a, m, l},
	}
}

// seed gives a new mesh its first tenant.
type seed struct {
	a *Agent
	m *member
}

func (s *seed) Name() string { return "seed" }

func (s *seed) Restore(ctx context.Context) error {
	if _, ok := s.m.Machine.View().Tenant(FirstTenant); ok {
		return nil
	}
	b, err := json.Marshal(model.Tenant{Name: FirstTenant, Description: "the tenant that every mesh begins with"})
	if err != nil {
		return err
	}
	answers, err := s.m.Propose(ctx,
		&pb.Command{Actor: "coopr", Change: &pb.Command_PutTenant{PutTenant: &pb.PutTenant{Tenant: b, CreateOnly: true}}},
		&pb.Command{Actor: "coopr", Change: &pb.Command_RaiseFeatureLevel{RaiseFeatureLevel: &pb.RaiseFeatureLevel{Level: state.FeatureLevel, Mesh: strings.ToLower(crand.Text()[:8])}}})
	if err != nil {
		return fmt.Errorf("first tenant: %w", err)
	}
	return answers[1].Err
}

func (s *seed) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// devToken makes the token that another dev agent printed good everywhere: a
// mesh in dev mode has no secret to derive a common one from.
func (a *Agent) admitDevToken(ctx context.Context, m *member, agent string, hash []byte) error {
	if !a.cfg.Dev || len(hash) == 0 {
		return nil
	}
	if _, ok := m.Machine.View().TokenByHash(hex.EncodeToString(hash)); ok {
		return nil
	}
	_, err := m.Propose(ctx, &pb.Command{Actor: "coopr", Change: &pb.Command_PutToken{PutToken: &pb.PutToken{
		Hash: hash, Actor: "dev", Tenant: FirstTenant, Role: string(model.RoleSuperadmin), Id: "dev-" + agent,
	}}})
	return err
}

// candidates are the agents that may vote, as the mesh has them and as they
// talk to this one.
func (a *Agent) candidates() []voters.Candidate {
	var live map[string]int
	if m := a.member.Load(); m != nil {
		if l := m.lead.Load(); l != nil {
			live = l.dispatcher.Live()
		}
	}
	var out []voters.Candidate
	for _, m := range a.mesh.Members() {
		_, ok := live[m.ID]
		out = append(out, candidateOf(m, ok))
	}
	return out
}

// firstLeases lets an operation start with its first leases.
func firstLeases(d *dispatch.Dispatcher) func(context.Context, *operation.Prepared) (*pb.Lease, func(context.Context, state.Answer, error)) {
	return func(ctx context.Context, p *operation.Prepared) (*pb.Lease, func(context.Context, state.Answer, error)) {
		nodes := make(map[string]*model.Node, len(p.Nodes))
		for i := range p.Nodes {
			nodes[p.Nodes[i].ID] = &p.Nodes[i]
		}
		return d.First(ctx, &p.Operation, p.Graph, func(u uint32) dispatch.Needs {
			n := nodes[p.Graph.NodeID(int(u))]
			if n == nil {
				return dispatch.Needs{}
			}
			return needsOf(&p.Cluster, p.Operation.ID, n, p.Graph, u)
		})
	}
}
