package mesh

import (
	"context"
	"fmt"
	"net/http"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/profile"
	pb "github.com/coopr/coopr/rpc/proto"
)

// DefineRuns writes a profile "small" of two nodes of the simulated cloud with the rules
// that are given, and a program "job" of two steps.
func (m *Mesh) DefineRuns(p profile.Profile) {
	m.T.Helper()
	m.Until("the simulated cloud to be offered", func() bool { return m.Ask("GET", "/v1/provisioners/sim", nil, nil) == http.StatusOK })
	p.Provisioner = profile.Provisioner{Name: "sim", Properties: []profile.Property{{Name: profile.PropNodes, Value: "2"}}}
	m.Must("PUT", "/v1/profiles/small", p, nil)
	m.Must("PUT", "/v1/programs/job", profile.Program{Steps: []profile.Step{
		{Name: "map", Command: []string{"true"}}, {Name: "reduce", On: profile.OnOne, Command: []string{"true"}},
	}}, nil)
}

// BeginRun begins a run of the program and returns its id.
func (m *Mesh) BeginRun() string {
	m.T.Helper()
	var r struct{ ID string }
	m.Must("POST", "/v1/programs/job/start", map[string]any{"profile": "small"}, &r)
	return r.ID
}

// Run returns a run as the leader has it, or nil: there is no leader, or no such run.
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

// Orphans lets the mesh ask the providers, and returns the orphans.
func (m *Mesh) Orphans() []model.Orphan {
	m.T.Helper()
	var r model.OrphanReport
	m.Must("POST", "/v1/orphans/search", nil, &r)
	return r.Orphans
}

// RemoveOrphan lets the mesh remove one of them.
func (m *Mesh) RemoveOrphan(id string) {
	m.T.Helper()
	m.Must("POST", "/v1/orphans/remove", map[string]string{"id": id}, nil)
}

// List reports every machine.
func (x *executor) List(ctx context.Context, _ string, in *pb.ListRequest, found func(*pb.Resource) error) error {
	if err := x.life.moving(); err != nil {
		return err
	}
	x.world.mu.Lock()
	defer x.world.mu.Unlock()
	x.world.asked = append(x.world.asked, string(in.Fields))
	for _, m := range x.world.machines {
		if err := found(&pb.Resource{Cluster: m.Cluster, Node: m.Node, Fence: m.Fence, Id: m.id()}); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// Remove removes a machine that List reported.
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

// RazeAll removes all machines without notice, and returns their number.
func (w *World) RazeAll() int {
	w.mu.Lock()
	var nodes []string
	for n := range w.machines {
		nodes = append(nodes, n)
	}
	w.mu.Unlock()
	for _, n := range nodes {
		w.Raze(n)
	}
	return len(nodes)
}

// SaveState returns the whole state as an operator saves it, signed.
func (m *Mesh) SaveState() []byte {
	m.T.Helper()
	m.Until("a signing key", func() bool { return len(m.AwaitLeader().View().SigningKeys()) > 0 })
	code, body := m.AwaitLeader().Call("GET", "/v1/operator/snapshot", nil, "")
	if code != http.StatusOK {
		m.T.Fatalf("seed %d: saving the state: %d %s", m.opts.Seed, code, body)
	}
	return body
}

// RestoreState replaces the whole state by one that was saved. query has the options of the request, such as "?resume=true".
func (m *Mesh) RestoreState(saved []byte, query string) {
	m.T.Helper()
	m.Until("the state to be restored", func() bool {
		code, body := m.AwaitLeader().Call("POST", "/v1/operator/snapshot"+query, saved, "")
		m.Tracef("restored: %d %s", code, body)
		return code < 300
	})
}

// SetTrouble sets how attempts go, while agents are at work.
func (w *World) SetTrouble(trouble func(t *pb.Task, attempt int) Trouble) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Trouble = trouble
}

// SetReturns changes Returns.
func (w *World) SetReturns(returns func(t *pb.Task) (results map[string]any, saved map[string]string)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Returns = returns
}

// Idle reports whether no attempt is running in the world.
func (w *World) Idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.attempts {
		if a.Ended == 0 && !a.life.isDead() {
			return false
		}
	}
	return true
}

// OrderRun gives an order to a run.
func (m *Mesh) OrderRun(id, order string) {
	m.T.Helper()
	m.Must("POST", "/v1/runs/"+id+"/"+order, nil, nil)
}
