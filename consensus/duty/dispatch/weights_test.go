package dispatch_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/coopr/coopr/consensus/duty/dispatch"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/proto/record"
	"github.com/coopr/coopr/testing/doubles/logtest"
)

// many starts an operation of a tenant, of so many independent tasks on nodes of their own.
func (l *log) many(tenant string, cluster, tasks, priority int) {
	l.t.Helper()
	op := model.Operation{ID: fmt.Sprintf("%08d-001", cluster), Tenant: tenant, Cluster: fmt.Sprintf("%08d", cluster), Type: model.OpCreate,
		Priority: priority}
	cl := model.Cluster{ID: op.Cluster, Tenant: tenant, Name: "c" + op.Cluster, Operation: op.ID, Operations: 1}
	var names []string
	var nodes []model.Node
	for i := range tasks {
		n := model.Node{ID: fmt.Sprintf("%s-%d", cl.ID, 1000+i), Cluster: cl.ID, Tenant: tenant, Number: 1000 + i}
		names, nodes = append(names, n.ID), append(nodes, n)
	}
	b := plan.NewBuilder(names, []string{"s"})
	for i := range tasks {
		b.Task(model.Install, i, 0)
	}
	g, err := b.Build()
	if err != nil {
		l.t.Fatal(err)
	}
	l.must(&pb.Command{Tenant: tenant, Change: &pb.Command_StartOperation{StartOperation: &pb.StartOperation{Operation: logtest.Operation(op),
		Cluster: logtest.Cluster(cl), Nodes: logtest.Nodes(nodes...), Graph: g.Encode()}}})
}

// TestWeights has several tenants with more tasks than there are slots. A free slot goes to the tenant that has the fewest tasks at work
// for its weight, after all tasks of an operation of a higher priority. No slot stays free.
func TestWeights(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		weights := rapid.SliceOfN(rapid.IntRange(0, 4), 2, 4).Draw(r, "weights") // 0 counts as 1
		slots := rapid.IntRange(1, 24).Draw(r, "slots")
		first := rapid.IntRange(-1, len(weights)-1).Draw(r, "the tenant of the highest priority") // -1: none
		choices := rapid.SliceOfN(rapid.IntRange(0, 1000), 12, 12).Draw(r, "ends")
		var fault string // the first one
		synctest.Test(t, func(t *testing.T) {
			wrong := func(format string, args ...any) { fault = cmp.Or(fault, fmt.Sprintf(format, args...)) }
			l := newLog(t)
			const tasks, urgent = 48, 3
			waiting, running := make([]int, len(weights)), make([]int, len(weights))
			for i, w := range weights {
				name := fmt.Sprint("t", i)
				l.must(&pb.Command{Change: &pb.Command_PutTenant{PutTenant: &pb.PutTenant{Tenant: logtest.Tenant(model.Tenant{Name: name, Weight: w})}}})
				l.many(name, 1+i, tasks, 0)
				waiting[i] = tasks
			}
			if first >= 0 {
				l.many(fmt.Sprint("t", first), 9, urgent, 1)
			}
			d, end := l.dispatcher()
			defer end()
			c := &conn{}
			if err := d.Open(t.Context(), "s", &pb.Hello{Agent: "a", Slots: uint32(slots)}, c); err != nil {
				t.Fatal(err)
			}
			var held []*pb.Task
			rush, seen := 0, 0
			if first >= 0 {
				rush = urgent
			}
			hurried := func(task *pb.Task) bool { return strings.HasPrefix(task.Operation, "00000009") }
			of := func(task *pb.Task) int { // the tenant
				if hurried(task) {
					return first
				}
				return int(task.Operation[7] - '1')
			}
			// below reports whether tenant j would have n leases for its weight where tenant i has m, and so comes before it.
			below := func(j, n, i, m int) bool { return n*cmp.Or(weights[i], 1) < m*cmp.Or(weights[j], 1) }
			take := func() {
				synctest.Wait()
				all := c.all()
				sent := all[seen:]
				seen = len(all)
				fair := make([]bool, len(weights)) // the tenants that got a task by their weight
				for _, task := range sent {
					held = append(held, task)
					running[of(task)]++
					if hurried(task) {
						rush--
					} else {
						waiting[of(task)]--
						fair[of(task)] = true
					}
				}
				if len(held) != slots {
					wrong("%d of %d slots are in use", len(held), slots)
				}
				for i := range weights {
					switch {
					case !fair[i]:
					case rush > 0:
						wrong("tenant %d has a task before %d of the highest priority", i, rush)
					default:
						for j := range weights {
							if waiting[j] > 0 && below(j, running[j], i, running[i]-1) {
								wrong("tenant %d got a slot, although tenant %d waits with less for its weight: %v by %v", i, j, running, weights)
							}
						}
					}
				}
			}
			take()
			for _, choice := range choices {
				i := choice % len(held)
				task := held[i]
				held = append(held[:i:i], held[i+1:]...)
				running[of(task)]--
				d.ReportSoon("s", []*pb.Result{{Task: task.Id, Fence: task.Fence, Outcome: pb.Outcome_OUTCOME_SUCCEEDED}})
				take()
			}
		})
		if fault != "" {
			r.Fatal(fault)
		}
	})
}

// needy is work that only some agents can do.
type needy struct {
	works
	needs dispatch.Needs
}

func (n needy) Needs(*state.View, *model.Operation, *plan.Graph, uint32) dispatch.Needs {
	return n.needs
}

// TestWhyNobody explains at once that no agent can take a task, and why.
func TestWhyNobody(t *testing.T) {
	for want, x := range map[string]struct {
		needs dispatch.Needs
		hello *pb.Hello
	}{
		"no agent that offers provider/cloud is there": {dispatch.Needs{Plugin: "provider/cloud"}, &pb.Hello{Agent: "a", Slots: 1, Machine: "m"}},
		"its node lives on machine far, and no agent with provider/cloud is there": {dispatch.Needs{Plugin: "provider/cloud", Machine: "far"},
			&pb.Hello{Agent: "a", Slots: 1, Machine: "m", Plugins: []*record.PluginType{logtest.PluginType(model.PluginType{Class: "provider", Base: model.Base{Name: "cloud"}})}}},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newLog(t)
			l.begin(1)
			d, end := l.dispatcherOf(dispatch.Config{Propose: l.propose, Tasks: needy{needs: x.needs}})
			defer end()
			if err := d.Open(t.Context(), "s", x.hello, &conn{}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			why, err := d.Why(t.Context(), "00000001-001", []uint32{0})
			if err != nil || why[0].Text != want {
				t.Errorf("it waits for %+v, %v", why, err)
			}
		})
	}
}
