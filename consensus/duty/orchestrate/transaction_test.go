package orchestrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/solver"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/testing/doubles/logtest"
)

// lab is a state machine, its orchestrator, and machines that exist in memory
// only: tasks change them as plugins would, and may fail half-way.
type lab struct {
	t        *rapid.T
	m        *state.Machine
	o        *Orchestrator
	index    uint64
	machines map[string]*machine // by node id
	made     int
	halfDone bool                   // a failing attempt does its work all the same
	broken   func(*model.Node) bool // nothing works on such a node; nil: on all
	keep     func(*raft.Log)
	gated    bool            // operations may wait for orders
	razed    map[string]bool // nodes whose machine died, by id
	meantime func()          // what happens before each task; may be nil
	cannot   bool            // the task at work cannot be made
	policy   *model.RecoveryPolicy
	plans    []model.Plan // of the template
	did      map[model.TaskID]bool
}

// machine is a real machine: its address, and for each service the version that it was
// installed from, its configuration, and whether it runs.
type machine struct {
	address  string
	services map[string]*running
}

type running struct {
	version     int
	config      string
	by          map[string]int // by action: the version whose script did it last
	initialized int
	runs        bool
}

func newLab(t *rapid.T, keep ...func(*raft.Log)) *lab {
	m, err := state.New(state.Config{})
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, m: m, machines: map[string]*machine{}, razed: map[string]bool{}}
	for _, fn := range keep {
		l.keep = fn
	}
	l.o = New(Config{Machine: m, Propose: l.propose, Logger: slog.New(slog.DiscardHandler)})
	l.must(&pb.Command{Change: &pb.Command_PutTenant{PutTenant: &pb.PutTenant{Tenant: logtest.Tenant(model.Tenant{Name: "t"})}}})
	l.must(&pb.Command{Change: &pb.Command_PutToken{PutToken: &pb.PutToken{
		Id: "1", Hash: []byte("1"), Actor: who.Actor, Tenant: who.Tenant, Role: string(who.Role),
	}}})
	l.must(&pb.Command{Change: &pb.Command_OpenSession{OpenSession: &pb.OpenSession{Session: "s", Agent: "a",
		Record: logtest.Agent(model.Agent{ID: "a", Name: "a"})}}})
	return l
}

func js(x any) []byte {
	b, err := json.Marshal(x)
	if err != nil {
		panic(err)
	}
	return b
}

func (l *lab) propose(_ context.Context, commands ...*pb.Command) ([]state.Answer, error) {
	l.index++
	b, err := proto.Marshal(&pb.Entry{Format: state.Format, FeatureLevel: state.FeatureLevel, MustUnderstand: true, NowMs: int64(l.index),
		Commands: commands})
	if err != nil {
		return nil, err
	}
	var out []state.Answer
	e := &raft.Log{Type: raft.LogCommand, Index: l.index, Data: b}
	if l.keep != nil {
		l.keep(e)
	}
	for _, g := range l.m.Apply(e).([][]state.Answer) {
		out = append(out, g...)
	}
	return out, nil
}

func (l *lab) must(c *pb.Command) state.Answer {
	answers, err := l.propose(context.Background(), c)
	if err == nil {
		err = answers[0].Err
	}
	if err != nil {
		l.t.Fatal(err)
	}
	return answers[0]
}

var who = model.Caller{Tenant: "t", Actor: "ann", Role: model.RoleAdmin}

