package mesh

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/audit"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	pb "github.com/coopr/coopr/rpc/proto"
)

// CheckAll waits until every voter is up to date and checks all guarantees.
func (m *Mesh) CheckAll() {
	m.T.Helper()
	v := m.CheckEqual()
	for _, event := range []string{"voter.differs", "voters.differ", "voter.quarantined"} {
		if n := Audited(m.T, v, event); n > 0 {
			m.T.Errorf("seed %d: %d audit records of %s, but no state was damaged", m.opts.Seed, n, event)
		}
	}
	for _, s := range m.World.Violations() {
		m.T.Errorf("seed %d: %s", m.opts.Seed, s)
	}
	byTask := map[string][]*Attempt{}
	for _, a := range m.World.Attempts() {
		byTask[a.Task] = append(byTask[a.Task], a)
	}
	for _, op := range v.Operations("", "") {
		if s, ok := v.Plan(op.ID); ok {
			m.checkPlan(op, s, byTask)
		}
		m.checkCluster(v, op)
	}
}

// CheckEqual waits until the voters have applied the same, and compares every
// byte of their states. It returns the state.
func (m *Mesh) CheckEqual() *state.View {
	m.T.Helper()
	var views []*state.View
	var names []string
	m.Until("all voters at one index", func() bool {
		views, names = nil, nil
		for _, a := range m.Voters() {
			r := a.agent.Replica()
			if r == nil {
				return false
			}
			views, names = append(views, r.Machine.View()), append(names, a.Name)
		}
		if len(views) == 0 || len(views) < min(m.opts.Expect, len(m.agents)) {
			return false
		}
		for _, v := range views {
			if v.Index() != views[0].Index() {
				return false
			}
		}
		return true
	})
	checkSums(m.T, m.opts.Seed, views, names)
	var want []byte
	for i, v := range views {
		var b bytes.Buffer
		if err := v.Write(&b); err != nil {
			m.T.Fatalf("seed %d: %s: %v", m.opts.Seed, names[i], err)
		}
		if i == 0 {
			want = b.Bytes()
		} else if !bytes.Equal(want, b.Bytes()) {
			m.T.Errorf("seed %d: the states of %s and %s differ at index %d", m.opts.Seed, names[0], names[i], v.Index())
		}
	}
	// Equal bytes prove equal heads. Verify also proves that no record was changed.
	if rep := views[0].Audit().Verify(views[0].SigningKeys()); !rep.OK {
		m.T.Errorf("seed %d: the audit log's record %d: %s", m.opts.Seed, rep.Bad.Seq, rep.Bad.Reason)
	}
	return views[0]
}

// checkSums compares the digests of the voters' states at one index.
func checkSums(t testing.TB, seed uint64, views []*state.View, names []string) {
	t.Helper()
	var want state.Sums
	for i, v := range views {
		sums, err := v.Sums()
		if err != nil {
			t.Fatalf("seed %d: %s: %v", seed, names[i], err)
		}
		if i == 0 {
			want = sums
		} else if !reflect.DeepEqual(sums, want) {
			t.Errorf("seed %d: the digests of %s and %s differ at index %d", seed, names[0], names[i], v.Index())
		}
	}
}

