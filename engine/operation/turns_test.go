package operation

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/plan/tree"
)

// drawnService draws a service that depends on any of the earlier ones. The parameter version
// becomes a field of its actions.
func drawnService(t *rapid.T, name string, earlier []string, version int) model.Service {
	s := model.Service{Base: model.Base{Name: name}, Provisioner: model.ServiceProvisioner{Actions: map[string]model.ServiceAction{}}}
	for _, a := range []model.Action{model.Install, model.Configure, model.Start, model.Stop} {
		if rapid.IntRange(0, 5).Draw(t, name+" has "+a.Key()) > 0 {
			s.Provisioner.Actions[a.Key()] = model.ServiceAction{Type: "shell", Fields: map[string]any{"version": fmt.Sprint(version)}}
		}
	}
	if len(earlier) > 0 {
		s.Dependencies.Runtime.Uses = rapid.SliceOfNDistinct(rapid.SampledFrom(earlier), 0, 2, rapid.ID[string]).Draw(t, "uses of "+name)
		s.Dependencies.Install.Uses = rapid.SliceOfNDistinct(rapid.SampledFrom(earlier), 0, 1, rapid.ID[string]).Draw(t, "install uses of "+name)
	}
	if rapid.IntRange(0, 4).Draw(t, name+" is apart") == 0 {
		s.Exclusive = model.ExclusiveService
	}
	return s
}

// drawnCluster draws a cluster in the state in which operations that failed and were resolved may
// leave it: with services at earlier targets, half configured or stopped.
func drawnCluster(t *rapid.T) (Input, model.Set) {
	tpl := model.ClusterTemplate{
		Base:     model.Base{Name: "t"},
		Defaults: model.Defaults{Provider: "p", Services: []model.DefaultService{{Name: "a"}}},
	}
	cl := &model.Cluster{ID: "1", Name: "c", Status: model.ClusterActive, Version: 3, Target: 2, Definitions: map[string]model.Service{},
		Config: map[string]any{"a": rapid.SampledFrom([]string{"1", "%host.service.a%"}).Draw(t, "config")}, Template: tpl}
	old := model.Target{Number: 1, Definitions: map[string]model.Service{}}
	if rapid.Bool().Draw(t, "earlier config") {
		old.Config = map[string]any{"a": "0"}
	}
	known := model.NewSet()
	known.Add(model.Definition{Kind: model.KindProvider, Name: "p", Value: &model.Provider{Base: model.Base{Name: "p"}}})
	known.Add(model.Definition{Kind: model.KindClusterTemplate, Name: "t", Value: &tpl})
	for _, name := range []string{"a", "b", "c"}[:rapid.IntRange(1, 3).Draw(t, "services")] {
		d := drawnService(t, name, cl.Services, 1)
		newest := d
		if rapid.Bool().Draw(t, name+" is upgraded") {
			newest = drawnService(t, name, cl.Services, 2)
			newest.Dependencies = d.Dependencies
		}
		if rapid.IntRange(0, 3).Draw(t, name+" was another") == 0 {
			old.Definitions[name] = drawnService(t, name, cl.Services, 0)
		}
		cl.Definitions[name], cl.Services = d, append(cl.Services, name)
		known.Add(model.Definition{Kind: model.KindService, Name: name, Value: &newest})
	}
	if rapid.Bool().Draw(t, "earlier target") {
		cl.Earlier = []model.Target{old}
	}
	at := Input{Cluster: cl}
	for i := range rapid.IntRange(1, 6).Draw(t, "nodes") {
		n := &model.Node{ID: fmt.Sprint("n", i), Number: 1000 + i, Hostname: fmt.Sprint("c-", i, ".local"), Created: true, Confirmed: true,
			States: map[string]string{}, Marks: map[string]model.Mark{}}
		n.Services = rapid.SliceOfNDistinct(rapid.SampledFrom(cl.Services), 1, -1, rapid.ID[string]).Draw(t, "services of "+n.ID)
		slices.Sort(n.Services)
		for _, s := range n.Services {
			n.States[s] = rapid.SampledFrom([]string{"START", "START", "START", "START", "START?", "STOP", "CONFIGURE?", "INSTALL"}).Draw(t, "state")
			n.Marks[s] = model.Mark{Definition: rapid.IntRange(1, 2).Draw(t, "definition"), Initialized: true,
				Config: rapid.SampledFrom([]int{1, 2, model.HalfConfigured}).Draw(t, "config")}
		}
		at.Nodes = append(at.Nodes, n)
	}
	return at, known
}

