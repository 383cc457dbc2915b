package tasks

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/consensus/state/view"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/testing/doubles/logtest"
)

// opener decrypts every password as "canary", if it has keys.
type opener struct{ keys bool }

func (opener) Open(view.SealedView, table.SealedRow) ([]byte, error) { return nil, keyring.ErrNoKey }

func (o *opener) OpenFields(_ view.SealedView, _ string, fields map[string]any) (map[string]any, error) {
	if !o.keys {
		return nil, keyring.ErrNoKey
	}
	return map[string]any{"region": fields["region"], "password": "canary-password"}, nil
}

// TestActionsThatUndo checks what is done for a task that is to be undone before it is done again.
func TestActionsThatUndo(t *testing.T) {
	g := plan.Graph{Action: []model.Action{model.Create, model.Install, model.Start}}
	for u, want := range []model.Action{model.Delete, model.Stop, model.Stop} {
		if got := action(&g, &plan.Note{Undo: true}, uint32(u)); got != want {
			t.Errorf("%s is undone by %s", g.Action[u], got)
		}
		if got := action(&g, &plan.Note{}, uint32(u)); got != g.Action[u] {
			t.Errorf("%s is done by %s", g.Action[u], got)
		}
	}
}

// TestKeysOfProvidersOnly has a cluster whose provider has a password. Only what its provider does needs a key and has the password,
// which is named to the agent as a secret. So are the fields of a service's actions that the type of the plugin marks.
func TestKeysOfProvidersOnly(t *testing.T) {
	m, err := state.New(state.Config{})
	if err != nil {
		t.Fatal(err)
	}
	g := plan.NewBuilder([]string{"00000001-1000"}, []string{"s"})
	g.Edge(g.Task(model.Create, 0, -1), g.Task(model.Install, 0, 0))
	graph, err := g.Build()
	if err != nil {
		t.Fatal(err)
	}
	install := map[string]model.ServiceAction{"install": {Type: "shell", Fields: map[string]any{"code": "hunter-2", "note": "x"}},
		"start": {Type: "shell"}, "check": {Type: "shell", Fields: map[string]any{"code": 12345678.}}}
	op := model.Operation{ID: "00000001-001", Tenant: "t", Cluster: "00000001", Type: model.OpCreate}
	cl := model.Cluster{ID: "00000001", Tenant: "t", Name: "a", Operation: op.ID, Operations: 1, Services: []string{"s"},
		Provider: model.Provider{Base: model.Base{Name: "p"}, ProviderType: "cloud",
			Provisioner: map[string]any{"region": "r", "password": model.SealedRef{ID: "a", Version: 1}.String()}},
		Definitions: map[string]model.Service{"s": {Base: model.Base{Name: "s"}, Provisioner: model.ServiceProvisioner{Actions: install}}}}
	n := model.Node{ID: "00000001-1000", Cluster: cl.ID, Tenant: "t", Number: 1000, Services: []string{"s"}}
	level := func(level uint32) *pb.Command {
		return &pb.Command{Change: &pb.Command_RaiseFeatureLevel{RaiseFeatureLevel: &pb.RaiseFeatureLevel{Level: level}}}
	}
	b, err := proto.Marshal(&pb.Entry{Format: state.Format, FeatureLevel: state.FeatureLevel, Commands: []*pb.Command{
		level(logformat.SealedLevel - 1), // which does not look for the value that the provider names
		{Change: &pb.Command_PutTenant{PutTenant: &pb.PutTenant{Tenant: logtest.Tenant(model.Tenant{Name: "t"})}}},
		{Tenant: "t", Change: &pb.Command_PutDefinitions{PutDefinitions: &pb.PutDefinitions{Definitions: []*pb.Definition{
			{Kind: string(model.KindAutomatorType), Name: "shell", Body: []byte(`{"name":"shell","parameters":{"admin":{"fields":{` +
				`"code":{"label":"Code","type":"text","sensitive":true},"note":{"label":"Note","type":"text"}}}}}`)}}}}},
		{Tenant: "t", Change: &pb.Command_StartOperation{StartOperation: &pb.StartOperation{Operation: logtest.Operation(op),
			Cluster: logtest.Cluster(cl), Nodes: logtest.Nodes(n), Graph: graph.Encode()}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	m.Apply(&raft.Log{Type: raft.LogCommand, Index: 1, Data: b})
	raise, err := proto.Marshal(&pb.Entry{Format: state.Format, FeatureLevel: state.FeatureLevel,
		Commands: []*pb.Command{level(logformat.RotationLevel)}})
	if err != nil {
		t.Fatal(err)
	}
	v := m.View()
	s, ok := v.Plan(op.ID)
	started, _ := v.Operation("t", op.ID)
	have, _ := v.Cluster("t", cl.ID)
	node, has := v.Node("t", n.ID)
	if !ok || !has {
		t.Fatal("the operation did not start")
	}
	m.Apply(&raft.Log{Type: raft.LogCommand, Index: 2, Data: raise})
	keys := &opener{}
	builder, checks := NewBuilder(m, keys, ""), NewChecks(m, keys)
	for _, keys.keys = range []bool{false, true} {
		create, err := builder.Task(v, started, s, 0)
		switch {
		case !keys.keys && !errors.Is(err, keyring.ErrNoKey):
			t.Error("a machine is made without keys:", err)
		case keys.keys && (err != nil || !bytes.Contains(create.Input, []byte("canary")) ||
			!slices.Equal(create.Secrets, []string{"canary-password"})):
			t.Error(create, err)
		}
		// The leader encrypts results as soon as all members can read them.
		for view, encrypts := range map[*state.View]bool{v: false, m.View(): true} {
			if install, err := builder.Task(view, started, s, 1); err != nil || install.Encrypts != encrypts {
				t.Errorf("at level %d: %v, %v", view.FeatureLevel(), install, err)
			}
		}
		install, err := builder.Task(v, started, s, 1)
		if err != nil || bytes.Contains(install.Input, []byte("canary")) || !slices.Equal(install.Secrets, []string{"hunter-2"}) {
			t.Error("with keys:", keys.keys, install, err)
		}
		check, machine, err := checks.Check(v, have, node, "s")
		if check == nil || !slices.Equal(check.Secrets, []string{"12345678"}) || (machine != nil) != keys.keys || (err == nil) != keys.keys {
			t.Error("with keys:", keys.keys, check, machine, err)
		}
		if keys.keys && !slices.Equal(machine.GetSecrets(), []string{"canary-password"}) {
			t.Error("the password is no secret of the question about a machine")
		}
	}
}

// TestTaskOnAnAgent checks what is sent for a task on no node: with the automator that it needs, and only if the author of the service's
// version that the cluster has now had the right host:exec, whoever started the plan.
func TestTaskOnAnAgent(t *testing.T) {
	m, err := state.New(state.Config{})
	if err != nil {
		t.Fatal(err)
	}
	g := plan.NewBuilder([]string{"00000001-1000"}, []string{"s", model.OwnAction("s", "probe"), model.OwnAction("s", "brew")})
	for service := range 3 {
		g.Task(model.Run, plan.None, service)
	}
	graph, err := g.Build()
	if err != nil {
		t.Fatal(err)
	}
	op := model.Operation{ID: "00000001-001", Tenant: "t", Cluster: "00000001", Type: model.OpCreate, Parameters: map[string]string{"A": "b"}}
	cl := model.Cluster{ID: "00000001", Tenant: "t", Name: "a", Operation: op.ID, Operations: 1, Services: []string{"s"},
		Config: map[string]any{"port": "80", "self": "%host.self%"},
		Definitions: map[string]model.Service{"s": {Base: model.Base{Name: "s", HostExec: true}, Provisioner: model.ServiceProvisioner{
			Actions: map[string]model.ServiceAction{"probe": {Type: "shell", Fields: map[string]any{"script": "x"}}, "brew": {Type: "chef-solo"}}}}}}
	n := model.Node{ID: "00000001-1000", Cluster: cl.ID, Tenant: "t", Number: 1000, Services: []string{"s"}}
	index := uint64(0)
	apply := func(commands ...*pb.Command) {
		t.Helper()
		b, err := proto.Marshal(&pb.Entry{Format: state.Format, FeatureLevel: state.FeatureLevel, Commands: commands})
		if err != nil {
			t.Fatal(err)
		}
		index++
		m.Apply(&raft.Log{Type: raft.LogCommand, Index: index, Data: b})
	}
	start := func(op model.Operation, cl model.Cluster, nodes ...model.Node) *pb.Command {
		return &pb.Command{Tenant: "t", Change: &pb.Command_StartOperation{StartOperation: &pb.StartOperation{Operation: logtest.Operation(op),
			Cluster: logtest.Cluster(cl), ClusterVersion: cl.Version, Nodes: logtest.Nodes(nodes...), Graph: graph.Encode()}}}
	}
	apply(&pb.Command{Change: &pb.Command_PutTenant{PutTenant: &pb.PutTenant{Tenant: logtest.Tenant(model.Tenant{Name: "t"})}}}, start(op, cl, n))
	v := m.View()
	s, ok := v.Plan(op.ID)
	if !ok {
		t.Fatal("the operation did not start")
	}
	b := NewBuilder(m, &opener{}, "")
	task, err := b.Task(v, &op, s, 1)
	if err != nil || task.Node != "" || task.Action != "PROBE" || task.Service != "s" || task.Plugin != "shell" || !task.Automator ||
		!bytes.Contains(task.Input, []byte(`"parameters":{"A":"b"}`)) || !bytes.Contains(task.Input, []byte(`{"port":"80","self":"%host.self%"}`)) ||
		bytes.Contains(task.Input, []byte(`"results"`)) {
		t.Errorf("%v, %v", task, err)
	}
	if needs := b.Needs(v, &op, s.Graph, 1); needs.Plugin != "automator/shell" || needs.Machine != "" {
		t.Errorf("%+v", needs)
	}
	if _, err := b.Task(v, &op, s, 2); err == nil || !strings.Contains(err.Error(), "works on a node only") {
		t.Error(err)
	}
	// An upgrade has brought the version of somebody else.
	d := cl.Definitions["s"]
	d.HostExec, d.Author, d.Version = false, "bob", 4
	apply(&pb.Command{Tenant: "t", Change: &pb.Command_ControlOperation{ControlOperation: &pb.ControlOperation{Operation: op.ID,
		Order: pb.OperationOrder_OPERATION_ORDER_ABORT}}})
	have, _ := m.View().Cluster("t", cl.ID)
	other := *have
	other.Definitions, other.Operation, other.Operations = map[string]model.Service{"s": d}, "00000001-002", 2
	apply(start(model.Operation{ID: other.Operation, Tenant: "t", Cluster: cl.ID, Type: model.OpUpgrade}, other, n))
	if now, _ := m.View().Cluster("t", cl.ID); now.Definitions["s"].Version != 4 {
		t.Fatalf("%+v", now.Definitions)
	}
	if _, err := b.Task(m.View(), &op, s, 1); !errors.Is(err, problem.Forbidden) || !strings.Contains(err.Error(), "bob") {
		t.Error(err)
	}
}