// define writes the definitions; version changes the scripts of the web service.
func (l *lab) define(version int, greeting string) {
	action := func(v int) model.ServiceAction {
		return model.ServiceAction{Type: "shell", Fields: map[string]any{"script": fmt.Sprint("v", v)}}
	}
	service := func(name string, v int, requires []string, reads ...string) *model.Service {
		s := &model.Service{Base: model.Base{Name: name}, Reads: reads}
		s.Dependencies.Runtime.Requires = requires
		s.Provisioner.Actions = map[string]model.ServiceAction{}
		for _, a := range []model.Action{model.Install, model.Configure, model.Initialize, model.Start, model.Stop, model.Remove} {
			s.Provisioner.Actions[a.Key()] = action(v)
		}
		return s
	}
	one := model.Int(1)
	tpl := &model.ClusterTemplate{Base: model.Base{Name: "shop"}, Recovery: l.policy, Plans: l.plans}
	tpl.Defaults = model.Defaults{
		Provider: "p", HardwareType: "small", ImageType: "empty",
		Services: []model.DefaultService{{Name: "balancer"}, {Name: "store"}, {Name: "web"}},
		Config: map[string]any{
			"greeting": greeting, "balancer": map[string]any{"backends": "%join(map(ip.access_v4.service.web,'$:80'),',')%"},
			"web": map[string]any{"store": "%ip.access_v4.service.store%", "me": "%host.self%"},
		},
	}
	tpl.Compatibility.Services = []string{"balancer", "store", "web", "cache"}
	tpl.Constraints.Layout.CantCoexist = [][]string{{"balancer", "web"}, {"balancer", "store"}, {"web", "store"}}
	tpl.Constraints.Services = map[string]model.ServiceConstraint{
		"balancer": {Quantities: model.Quantities{Min: &one, Max: &one}},
		"store":    {Quantities: model.Quantities{Min: &one, Max: &one}},
		"web":      {Quantities: model.Quantities{Min: &one}},
		"cache":    {Quantities: model.Quantities{Min: &one}},
	}
	entry := map[string]map[string]any{"p": {"flavor": "small", "image": "empty"}}
	put := &pb.PutDefinitions{}
	for kind, d := range map[model.Kind][]any{
		model.KindProvider:     {&model.Provider{Base: model.Base{Name: "p"}, ProviderType: "rented"}},
		model.KindHardwareType: {&model.HardwareType{Base: model.Base{Name: "small"}, ProviderMap: entry}},
		model.KindImageType:    {&model.ImageType{Base: model.Base{Name: "empty"}, ProviderMap: entry}},
		model.KindService: {service("store", 1, nil, "store"), service("web", version, []string{"store"}, "web", "greeting"),
			service("balancer", 1, []string{"web"}, "balancer"), service("cache", 1, nil, "cache")},
		model.KindClusterTemplate: {tpl},
	} {
		for _, v := range d {
			name := reflect.ValueOf(v).Elem().FieldByName("Name").String()
			put.Definitions = append(put.Definitions, &pb.Definition{Kind: string(kind), Name: name, Body: js(v)})
		}
	}
	slices.SortFunc(put.Definitions, func(a, b *pb.Definition) int { return strings.Compare(a.Kind+a.Name, b.Kind+b.Name) })
	l.must(&pb.Command{Tenant: "t", Change: &pb.Command_PutDefinitions{PutDefinitions: put}})
}

// run carries out an operation and the operations that follow it. An attempt fails if fails
// returns true, with half of its work done if half returns true.
func (l *lab) run(id string, fails, half func() bool) *model.Operation {
	for {
		v := l.m.View()
		op, _ := v.Operation("t", id)
		s, ok := v.Plan(id)
		if !ok {
			l.t.Fatal("no plan of ", id)
		}
		ready := s.Leasable()
		if op.Status.Ended() || op.Status == model.OpRollingBack || l.gated && len(ready) == 0 {
			return op
		}
		if len(ready) == 0 {
			l.t.Fatalf("operation %s is %s and nothing can be done: %s", id, op.Status, op.Message)
		}
		if l.meantime != nil {
			l.meantime()
		}
		u := ready[rapid.IntRange(0, len(ready)-1).Draw(l.t, "task")]
		answer := l.must(&pb.Command{Change: &pb.Command_Lease{Lease: &pb.Lease{Operation: id, Sessions: []string{"s"}, Tasks: []uint32{u},
			SessionOf: []uint32{0}}}})
		if len(answer.Refused) > 0 {
			continue // another task holds the node: it is this loop's, and ended
		}
		v = l.m.View()
		s, _ = v.Plan(id)
		r := &pb.Report{Operation: id, Tasks: []uint32{u}, Fences: []uint64{s.Fence(u)}}
		n, _ := v.Node("t", s.Graph.NodeID(int(u)))
		if a := s.Graph.Action[u]; l.razed[s.Graph.NodeID(int(u))] && a != model.Create && a != model.Delete {
			r.Outputs = []*pb.Outputs{{Outcome: pb.Outcome_OUTCOME_FATAL, Message: "no route to host"}}
		} else if fails() || l.broken != nil && n != nil && s.Graph.Action[u] != model.Delete && l.broken(n) {
			if half() {
				l.work(v, op, s, u)
			}
			if m := l.machines[s.Graph.NodeID(int(u))]; m != nil && s.Graph.Action[u] == model.Remove {
				if r := m.services[s.Graph.ServiceName(int(u))]; r != nil {
					r.initialized = 0 // unknown after an attempt at REMOVE
				}
			}
			r.Outputs = []*pb.Outputs{{Outcome: pb.Outcome_OUTCOME_FATAL, Message: "broken"}}
		} else if out := l.work(v, op, s, u); l.cannot {
			l.cannot = false
			r.Outputs = []*pb.Outputs{{Outcome: pb.Outcome_OUTCOME_FATAL, Message: "the task cannot be made"}}
		} else if out != nil {
			r.Outputs = []*pb.Outputs{{Outcome: pb.Outcome_OUTCOME_SUCCEEDED, Output: js(out)}}
		}
		l.must(&pb.Command{Change: &pb.Command_Report{Report: r}})
	}
}