// turns is an operation that is carried out one event at a time.
type turns struct {
	p      *Prepared
	s      *plan.State
	at     Input
	now    int64
	failed map[string]bool
}

func (r *turns) edit(t *rapid.T, f func(e *plan.Edit) error) {
	e := r.s.Edit()
	if err := f(e); err != nil {
		t.Fatal(err)
	}
	r.s = e.Done()
}

func (r *turns) gates(t *rapid.T, changes []tree.Change) {
	r.edit(t, func(e *plan.Edit) error {
		for _, c := range changes {
			set := e.Release
			if c.Shut {
				set = e.Hold
			}
			if err := set(c.Part, c.Gate); err != nil {
				return err
			}
		}
		return nil
	})
}

// down returns the nodes on which the work on these services has begun and is not done. A service
// that the plan stops on its way is down for a part of this time.
func (r *turns) down(which func(service string) bool) []string {
	var nodes []string
	begun, left := map[string]bool{}, map[string]bool{}
	for v, a := range r.s.Graph.Action {
		if name, id := r.s.Graph.ServiceName(v), r.s.Graph.NodeID(v); a != model.Barrier && which(name) {
			nodes = append(nodes, id)
			status := r.s.Task(uint32(v)).Status
			begun[id] = begun[id] || status != model.TaskBlocked && status != model.TaskReady
			left[id] = left[id] || status != model.TaskSucceeded
		}
	}
	slices.Sort(nodes)
	return slices.DeleteFunc(slices.Compact(nodes), func(id string) bool { return !begun[id] || !left[id] })
}

// run carries out the plan in a random order, and calls check after each event. It ends when the
// plan is done, or when a failure is not tolerated.
func (r *turns) run(t *rapid.T, check func()) {
	r.gates(t, tree.Arm(tree.ViewOf(r.p.Tree, r.s, 1), false))
	for fence := uint64(1); ; fence++ {
		r.now++
		held := r.s.Leased("")
		free := slices.DeleteFunc(r.s.Leasable(), func(v uint32) bool {
			_, busy := r.s.Busy(r.s.Graph.Node[v])
			return busy || r.s.HeldBack(v)
		})
		switch {
		case len(free) > 0 && (len(held) == 0 || rapid.Bool().Draw(t, "lease")):
			v := rapid.SampledFrom(free).Draw(t, "task")
			r.edit(t, func(e *plan.Edit) error { return e.Lease(v, fence, plan.Holder{Session: "s"}, r.now) })
		case len(held) > 0:
			v := rapid.SampledFrom(held).Draw(t, "ends")
			if rapid.IntRange(0, 19).Draw(t, "fails") > 0 {
				r.edit(t, func(e *plan.Edit) error { return e.Succeed(v, r.s.Fence(v), plan.End{}, r.now) })
				break
			}
			if !r.p.Tree.Tolerates(r.s, v) {
				return
			}
			r.failed[r.s.Graph.NodeID(int(v))] = true
			r.edit(t, func(e *plan.Edit) error { return e.FailTolerated(v, r.s.Fence(v), false, plan.End{}, r.now) })
		default:
			view := tree.ViewOf(r.p.Tree, r.s, r.now)
			some := false
			for i := range view.Phases {
				o := tree.Give([]*tree.View{view}, tree.Order{Command: "continue", Plan: view.Name, Phase: view.PhaseID(i)})
				if len(o.Gates) > 0 {
					some = true
					r.gates(t, o.Gates)
					break
				}
			}
			if !some {
				if len(r.failed) == 0 && view.Status() != tree.Complete {
					t.Fatalf("the plan stands still: %s", view.Info().Text("c"))
				}
				return
			}
		}
		check()
	}
}

// allows returns how many of this number of nodes a strategy lets be down at the same time.
func allows(strategy string, nodes int) int {
	switch size, batch := strings.CutPrefix(strategy, "batch="); {
	case batch:
		var n int
		if _, err := fmt.Sscanf(size, "%d", &n); err == nil && strings.HasSuffix(size, "%") {
			n = max(nodes*n/100, 1)
		}
		return n
	case strings.HasPrefix(strategy, "parallel"):
		return nodes
	}
	return 1
}

