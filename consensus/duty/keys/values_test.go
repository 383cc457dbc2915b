package keys

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/proto/record"
	"github.com/coopr/coopr/testing/doubles/logtest"
)

// TestReseal has a state from before values were encrypted: a secret, two versions of a provider, and two clusters with it, one of which
// has a history. Nothing of it is in the clear after one round, and all values are as they were.
func TestReseal(t *testing.T) {
	g := newGroup(t, 1)
	do := func(c *pb.Command) {
		t.Helper()
		c.Tenant, c.Actor = "t", "ann"
		if a, err := g.propose(t.Context(), c); err != nil || a[0].Err != nil {
			t.Fatal(err, a)
		}
	}
	do(&pb.Command{Change: &pb.Command_ChangeRuns{ChangeRuns: &pb.ChangeRuns{Change: &pb.ChangeRuns_Put{Put: &pb.PutSetting{
		Kind: pb.SettingKind_SETTING_KIND_SECRET, Name: "s", Order: pb.SettingOrder_SETTING_ORDER_PUT,
		Value: &pb.PutSetting_Secret{Secret: []byte("canary-secret")},
	}}}}})
	fields := map[string]any{"password": "canary-password", "region": "r"}
	p := model.Provider{Base: model.Base{Name: "p"}, ProviderType: "cloud", Provisioner: fields}
	for range 2 {
		body, err := model.Encode(model.Define(model.KindProvider, &p))
		if err != nil {
			t.Fatal(err)
		}
		do(&pb.Command{Change: &pb.Command_PutDefinitions{PutDefinitions: &pb.PutDefinitions{Definitions: []*pb.Definition{
			{Kind: "providers", Name: "p", Body: body}}}}})
	}
	graph, err := plan.NewBuilder(nil, nil).Build()
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range []model.OperationID{"00000001-001", "00000001-002", "00000002-001"} {
		s := &pb.StartOperation{Graph: graph.Encode()}
		id, kind := string(op.Cluster()), model.OpCreate
		if have, ok := g.View().Cluster("t", id); ok {
			s.ClusterVersion, kind = have.Version, model.OpConfigure
		}
		s.Operation = logtest.Operation(model.Operation{ID: string(op), Tenant: "t", Cluster: id, Type: kind})
		s.Cluster = logtest.Cluster(model.Cluster{ID: id, Tenant: "t", Name: id, Operation: string(op), Provider: p})
		do(&pb.Command{Change: &pb.Command_StartOperation{StartOperation: s}})
	}
	dump := func() []byte {
		var out bytes.Buffer
		if err := g.View().Write(&out); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	before, version := bytes.Count(dump(), []byte("canary")), uint64(0)
	if cl, ok := g.View().Cluster("t", "00000001"); ok {
		version = cl.Version
	}
	var told bool
	defer g.Watch(func(b state.Batch) { told = told || b.Resealed })()
	records := g.View().Audit().Stats().Records
	if err := g.c.round(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(dump(), []byte("canary")); n > 0 || before < 5 || !told {
		t.Errorf("%d values are in the clear of %d; voters compact their logs: %t", n, before, told)
	}
	v := g.View()
	row, _ := v.Secret("t", "s")
	value, _ := v.Sealed("t", row.ID, row.Version)
	if got, err := g.c.cfg.Box.Open(v.SealedView, value); string(got) != "canary-secret" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	check := func(what string, is map[string]any) {
		t.Helper()
		open, err := g.c.cfg.Box.OpenFields(v.SealedView, "t", is)
		a, _ := json.Marshal(open)
		b, _ := json.Marshal(fields)
		if err != nil || !bytes.Equal(a, b) || !model.HasSealedRef(is) {
			t.Errorf("%s: %v, %v", what, is, err)
		}
	}
	for _, n := range []int{1, 2} {
		d, _ := v.Definition("t", model.KindProvider, "p", n)
		def, err := model.Restore(d.Kind, d.Body)
		if err != nil {
			t.Fatal(err)
		}
		check("a definition", def.Value.(*model.Provider).Provisioner)
	}
	for _, cl := range v.Clusters("t") {
		check("a cluster", cl.Provider.Provisioner)
		if cl.ID == "00000001" && cl.Version != version {
			t.Error("the cluster has another version")
		}
	}
	if s, ok := v.Snapshot("t", "00000001", 1); ok {
		check("the history", s.State.Provider.Provisioner)
	} else {
		t.Error("there is no history")
	}
	// Records of the secret, of the level of the mesh, of two data keys, and of the signing key.
	if n := v.Audit().Stats().Records; n != records+5 {
		t.Errorf("%d records more in the audit log", n-records)
	}
	index := v.Index()
	if err := g.c.round(t.Context()); err != nil || g.View().Index() != index {
		t.Error("another round wrote something", err)
	}
}

// TestResealForNewTypes has a provider with a field that is sensitive only according to a description that comes later.
func TestResealForNewTypes(t *testing.T) {
	g := newGroup(t, 2)
	body, err := model.Encode(model.Define(model.KindProvider, &model.Provider{Base: model.Base{Name: "p"}, ProviderType: "cloud",
		Provisioner: map[string]any{"pin": "canary"}}))
	if err != nil {
		t.Fatal(err)
	}
	round := func(c *pb.Command, want bool) {
		t.Helper()
		c.Tenant = "t"
		if a, err := g.propose(t.Context(), c); err != nil || a[0].Err != nil {
			t.Fatal(err, a)
		}
		if err := g.c.round(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d, _ := g.View().Definition("t", model.KindProvider, "p", 0); bytes.Contains(d.Body, []byte("canary")) == want {
			t.Errorf("it is encrypted: %t", !want)
		}
	}
	round(&pb.Command{Change: &pb.Command_PutDefinitions{PutDefinitions: &pb.PutDefinitions{Definitions: []*pb.Definition{
		{Kind: "providers", Name: "p", Body: body}}}}}, false)
	round(&pb.Command{Change: &pb.Command_OpenSession{OpenSession: &pb.OpenSession{Agent: "1", Record: &record.Agent{Id: "1"},
		Types: []*record.PluginType{logtest.PluginType(model.PluginType{Base: model.Base{Name: "cloud"}, Class: "provider",
			Parameters: model.PluginParameters{Admin: model.PluginFields{Fields: map[string]model.FieldSchema{"pin": {Type: "password"}}}},
		})}}}}, true)
}
