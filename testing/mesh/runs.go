package mesh

import (
	"context"
	"fmt"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/profile"
	pb "github.com/coopr/coopr/rpc/proto"
)

// DefineRuns writes a profile "small" of two nodes of the simulated cloud with the rules
// that are given, and a program "job" of two steps.
func (m *Mesh) DefineRuns(p profile.Profile) {
	m.T.Helper()
	m.AwaitLeader()
	p.Provisioner = profile.Provisioner{Name: "sim", Properties: []profile.Property{{Name: profile.PropNodes, Value: "2"}}}
	m.must("PUT", "/v1/profiles/small", p, nil)
	m.must("PUT", "/v1/programs/job", profile.Program{Steps: []profile.Step{
		{Name: "map", Command: []string{"true"}}, {Name: "reduce", On: profile.OnOne, Command: []string{"true"}},
	}}, nil)
}

// BeginRun begins a run of the program and gives its id.
func (m *Mesh) BeginRun() string {
	m.T.Helper()
	var r struct{ ID string }
	m.must("POST", "/v1/programs/job/start", map[string]any{"profile": "small"}, &r)
	return r.ID
}

// Run gives a run as the leader has it, or nil: there is no leader, or no such run.
func (m *Mesh) Run(id string) *profile.Run {
	l := m.Leader()
	if l == nil {
		return nil
	}
	replica := l.agent.Replica()
	if replica == nil {
		return nil
	}
	for _, r := range replica.Machine.View().LiveRuns() {
		if r.ID == id {
			return r
		}
	}
	for _, r := range replica.Machine.View().Runs("") {
		if r.ID == id {
			return r
		}
	}
	return nil
}

// Orphans has the providers asked, and gives the machines that are no node's.
func (m *Mesh) Orphans() []model.Orphan {
	m.T.Helper()
	var r model.OrphanReport
	m.must("POST", "/v1/orphans/look", nil, &r)
	return r.Orphans
}

// RemoveOrphan has one of them removed.
func (m *Mesh) RemoveOrphan(id string) {
	m.T.Helper()
	m.must("POST", "/v1/orphans/remove", map[string]string{"id": id}, nil)
}

// List tells of every machine that was made.
func (x *executor) List(ctx context.Context, _ string, _ *pb.ListRequest, found func(*pb.Resource) error) error {
	if err := x.life.moving(); err != nil {
		return err
	}
	x.world.mu.Lock()
	defer x.world.mu.Unlock()
	for _, m := range x.world.machines {
		if err := found(&pb.Resource{Cluster: m.Cluster, Node: m.Node, Fence: m.Fence, Id: m.id()}); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// Remove removes a machine that List told of.
func (x *executor) Remove(_ context.Context, _ string, req *pb.RemoveRequest) error {
	if err := x.life.moving(); err != nil {
		return err
	}
	x.world.mu.Lock()
	defer x.world.mu.Unlock()
	for node, m := range x.world.machines {
		if m.id() == req.Resource.Id {
			delete(x.world.machines, node)
		}
	}
	return nil
}

// id is the cloud's own name for the machine.
func (m *Machine) id() string { return fmt.Sprint("vm-", m.Fence) }