// work does what a task's plugin would do, and fails the test where that makes
// no sense on the machine as it is.
func (l *lab) work(v *state.View, op *model.Operation, s *plan.State, u uint32) *model.TaskOutput {
	g := s.Graph
	if l.did != nil {
		l.did[model.OperationID(op.ID).Task(u)] = true
	}
	id, action, service := g.NodeID(int(u)), g.Action[u], g.ServiceName(int(u))
	cl, _ := v.Cluster("t", op.Cluster)
	n, ok := v.Node("t", id)
	if !ok {
		l.t.Fatalf("%s of %s: there is no such node", action, id)
	}
	w, err := operation.NewSource(cl, v.Nodes("t", cl.ID)).Work(op.ID, "x", v.Live(cl, n), nil, action, service)
	if l.cannot = err != nil && l.meantime != nil; l.cannot {
		return nil // it refers to a node whose machine died before it had an address
	}
	if err != nil {
		l.t.Fatalf("%s of %s on %s: %v", action, service, id, err)
	}
	var in model.TaskInput
	if err := json.Unmarshal(w.Input, &in); err != nil {
		l.t.Fatal(err)
	}
	m := l.machines[id]
	switch action {
	case model.Create:
		if delete(l.razed, id); m == nil {
			l.made++
			l.machines[id] = &machine{address: fmt.Sprintf("10.0.%d.%d", l.made/250, l.made%250+1), services: map[string]*running{}}
		}
		return nil
	case model.Delete:
		delete(l.machines, id)
		delete(l.razed, id)
		return nil
	default:
	}
	if m == nil {
		l.t.Fatalf("operation %s: %s %s on node %s, whose machine does not exist", op.ID, action, service, id)
	}
	r := m.services[service]
	if r == nil && action > model.Install && action != model.Remove && action != model.Stop {
		l.t.Fatalf("operation %s: %s of %s on %s, where it is not installed", op.ID, action, service, id)
	}
	if r != nil {
		r.by[action.Key()] = versionOf(in)
	}
	switch action {
	case model.Confirm:
		return &model.TaskOutput{IPAddresses: map[string]string{"access_v4": m.address}}
	case model.Install:
		if r == nil {
			r = &running{by: map[string]int{}}
			m.services[service] = r
		}
		if r.runs {
			l.t.Fatalf("operation %s: INSTALL of %s on %s while it runs", op.ID, service, id)
		}
		r.version = versionOf(in)
		r.by["install"] = r.version
	case model.Configure:
		r.config = string(js(in.Config.Cluster))
	case model.Initialize:
		if r.initialized++; r.initialized > 1 && !l.halfDone {
			l.t.Fatalf("operation %s: a second INITIALIZE of %s on %s", op.ID, service, id)
		}
	case model.Start:
		r.runs = true
	case model.Stop:
		if r != nil {
			r.runs = false
		}
	case model.Remove:
		delete(m.services, service)
	default:
	}
	return nil
}

// versionOf returns the version of the definition that a task comes from.
func versionOf(in model.TaskInput) (version int) {
	fmt.Sscanf(fmt.Sprint(in.Config.Service.Action.Fields["script"]), "v%d", &version)
	return version
}

