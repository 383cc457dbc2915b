package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"
	"github.com/coopr/coopr/rpc/identity"
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
	ops     []string
	numbers map[string]string // of the nodes by id
	err     error
}

// startLoad starts a load on the mesh.
func (m *mesh) startLoad() *load {
	l := &load{client: m.api(), quit: make(chan struct{}), numbers: map[string]string{}}
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
	nodes, _, err := l.client.Nodes(ctx, name, client.Page{}, client.Read{})
	if err != nil {
		return fmt.Errorf("nodes of cluster %s: %w", name, err)
	}
	for _, n := range nodes {
		l.numbers[n.ID] = fmt.Sprint(n.Number)
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
// of one of them, no attempt was made twice, and every node was made once. Numbers are those of all nodes by id.
func (m *mesh) once(ops []string, numbers map[string]string) {
	m.t.Helper()
	// Tasks that are leased together share a fence, and nodes of two clusters may have one number: several attempts may be equal here.
	type attempt struct {
		node, service, action string
		fence                 uint64
	}
	known, begun, made := map[attempt]int{}, map[attempt]int{}, map[attempt]int{}
	tried := map[*model.Task][]attempt{}
	created, all := 0, 0
	for _, op := range ops {
		tasks := m.tasks(op)
		for i := range tasks {
			t := &tasks[i]
			if t.Status != model.TaskSucceeded {
				m.t.Errorf("%s of operation %s is %s", name(t), op, t.Status)
			}
			if t.Action == model.Create {
				created++
			}
			m.attempts(t)
			for _, a := range t.Attempts {
				this := attempt{numbers[t.Node], t.Service, t.Action.String(), a.Fence}
				known[this]++
				tried[t] = append(tried[t], this)
			}
		}
	}
	for _, e := range m.ledger() {
		a := attempt{e.node, e.service, e.action, e.fence}
		if known[a] == 0 {
			m.t.Errorf("no operation knows what the ledger has: %+v", e)
		}
		switch e.what {
		case "begin":
			if begun[a]++; begun[a] > known[a] {
				m.t.Errorf("%+v was begun a second time", a)
			}
		case "made":
			made[a]++
			all++
		case "taken":
			m.t.Errorf("%+v was made a second time", a)
		}
	}
	for t, attempts := range tried {
		never := func(in map[attempt]int) bool {
			return !slices.ContainsFunc(attempts, func(a attempt) bool { return in[a] > 0 })
		}
		if t.Action != model.Bootstrap && never(begun) {
			m.t.Errorf("%s succeeded, but the ledger does not know it", name(t))
		}
		if t.Action == model.Create && never(made) {
			m.t.Errorf("%s succeeded, but no node was made", name(t))
		}
	}
	if created == 0 || all != created {
		m.t.Errorf("%d nodes were made for %d tasks", all, created)
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

// protected waits until all agents have their identity and a content encrypted on their disks, or fails the test if one of them has and
// must not yet.
func (m *mesh) protected(text string, want bool) {
	m.t.Helper()
	for _, a := range m.agents {
		a.hasContent(text)
		m.await("the disk of agent "+a.name+" to be encrypted", func() error {
			id, err := identity.LoadMembership(a.data)
			if err != nil {
				return err
			}
			_, sealed := a.content(text)
			switch {
			case !want && (sealed || len(id.Sealed) > 0):
				m.t.Fatalf("agent %s has encrypted what the last release cannot read: content %t, identity %t", a.name, sealed, len(id.Sealed) > 0)
			case want && (!sealed || len(id.Sealed) == 0):
				return errNotYet
			}
			return nil
		})
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

// cannotRead waits until an agent of the last release has ended because its identity is encrypted, as docs/upgrading.md says. The
// release is out, so that its message is what it is.
func (a *agent) cannotRead() {
	m := a.mesh
	m.t.Helper()
	select {
	case <-a.ended:
	case <-time.After(patience):
		m.t.Fatalf("agent %s runs with an identity that the last release cannot read", a.name)
	}
	if log := a.tail(20); a.err == nil || !strings.Contains(log, "the file has no whole key. Restore the file from a backup") {
		m.t.Errorf("agent %s ended with %v, and does not say why:\n%s", a.name, a.err, log)
	}
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
			out := m.must("tenant", "list", "-o", "json")
			for _, known := range tenants {
				if !strings.Contains(out, known) {
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
		return strings.Count(m.must("--tenant", "*", "audit", "list", "--type", "mesh.upgraded", "-o", "json"), `"mesh.upgraded"`)
	}
	move := func(programs string, agents ...*agent) {
		t.Helper()
		for _, a := range agents {
			a.stop()
			start(a, programs)
			m.ready()
		}
	}
	a, b, c := m.agents[0], m.agents[1], m.agents[2]
	stays := m.create("stays", 6)
	work := m.startLoad()
	before := raised()

	move(bin, a, b)
	m.leads(a)
	both()
	const content = "echo a script that is uploaded while the mesh is upgraded\n"
	m.must("resource", "upload", "automator/shell/scripts/kept.sh", m.put("kept.sh", content), "--activate")
	m.protected(content, false)
	m.leads(c)
	both()
	move(old, a, b)
	both()
	m.protected(content, false)
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
	m.protected(content, true)
	m.compared()

	c.stop()
	start(c, old)
	c.cannotRead()
	m.bin = bin
	m.must("tenant", "put", "without-c")
	if out := m.must("cluster", "list"); !strings.Contains(out, "stays") {
		t.Errorf("a cluster is lost:\n%s", out)
	}
	start(c, bin)
	m.ready()
	work.stop()
	if work.err != nil {
		t.Error(work.err)
	}
	m.succeeds(stays.ID)
	maps.Copy(work.numbers, m.numbers(m.tasks(stays.ID)))
	m.once(append(work.ops, stays.ID), work.numbers)
	m.compared()
	m.verified()
	m.must("audit", "verify")
	m.remove("stays")
	m.stop()
}
