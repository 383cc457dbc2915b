package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/client"
)

// testdata returns the absolute path of a folder in testdata, since the programs run in other
// folders.
func testdata(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// entry is one line of the ledger, written by a provider or a script.
type entry struct {
	node, service, action string
	fence                 uint64
	what                  string
}

// ledger reads the entries in order.
func (m *mesh) ledger() []entry {
	m.t.Helper()
	b, err := os.ReadFile(filepath.Join(m.dir, "ledger"))
	if err != nil {
		m.t.Fatal(err)
	}
	var out []entry
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) != 5 {
			m.t.Fatalf("a line of the ledger is %q", line)
		}
		fence, err := strconv.ParseUint(f[3], 10, 64)
		if err != nil {
			m.t.Fatal(err)
		}
		out = append(out, entry{f[0], strings.TrimPrefix(f[1], "-"), f[2], fence, f[4]})
	}
	return out
}

// audit compares the ledger with the records of the mesh: every attempt that the ledger knows is
// one of the mesh's, no attempt was made twice, each new one has the end of the one before as its
// reason, every node was made once, and the order on each node is the plan's.
func (m *mesh) audit(op string, nodes int) {
	m.t.Helper()
	tasks := m.tasks(op)
	numbers := m.numbers(tasks)
	book := map[string]*model.Task{}
	for i := range tasks {
		t := &tasks[i]
		if t.Status != model.TaskSucceeded {
			m.t.Errorf("%s is %s", name(t), t.Status)
		}
		m.attempts(t)
		book[key(numbers[t.Node], t.Service, t.Action.String())] = t
	}
	made := map[string]int{}
	adopted := map[string]bool{}
	began := map[string][]uint64{}
	for _, e := range m.ledger() {
		k := key(e.node, e.service, e.action)
		t := book[k]
		if t == nil {
			continue // of another operation
		}
		i := slices.IndexFunc(t.Attempts, func(a model.TaskAttempt) bool { return a.Fence == e.fence })
		if i < 0 {
			m.t.Errorf("%s: the ledger has fence %d, the mesh knows none such: %+v", k, e.fence, t.Attempts)
			continue
		}
		switch e.what {
		case "begin":
			if slices.Contains(began[k], e.fence) {
				m.t.Errorf("%s was begun twice with fence %d", k, e.fence)
			}
			began[k] = append(began[k], e.fence)
		case "made":
			made[e.node]++
		case "adopted":
			adopted[e.node] = true
		case "taken":
			m.t.Errorf("%s was made a second time, with fence %d", k, e.fence)
		}
	}
	for node := range adopted {
		made[node] = max(made[node], 1) // a provider that is killed may have made it before it could note that
	}
	for k, t := range book {
		if n := t.Node; t.Action == model.Create && made[numbers[n]] != 1 {
			m.t.Errorf("%s: made %d times", k, made[numbers[n]])
		}
		if len(began[k]) == 0 && t.Action != model.Bootstrap {
			m.t.Errorf("%s succeeded, but the ledger does not know it", k)
		}
		if !slices.IsSorted(began[k]) {
			m.t.Errorf("%s: an old fence began after a newer one: %v", k, began[k])
		}
	}
	if len(made) != nodes {
		m.t.Errorf("%d nodes were made, not %d", len(made), nodes)
	}
	m.order(op)
}

func key(node, service, action string) string {
	return strings.TrimSpace(node + " " + service + " " + action)
}

func name(t *model.Task) string { return key(t.Hostname, t.Service, t.Action.String()) }

// numbers returns the number of each node.
func (m *mesh) numbers(tasks []model.Task) map[string]string {
	m.t.Helper()
	out := map[string]string{}
	if len(tasks) == 0 {
		return out
	}
	nodes, _, err := m.api().Nodes(m.context(), tasks[0].Cluster, client.Page{Limit: 10000}, client.Read{})
	if err != nil {
		m.t.Fatal(err)
	}
	for _, n := range nodes {
		out[n.ID] = fmt.Sprint(n.Number)
	}
	return out
}

// attempts checks a task's attempts: the last one succeeded, the others each ended for a reason,
// fences and times grow, and the agents belong to the mesh.
func (m *mesh) attempts(t *model.Task) {
	m.t.Helper()
	var fence uint64
	var ended int64
	for i, a := range t.Attempts {
		last := i == len(t.Attempts)-1
		switch {
		case a.Fence <= fence:
			m.t.Errorf("%s: fence %d after %d", name(t), a.Fence, fence)
		case a.Leased < ended:
			m.t.Errorf("%s: attempt %d was leased before the one before had ended", name(t), a.Number)
		case a.Ended < a.Leased:
			m.t.Errorf("%s: attempt %d ended before it was leased", name(t), a.Number)
		case last != (a.Outcome == "succeeded"):
			m.t.Errorf("%s: attempt %d of %d is %q", name(t), i+1, len(t.Attempts), a.Outcome)
		case !last && a.Outcome != "returned" && a.Message == "":
			m.t.Errorf("%s: attempt %d is %q without a reason", name(t), a.Number, a.Outcome)
		case !slices.ContainsFunc(m.agents, func(x *agent) bool { return x.name == a.Agent }):
			m.t.Errorf("%s: attempt %d was made by agent %q, whom nobody knows", name(t), a.Number, a.Agent)
		}
		fence, ended = a.Fence, a.Ended
	}
	if len(t.Attempts) == 0 {
		m.t.Errorf("%s succeeded without an attempt", name(t))
	}
}

// order checks the order on each node: the actions of a service ran in their order, and app, which
// needs base, was started after it.
func (m *mesh) order(op string) {
	m.t.Helper()
	if d := m.tasks(op); len(d) == 0 {
		m.t.Errorf("operation %s has no tasks", op)
	}
	last := map[string]int{} // rank of the last thing begun, by node and service
	rank := map[string]int{"CREATE": 0, "CONFIRM": 1, "INSTALL": 2, "CONFIGURE": 3, "INITIALIZE": 4, "START": 5}
	started := map[string]bool{}
	for _, e := range m.ledger() {
		r, known := rank[e.action]
		if !known {
			continue // the end of the cluster, not its beginning
		}
		if e.what == "begin" {
			for _, of := range []string{e.service, ""} {
				if before := last[e.node+" "+of]; before > r {
					m.t.Errorf("node %s: %s %s began after a later action", e.node, e.service, e.action)
				}
			}
			last[e.node+" "+e.service] = r
			if e.service == "app" && e.action == "START" && !started[e.node] {
				m.t.Errorf("node %s: app was started before base", e.node)
			}
		}
		if e.service == "base" && e.action == "START" && e.what == "end" {
			started[e.node] = true
		}
	}
}