// check compares the records with the machines. Every recorded service is on its machine, and
// no other. Each is built from the cluster's definitions and has its present configuration, or,
// if it went back to a state that an operation had left half done, those of its mark.
func (l *lab) check(cluster, when string) {
	v := l.m.View()
	cl, _ := v.Cluster("t", cluster)
	nodes := v.Nodes("t", cluster)
	src := operation.NewSource(cl, nodes)
	if len(nodes) != len(l.machines) {
		l.t.Fatalf("%s: %d nodes, %d machines", when, len(nodes), len(l.machines))
	}
	for _, n := range nodes {
		m := l.machines[n.ID]
		if m == nil || !n.Created {
			l.t.Fatalf("%s: node %s: machine %v, created %v", when, n.ID, m != nil, n.Created)
		}
		if n.Leaves || len(n.Leaving) > 0 {
			l.t.Fatalf("%s: node %s still leaves", when, n.ID)
		}
		if !slices.Equal(slices.Sorted(maps.Keys(m.services)), n.Services) {
			l.t.Fatalf("%s: node %s: services %v, really %v", when, n.ID, n.Services, slices.Sorted(maps.Keys(m.services)))
		}
		for name, r := range m.services {
			if runs := n.States[name] == "START"; runs != r.runs {
				l.t.Fatalf("%s: %s on %s is %s and runs: %v", when, name, n.ID, n.States[name], r.runs)
			}
			var version int
			def, _ := cl.DefinitionAt(n.Marks[name], name)
			fmt.Sscanf(def.Provisioner.Actions["install"].Fields["script"].(string), "v%d", &version)
			if r.version != version {
				l.t.Fatalf("%s: %s on %s was installed from version %d, the cluster has %d", when, name, n.ID, r.version, version)
			}
			if len(cl.Earlier) > 0 && (n.States[name] == "INSTALL" || strings.HasSuffix(n.States[name], "?") ||
				n.Marks[name].Config == model.HalfConfigured) {
				continue // it is not configured
			}
			w, err := src.Work("o", "x", n, nil, model.Configure, name)
			if err != nil {
				l.t.Fatal(err)
			}
			var in model.TaskInput
			if err := json.Unmarshal(w.Input, &in); err != nil {
				l.t.Fatal(err)
			}
			if want := string(js(in.Config.Cluster)); r.config != want {
				l.t.Fatalf("%s: %s on %s is configured with %s, and should be with %s", when, name, n.ID, r.config, want)
			}
		}
	}
}

// essence is what a rollback has to bring back.
func (l *lab) essence(cluster string) string {
	v := l.m.View()
	cl, _ := v.Cluster("t", cluster)
	type node struct {
		Services []string
		States   map[string]string
	}
	out := struct {
		Status      model.ClusterStatus
		Services    []string
		Config      map[string]any
		Definitions map[string]model.Service
		Nodes       map[string]node
	}{cl.Status, cl.Services, cl.Config, cl.Definitions, map[string]node{}}
	for _, n := range v.Nodes("t", cluster) {
		states := maps.Clone(n.States)
		for s, is := range states {
			if is == "CONFIGURE" || is == "INITIALIZE" {
				states[s] = "STOP" // ready, and does not run
			}
		}
		out.Nodes[n.ID] = node{n.Services, states}
	}
	return string(js(out))
}

// request draws an operation that fits the cluster, roughly.
func (l *lab) request(cluster string) operation.Request {
	v := l.m.View()
	cl, _ := v.Cluster("t", cluster)
	nodes := v.Nodes("t", cluster)
	anyNode := func() string { return nodes[rapid.IntRange(0, len(nodes)-1).Draw(l.t, "node")].ID }
	switch rapid.SampledFrom([]string{"grow", "shrink", "add", "remove", "configure", "upgrade", "sync", "replace", "stop", "start",
		"rollback"}).Draw(l.t, "operation") {
	case "grow":
		return operation.Request{Type: model.OpGrow, Nodes: rapid.IntRange(1, 3).Draw(l.t, "nodes")}
	case "shrink":
		return operation.Request{Type: model.OpShrink, Nodes: 1}
	case "add":
		return operation.Request{Type: model.OpAddServices, Services: []string{"cache"}}
	case "remove":
		return operation.Request{Type: model.OpRemoveServices, Services: []string{"cache"}}
	case "configure":
		return operation.Request{Type: model.OpConfigure, Restart: true,
			OnFailure: rapid.SampledFrom([]string{"", "leave"}).Draw(l.t, "on failure"),
			Config:    map[string]any{"greeting": rapid.SampledFrom([]string{"hi", "ho", "hu"}).Draw(l.t, "greeting")}}
	case "upgrade":
		l.define(rapid.IntRange(1, 9).Draw(l.t, "version"), "hello")
		return operation.Request{Type: model.OpUpgrade, OnFailure: rapid.SampledFrom([]string{"", "leave"}).Draw(l.t, "on failure")}
	case "sync":
		l.define(rapid.IntRange(1, 9).Draw(l.t, "version"), rapid.SampledFrom([]string{"hello", "moin"}).Draw(l.t, "default"))
		return operation.Request{Type: model.OpSyncTemplate, OnFailure: rapid.SampledFrom([]string{"", "leave"}).Draw(l.t, "on failure")}
	case "replace":
		return operation.Request{Type: model.OpReplaceNode, Victims: []string{anyNode()}}
	case "stop":
		return operation.Request{Type: model.OpStop, Services: []string{rapid.SampledFrom(cl.Services).Draw(l.t, "service")},
			OnFailure: "rollback"}
	case "start":
		return operation.Request{Type: model.OpStart, OnFailure: "rollback"}
	}
	history := v.History("t", cluster)
	return operation.Request{Type: model.OpRollback, To: rapid.SampledFrom(history).Draw(l.t, "to").Number}
}