// Audited counts the audit records of a type.
func Audited(t testing.TB, v *state.View, kind string) (n int) {
	t.Helper()
	err := v.Audit().Each(&audit.Filter{}, false, audit.Cursor{}, func(r audit.Record) bool {
		if r.Type == kind {
			n++
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// checkPlan compares a plan with the effects on the world: only attempts that succeeded under their
// fence count, and nothing began before its predecessors.
func (m *Mesh) checkPlan(op *model.Operation, s *plan.State, byTask map[string][]*Attempt) {
	g := s.Graph
	good := make([]*Attempt, g.Len())  // the attempt that counts
	first := make([]*Attempt, g.Len()) // the first one that ended well
	for u := range g.Len() {
		if g.Action[u] == model.Barrier {
			continue
		}
		task := string(model.OperationID(op.ID).Task(uint32(u)))
		t := s.Task(uint32(u))
		for _, a := range byTask[task] {
			if a.Outcome == pb.Outcome_OUTCOME_SUCCEEDED && a.Action == g.Action[u].String() {
				if first[u] == nil {
					first[u] = a
				}
				if a.Fence == t.Fence {
					good[u] = a
				}
			}
		}
		if t.Status == model.TaskSucceeded && good[u] == nil {
			m.T.Errorf("seed %d: %s (%s) counts as done under fence %d, but no attempt ended well under it", m.opts.Seed, task, g.Name(u), t.Fence)
		}
		if op.Status.Ended() && t.Status.Held() {
			m.T.Errorf("seed %d: operation %s is %s, but task %s is %s", m.opts.Seed, op.ID, op.Status, task, t.Status)
		}
	}
	// What each task waits for, seen through barriers.
	before := make([]map[int]bool, g.Len())
	for u := range g.Len() {
		before[u] = map[int]bool{}
	}
	for range g.Len() {
		changed := false
		for u := range g.Len() {
			for _, w := range g.Next(u) {
				from := map[int]bool{u: true}
				if g.Action[u] == model.Barrier {
					from = before[u]
				}
				for x := range from {
					if !before[w][x] {
						before[w][x], changed = true, true
					}
				}
			}
		}
		if !changed {
			break
		}
	}
	for u := range g.Len() {
		for _, a := range byTask[string(model.OperationID(op.ID).Task(uint32(u)))] {
			for x := range before[u] {
				if t := s.Task(uint32(x)); t.Tolerated || t.Status == model.TaskSucceeded && t.Attempt == 0 {
					continue // nobody waited for its success
				}
				if a.Action == g.Action[u].String() && (first[x] == nil || first[x].Ended > a.Began) {
					m.T.Errorf("seed %d: %s began (fence %d) before %s was done", m.opts.Seed, g.Name(u), a.Fence, g.Name(x))
				}
			}
		}
	}
}

// checkCluster compares a cluster at rest with the world.
func (m *Mesh) checkCluster(v *state.View, op *model.Operation) {
	cl, ok := v.Cluster(op.Tenant, op.Cluster)
	if !ok || cl.Operation != op.ID || !op.Status.Ended() {
		return
	}
	m.World.mu.Lock()
	defer m.World.mu.Unlock()
	fail := func(format string, args ...any) {
		m.T.Errorf("seed %d: cluster %s: %s", m.opts.Seed, cl.ID, fmt.Sprintf(format, args...))
	}
	nodes := v.Nodes(op.Tenant, op.Cluster)
	switch cl.Status {
	case model.ClusterTerminated:
		for node := range m.World.machines {
			if len(node) > len(cl.ID) && node[:len(cl.ID)] == cl.ID {
				fail("it is terminated, but the machine of node %s is still there", node)
			}
		}
		if len(nodes) > 0 {
			fail("it is terminated, but has %d nodes", len(nodes))
		}
	case model.ClusterActive:
		dbs, apps := "", ""
		for _, n := range nodes {
			mc := m.World.machines[n.ID]
			if mc == nil {
				fail("it is active, but node %s has no machine", n.ID)
				continue
			}
			for _, s := range n.Services {
				switch s {
				case "db":
					dbs += mc.IP
				case "app":
					if apps != "" {
						apps += ","
					}
					apps += mc.IP
				}
			}
		}
		for _, n := range nodes {
			mc := m.World.machines[n.ID]
			if mc == nil {
				continue
			}
			if n.IPAddresses["access_v4"] != mc.IP {
				fail("node %s has address %s, its machine %s", n.ID, n.IPAddresses["access_v4"], mc.IP)
			}
			for _, s := range n.Services {
				if op.Type == model.OpCreate && !mc.Running[s] {
					fail("service %s does not run on node %s", s, n.ID)
				}
				var c struct{ DB, Apps string }
				if err := json.Unmarshal(mc.Config[s], &c); err != nil || c.DB != dbs || c.Apps != apps {
					fail("service %s on node %s was configured with %s; the db is at %s, the apps at %s", s, n.ID, mc.Config[s], dbs, apps)
				}
			}
		}
	default:
	}
}