// TestTurns: whatever an operation finds on the nodes, no more of them are down than the strategy
// allows.
func TestTurns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at, known := drawnCluster(t)
		types := []model.OperationType{model.OpUpgrade, model.OpConfigure, model.OpRestart, model.OpSyncTemplate}
		req := Request{Type: rapid.SampledFrom(types).Draw(t, "operation"), Restart: true}
		strategies := []string{"serial", "canary", "parallel", "parallel-canary", "batch=1", "batch=2", "batch=50%"}
		req.Strategy = rapid.SampledFrom(strategies).Draw(t, "strategy")
		if (req.Type == model.OpUpgrade || req.Type == model.OpSyncTemplate) && rapid.Bool().Draw(t, "default") {
			req.Strategy = ""
		}
		req.MaxFailures = model.Int(rapid.IntRange(0, 2).Draw(t, "failures"))
		if req.Type == model.OpConfigure {
			req.Config = map[string]any{"a": "2"}
		}
		p, err := Prepare(t.Context(), model.Caller{}, req, at, known, "1-002")
		if err != nil {
			t.Fatal(err)
		}
		r := &turns{p: p, s: plan.NewState(p.Graph), at: at, failed: map[string]bool{}}
		r.run(t, func() {
			down := slices.DeleteFunc(r.down(func(string) bool { return true }), func(n string) bool { return r.failed[n] })
			if n := allows(req.Strategy, len(at.Nodes)); len(down) > n {
				t.Fatalf(
					"%s: nodes %v are down, strategy %q allows %d: %s",
					req.Type,
					down,
					req.Strategy,
					n,
					tree.ViewOf(p.Tree, r.s, r.now).Info().Text("c"),
				)
			}
		})
	})
}

// TestTurnsOfAPlan: an upgrade keeps the strategies of its template's plan, whatever it finds on the
// nodes and however many failures the request tolerates. A plan whose order contradicts the
// dependencies of the services is refused with the cycle.
func TestTurnsOfAPlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at, known := drawnCluster(t)
		update := model.Plan{Name: "update", Strategy: rapid.SampledFrom([]string{"serial", "parallel"}).Draw(t, "strategy")}
		for _, s := range rapid.Permutation(at.Cluster.Services).Draw(t, "phases")[:rapid.IntRange(1, len(at.Cluster.Services)).Draw(t, "named")] {
			ph := model.PlanPhase{
				Name:     s,
				Service:  s,
				Strategy: rapid.SampledFrom([]string{"", "serial", "canary", "parallel", "parallel-canary", "batch"}).Draw(t, "strategy of "+s),
			}
			if ph.Strategy == "batch" {
				ph.Batch = rapid.SampledFrom([]string{"1", "2", "50%"}).Draw(t, "batch of "+s)
			}
			update.Phases = append(update.Phases, ph)
		}
		at.Cluster.Template.Plans = []model.Plan{update}
		req := Request{Type: model.OpUpgrade, Rollout: model.Rollout{MaxFailures: model.Int(rapid.IntRange(0, 2).Draw(t, "failures"))}}
		p, err := Prepare(t.Context(), model.Caller{}, req, at, known, "1-002")
		var fs model.Faults
		if errors.As(err, &fs) && strings.Contains(err.Error(), " -> ") && strings.Contains(err.Error(), "contradicts") {
			t.Skip(err)
		} else if err != nil {
			t.Fatal(err)
		}
		r := &turns{p: p, s: plan.NewState(p.Graph), at: at, failed: map[string]bool{}}
		r.run(t, func() {
			for _, ph := range update.Phases {
				strategy := cmp.Or(ph.Strategy, "serial")
				if strategy == "batch" {
					strategy = "batch=" + ph.Batch
				}
				down := slices.DeleteFunc(r.down(func(s string) bool { return s == ph.Service }), func(n string) bool { return r.failed[n] })
				if n := allows(strategy, len(at.Nodes)); len(down) > n {
					t.Fatalf("%s is down on %v, phase %+v: %s", ph.Service, down, ph, tree.ViewOf(p.Tree, r.s, r.now).Info().Text("c"))
				}
			}
		})
	})
}