// A failed operation is undone from the work that was really done: afterwards the cluster is as
// before, in the records and on the machines. A successful one leaves records that match the
// machines (docs/spec/planner.md, "Transactions").
func TestTransactions(t *testing.T) {
	counts := map[string]int{}
	missing := seldom
	for round := 0; len(missing) > 0 && round < 20; round++ { // one is nearly always enough
		s := strconv.Itoa(round + 1)
		t.Run("seed="+s, func(t *testing.T) {
			seed(t, s)
			rapid.Check(t, func(t *rapid.T) { transactions(t, counts) })
		})
		missing = slices.DeleteFunc(slices.Clone(missing), func(want string) bool { return counts[want] > 0 })
	}
	if len(missing) > 0 {
		t.Errorf("never seen: %q; seen %v", missing, counts)
	}
}

// seldom are the ends of operations that random histories must have met.
var seldom = []string{"grow rolling-back", "shrink rolling-back", "upgrade rolling-back", "replace-node rolling-back", "rollback succeeded",
	"upgrade failed", "configure aborted"}

// transactions is one random history; counts are its operations by type and end.
func transactions(t *rapid.T, counts map[string]int) {
	l := newLab(t)
	l.define(1, "hello")
	ctx := context.Background()
	never := func() bool { return false }
	p, _, err := l.o.Create(ctx, who, model.CreateCluster{Name: "shop", ClusterTemplate: "shop",
		NumMachines: model.Int(rapid.IntRange(3, 6).Draw(t, "size"))}, false)
	if err != nil {
		t.Fatal(err)
	}
	id := p.Cluster.ID
	if op := l.run(p.Operation.ID, never, never); op.Status != model.OpSucceeded {
		t.Fatal(op.Status, op.Message)
	}
	l.check(id, "create")
	for range rapid.IntRange(1, 6).Draw(t, "operations") {
		req := l.request(id)
		before := l.essence(id)
		p, _, err := l.o.Operate(ctx, who, id, req)
		var faults model.Faults
		var none *solver.Unsolvable
		if errors.As(err, &faults) || errors.As(err, &none) {
			continue // it does not fit this cluster
		}
		if err != nil {
			t.Fatal(req.Type, err)
		}
		left := rapid.IntRange(-1, p.Graph.Tasks()).Draw(t, "fails after")
		l.halfDone = rapid.Bool().Draw(t, "half")
		aborts := req.OnFailure == "leave" && rapid.Bool().Draw(t, "aborted")
		op := l.run(p.Operation.ID, func() bool {
			if left--; left == 0 && aborts {
				l.must(&pb.Command{Tenant: "t", Actor: "ann",
					Change: &pb.Command_ControlOperation{ControlOperation: &pb.ControlOperation{Operation: p.Operation.ID,
						Order: pb.OperationOrder_OPERATION_ORDER_ABORT}}})
				return false
			}
			return left == 0
		}, func() bool { return l.halfDone })
		when := fmt.Sprintf("%s %s", op.Type, op.Status)
		counts[when]++
		switch {
		case op.Status == model.OpSucceeded:
			l.check(id, when)
		case req.OnFailure == "leave":
			l.again(id, req, before)
		case op.Status == model.OpRollingBack:
			if err := l.o.follow(ctx, op.ID); err != nil {
				t.Fatal(err)
			}
			cl, _ := l.m.View().Cluster("t", id)
			back := l.run(cl.Operation, never, never)
			if op, _ = l.m.View().Operation("t", op.ID); back.Status != model.OpSucceeded || op.Status != model.OpRolledBack {
				t.Fatalf("%s: the rollback is %s, the operation %s", when, back.Status, op.Status)
			}
			l.check(id, "rolled back "+string(op.Type))
			if after := l.essence(id); after != before {
				t.Fatalf("rolled back %s:\nbefore %s\nafter  %s", op.Type, before, after)
			}
		default:
			return // a rollback to an older snapshot that failed: a person's turn
		}
	}
}
