package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"
	"github.com/coopr/coopr/testing/programs"
)

// lastRelease builds the programs of the last release and returns their folder.
func lastRelease(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(testdata(t, "release"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	dir := filepath.Join(t.TempDir(), "release")
	if err := programs.PutOf(lines[len(lines)-1], dir, "./cmd/...", "./plugins/automator/coopr-automator-shell"); err != nil {
		t.Fatal(err)
	}
	return dir
}

// load is work that goes on while agents are upgraded: one cluster after the other is created, restarted and deleted.
type load struct {
	client *client.Client
	quit   chan struct{}
	ended  sync.WaitGroup
	// The goroutine writes these, and has ended before they are read.
	ops []string
	err error
}

// startLoad starts a load on the mesh.
func (m *mesh) startLoad() *load {
	l := &load{client: m.api(), quit: make(chan struct{})}
	l.ended.Go(func() {
		for n := 0; l.err == nil; n++ {
			select {
			case <-l.quit:
				return
			default:
				l.err = l.cycle(fmt.Sprintf("load%d", n))
			}
		}
	})
	m.t.Cleanup(l.stop)
	return l
}

// stop waits until the cluster at hand is deleted.
func (l *load) stop() {
	select {
	case <-l.quit:
	default:
		close(l.quit)
	}
	l.ended.Wait()
}

// cycle creates, restarts and deletes one cluster.
func (l *load) cycle(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	st, _, err := l.client.CreateCluster(ctx, model.CreateCluster{Name: name, ClusterTemplate: "ledger", NumMachines: model.Int(2)}, false)
	if err != nil {
		return fmt.Errorf("create cluster %s: %w", name, err)
	}
	if err := l.end(ctx, st.Operation.ID); err != nil {
		return err
	}
	for _, what := range []model.OperationType{model.OpRestart, model.OpDelete} {
		st, _, err := l.client.Operate(ctx, name, api.Operate{Type: what})
		if err != nil {
			return fmt.Errorf("%s cluster %s: %w", what, name, err)
		}
		if err := l.end(ctx, st.Operation.ID); err != nil {
			return err
		}
	}
	return nil
}

// end waits for the end of an operation.
func (l *load) end(ctx context.Context, op string) error {
	l.ops = append(l.ops, op)
	for read := (client.Read{Wait: 5 * time.Second}); ; {
		d, meta, err := l.client.Operation(ctx, op, read)
		switch {
		case err != nil:
			return fmt.Errorf("operation %s: %w", op, err)
		case d.Status == model.OpSucceeded:
			return nil
		case d.Status.Ended():
			return fmt.Errorf("operation %s of cluster %s is %s: %s", op, d.Cluster, d.Status, d.Message)
		}
		read.After = meta.Index
	}
}

// once compares the ledger with the tasks of all operations that there were: every task succeeded, what the ledger knows is an attempt
// of one of them, no attempt was made twice, and every node was made once.
func (m *mesh) once(ops []string) {
	m.t.Helper()
	of := map[uint64]*model.Task{} // by fence
	begun, made := map[string]int{}, map[string]int{}
	for _, op := range ops {
		tasks := m.tasks(op)
		for i := range tasks {
			t := &tasks[i]
			if t.Status != model.TaskSucceeded {
				m.t.Errorf("%s of operation %s is %s", name(t), op, t.Status)
			}
			m.attempts(t)
			for _, a := range t.Attempts {
				of[a.Fence] = t
			}
		}
	}
	attempts := map[uint64]bool{}
	for _, e := range m.ledger() {
		t := of[e.fence]
		if t == nil || t.Service != e.service || t.Action.String() != e.action {
			m.t.Errorf("no operation knows what the ledger has: %+v", e)
			continue
		}
		switch e.what {
		case "begin":
			if attempts[e.fence] {
				m.t.Errorf("%s was begun twice with fence %d", name(t), e.fence)
			}
			attempts[e.fence] = true
			begun[t.ID]++
		case "made":
			made[t.ID]++
		case "taken":
			m.t.Errorf("%s was made a second time, with fence %d", name(t), e.fence)
		}
	}
	for _, t := range of {
		if begun[t.ID] == 0 && t.Action != model.Bootstrap {
			m.t.Errorf("%s succeeded, but the ledger does not know it", name(t))
		}
		if t.Action == model.Create && made[t.ID] != 1 {
			m.t.Errorf("%s: made %d times", name(t), made[t.ID])
		}
	}
}

// compared waits until the leader has compared the state of all voters. They run one build: the states of two builds cannot be compared.
func (m *mesh) compared() {
	m.t.Helper()
	m.await("the copies of the state to be compared", func() error {
		peers, err := m.api(m.leader()).RaftPeers(m.context())
		if err != nil {
			return err
		}
		for _, p := range peers {
			switch p.State {
			case "same":
			case "differs":
				m.t.Fatalf("the state of agent %s is not that of the others", p.Name)
			default:
				return fmt.Errorf("agent %s: %q", p.Name, p.State)
			}
		}
		return nil
	})
}

// verified checks the chain of the audit log in every agent's own copy.
func (m *mesh) verified() {
	m.t.Helper()
	for _, a := range m.agents {
		if v, err := m.api(a).AuditVerify(m.context(), client.Read{Consistency: api.Stale}); err != nil || !v.OK || v.Records == 0 {
			m.t.Errorf("the audit log of agent %s: %v, %+v", a.name, err, v)
		}
	}
}

// leads transfers the leadership to an agent.
func (m *mesh) leads(a *agent) {
	m.t.Helper()
	m.await("agent "+a.name+" to lead", func() error {
		if s, err := a.status(); err != nil || s.IsLeader && s.LeaderReady {
			return err
		}
		s := m.coopr("operator", "raft", "transfer", a.name)
		return fmt.Errorf("%w: the transfer ended with exit code %d, %s", errNotYet, s.code, s.err)
	})
}

// TestUpgrade follows docs/upgrading.md: a mesh of the last release is upgraded agent by agent while it works, goes back before the
// feature level is raised, and is upgraded again. Agents and leaders of both builds take their turns, and both builds' command works with
// them. Once the level is raised, the mesh does without an agent of the last release, which says why.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	old := lastRelease(t)
	m := newMesh(t, "a", "b", "c")
	start := func(a *agent, programs string) {
		t.Helper()
		m.bin = programs
		a.run("run", "--config", a.config(m.voterToken()))
	}
	m.bin = old
	m.found()
	for _, a := range m.agents {
		start(a, old)
	}
	m.ready()
	m.vote()
	var tenants []string
	both := func() {
		t.Helper()
		for _, programs := range []string{old, bin} {
			m.bin = programs
			tenant := fmt.Sprintf("t%d", len(tenants))
			tenants = append(tenants, `"`+tenant+`"`)
			m.must("tenant", "put", tenant)
			m.must("secret", "put", tenant, "--file", m.put("value", "the secret of "+tenant))
			for _, known := range tenants {
				if out := m.must("tenant", "list", "-o", "json"); !strings.Contains(out, known) {
					t.Errorf("tenant %s is lost:\n%s", known, out)
				}
			}
			if out := m.must("cluster", "list"); !strings.Contains(out, "stays") {
				t.Errorf("a cluster is lost:\n%s", out)
			}
		}
		m.verified()
	}
	raised := func() int {
		t.Helper()
		return strings.Count(m.must("audit", "list", "--type", "mesh.upgraded", "-o", "json"), `"mesh.upgraded"`)
	}
	move := func(programs string, agents ...*agent) {
		t.Helper()
		for _, a := range agents {
			a.stop()
			start(a, programs)
			m.ready()
			both()
		}
	}
	a, b, c := m.agents[0], m.agents[1], m.agents[2]
	stays := m.create("stays", 12)
	work := m.startLoad()
	before := raised()

	move(bin, a, b)
	m.leads(a)
	both()
	m.leads(c)
	both()
	move(old, a, b)
	m.compared()
	if n := raised(); n != before {
		t.Fatalf("the feature level was raised %d times while there was an agent of the last release", n-before)
	}

	move(bin, a, b, c)
	m.await("the feature level to be raised", func() error {
		if raised() == before {
			return errNotYet
		}
		return nil
	})
	both()
	m.compared()

	c.stop()
	start(c, old)
	c.logs("upgrade this agent")
	if n := len(m.must("cluster", "list", "-o", "json")); n == 0 {
		t.Error("the mesh does not work without an agent")
	}
	c.stop()
	start(c, bin)
	m.ready()
	work.stop()
	if work.err != nil {
		t.Error(work.err)
	}
	m.succeeds(stays.ID)
	m.once(append(work.ops, stays.ID))
	m.compared()
	m.verified()
	m.must("audit", "verify")
	m.remove("stays")
	m.stop()
}
