package state_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/testing/doubles/logtest"
)

func putDataKey(tenant string, number uint32) *pb.Command {
	return &pb.Command{Actor: "coopr", Change: &pb.Command_PutDataKey{PutDataKey: &pb.PutDataKey{
		Tenant: tenant, Number: number, MeshKey: 1, MeshPrint: []byte("print"), Wrapped: []byte("wrapped"),
	}}}
}

func putSealed(tenant, id string, version uint32) *pb.Command {
	return &pb.Command{Actor: "coopr", Change: &pb.Command_PutSealed{PutSealed: &pb.PutSealed{
		Tenant: tenant, Values: []*pb.SealedValue{{Id: id, Version: version, Sealed: []byte("sealed")}},
	}}}
}

func TestSealed(t *testing.T) {
	c := newClinic(t)
	for _, step := range []struct {
		what string
		do   *pb.Command
		want error
	}{
		{"the first key of the mesh", putDataKey("", 1), nil},
		{"a key again", putDataKey("", 1), problem.Stale},
		{"a key too far", putDataKey("", 3), problem.Stale},
		{"the first key of a tenant", putDataKey("t", 1), nil},
		{"a key of nobody", putDataKey("nobody", 1), problem.NotFound},
		{"a value", putSealed("t", "a", 1), nil},
		{"a version again", putSealed("t", "a", 1), problem.Stale},
		{"the next version", putSealed("t", "a", 2), nil},
		{"the second version first", putSealed("t", "b", 2), problem.Stale},
		{"a value without id", putSealed("t", "", 1), problem.Stale},
		{"a value of the mesh", putSealed("", "a", 1), nil},
		{"a value of nobody", putSealed("nobody", "a", 1), problem.NotFound},
	} {
		if a := c.do(step.do); !errors.Is(a.Err, step.want) {
			t.Errorf("%s: %v", step.what, a.Err)
		}
	}
	v := c.m.View()
	if k, ok := v.DataKey("t"); !ok || k.Number != 1 || string(k.Wrapped) != "wrapped" {
		t.Error(k, ok)
	}
	if r, ok := v.LatestSealed("t", "a"); !ok || r.Version != 2 {
		t.Error(r, ok)
	}
	if got := v.MeshKeys()[1]; string(got) != "print" {
		t.Errorf("the mesh key is %q", got)
	}
}

// TestSealedWithUnknownKey writes values whose data key is not there. They are refused from the level on at which all voters do so.
func TestSealedWithUnknownKey(t *testing.T) {
	for level, want := range map[uint32]error{2: nil, 3: problem.Stale} {
		c := newClinic(t)
		value := func(id string, dataKey byte) *pb.SealedValue {
			return &pb.SealedValue{Id: id, Version: 1, Sealed: []byte{0, 0, 0, dataKey, 'x'}}
		}
		for _, step := range []struct {
			what string
			do   *pb.Command
			want error
		}{
			{"the level", &pb.Command{Change: &pb.Command_RaiseFeatureLevel{RaiseFeatureLevel: &pb.RaiseFeatureLevel{Level: level}}}, nil},
			{"a secret without any key", putSecret(value("s", 1)), want},
			{"the key of another tenant", putDataKey("", 1), nil},
			{"a value without a key of its tenant", putValues(value("a", 1)), want},
			{"a key of the tenant", putDataKey("t", 1), nil},
			{"a value of a key that is not there yet", putValues(value("b", 2)), want},
			{"a value of a key that is there", putValues(value("c", 1)), nil},
			{"one of both", putValues(value("d", 1), value("e", 2)), want},
		} {
			if a := c.do(step.do); !errors.Is(a.Err, step.want) {
				t.Errorf("level %d, %s: %v", level, step.what, a.Err)
			}
		}
	}
}

func putValues(values ...*pb.SealedValue) *pb.Command {
	return &pb.Command{Change: &pb.Command_PutSealed{PutSealed: &pb.PutSealed{Tenant: "t", Values: values}}}
}

func putSecret(value *pb.SealedValue, users ...string) *pb.Command {
	return &pb.Command{Tenant: "t", Actor: "ann", Change: &pb.Command_ChangeRuns{ChangeRuns: &pb.ChangeRuns{Change: &pb.ChangeRuns_Put{
		Put: &pb.PutSetting{Kind: pb.SettingKind_SETTING_KIND_SECRET, Name: "s", Order: pb.SettingOrder_SETTING_ORDER_PUT, UsableBy: users,
			Value: &pb.PutSetting_Sealed{Sealed: value}},
	}}}}
}

// TestSealedSecret writes a secret again and again: the state has its latest value only.
func TestSealedSecret(t *testing.T) {
	c := newClinic(t)
	deleted := putSecret(nil)
	deleted.GetChangeRuns().GetPut().Order = pb.SettingOrder_SETTING_ORDER_DELETE
	plain := putSecret(nil)
	plain.GetChangeRuns().GetPut().Value = &pb.PutSetting_Secret{Secret: []byte("clear")}
	reseal := func(id string) *pb.Command {
		return &pb.Command{Actor: "coopr", Change: &pb.Command_Reseal{Reseal: &pb.Reseal{Secrets: []*pb.ResealedSecret{
			{Tenant: "t", Name: "s", Value: sealedValue(id, 1)}, {Tenant: "t", Name: "gone", Value: sealedValue("gone", 1)},
		}}}}
	}
	for _, step := range []struct {
		what    string
		do      *pb.Command
		want    error
		id      string
		version uint32
	}{
		{"the first version", putSecret(sealedValue("a", 1)), nil, "a", 1},
		{"the same version", putSecret(sealedValue("a", 1)), problem.Stale, "a", 1},
		{"another value", putSecret(sealedValue("b", 1)), problem.Stale, "a", 1},
		{"the next version", putSecret(sealedValue("a", 2)), nil, "a", 2},
		{"a clear value sealed, that is not", reseal("r"), nil, "a", 2},
		{"its end", deleted, nil, "", 0},
		{"in the clear", plain, nil, "", 0},
		{"a clear value sealed", reseal("r"), nil, "r", 1},
		{"its next version", putSecret(sealedValue("r", 2)), nil, "r", 2},
	} {
		if a := c.do(step.do); !errors.Is(a.Err, step.want) {
			t.Errorf("%s: %v", step.what, a.Err)
		}
		v := c.m.View()
		if r, _ := v.Secret("t", "s"); r.ID != step.id || r.Version != step.version || r.ID != "" && r.Value != "" {
			t.Errorf("%s: the secret is %+v", step.what, r)
		}
		want := 0
		if step.id != "" {
			want = 1
		}
		if n := v.Rows()["sealed"]; n != want {
			t.Errorf("%s: %d values are kept", step.what, n)
		}
	}
}

func sealedValue(id string, version uint32) *pb.SealedValue {
	return &pb.SealedValue{Id: id, Version: version, Sealed: []byte("sealed")}
}

// TestUnusedSealed finds the values that nothing names, once they are old.
func TestUnusedSealed(t *testing.T) {
	c := newClinic(t)
	c.now = 1000
	c.do(&pb.Command{Change: &pb.Command_RaiseFeatureLevel{RaiseFeatureLevel: &pb.RaiseFeatureLevel{Level: 2}}})
	begin := c.now
	for _, id := range []string{"kept", "loose", "secret"} {
		c.do(putSealed("t", id, 1))
	}
	provider := func(id string) *pb.Command {
		return &pb.Command{Tenant: "t", Actor: "ann", Change: &pb.Command_PutDefinitions{PutDefinitions: &pb.PutDefinitions{
			Definitions: []*pb.Definition{{Kind: "providers", Name: "p",
				Body: []byte(`{"name":"p","providertype":"x","provisioner":{"password":"coopr-sealed:` + id + `@1"}}`)}}}}}
	}
	if a := c.do(provider("kept")); a.Err != nil {
		t.Fatal(a.Err)
	}
	if a := c.do(putSecret(sealedValue("s", 1))); a.Err != nil {
		t.Fatal(a.Err)
	}
	if young := c.m.View().UnusedSealed(begin, 10); len(young) > 0 {
		t.Error("young values are unused:", young)
	}
	var drop pb.DropSealed
	for _, r := range c.m.View().UnusedSealed(c.now+100, 10) {
		drop.Values = append(drop.Values, &pb.SealedName{Tenant: r.Tenant, Id: r.ID, Version: r.Version})
	}
	if len(drop.Values) != 2 || drop.Values[0].Id != "loose" || drop.Values[1].Id != "secret" {
		t.Error("unused:", drop.Values)
	}
	if n := len(c.m.View().UnusedSealed(c.now+100, 1)); n != 1 {
		t.Error("more than were asked for:", n)
	}
	if a := c.do(&pb.Command{Change: &pb.Command_DropSealed{DropSealed: &drop}}); a.Err != nil {
		t.Error(a.Err)
	}
	if left := c.m.View().Rows()["sealed"]; left != 2 {
		t.Error("values left:", left)
	}
	if a := c.do(provider("loose")); !errors.Is(a.Err, problem.Stale) {
		t.Error("a provider names a value that is gone:", a.Err)
	}
}

// TestNamedSealed has values that are named again after the leader found them unused, and operations that name a value that is gone.
// Below the level at which all voters know this, nothing is refused.
func TestNamedSealed(t *testing.T) {
	begin := func(cluster, id string) *pb.Command {
		c := start("t", cluster, cluster, 1, "delete", "")
		c.GetStartOperation().Cluster = logtest.Cluster(model.Cluster{ID: cluster, Tenant: "t", Name: cluster, Operation: cluster + "-001",
			Operations: 1, Provider: model.Provider{Base: model.Base{Name: "p"}, ProviderType: "x",
				Provisioner: map[string]any{"password": model.SealedRef{ID: id, Version: 1}.String()}}})
		return c
	}
	drop := func(ids ...string) *pb.Command {
		p := &pb.DropSealed{}
		for _, id := range ids {
			p.Values = append(p.Values, &pb.SealedName{Tenant: "t", Id: id, Version: 1})
		}
		return &pb.Command{Change: &pb.Command_DropSealed{DropSealed: p}}
	}
	for level, want := range map[uint32]error{1: nil, 2: problem.Stale} {
		c := newClinic(t)
		for _, cmd := range []*pb.Command{
			{Change: &pb.Command_RaiseFeatureLevel{RaiseFeatureLevel: &pb.RaiseFeatureLevel{Level: level}}},
			putSealed("t", "named", 1), putSealed("t", "loose", 1), begin("00000002", "named"), drop("named", "loose"),
		} {
			if a := c.do(cmd); a.Err != nil {
				t.Fatal(a.Err)
			}
		}
		_, named := c.m.View().Sealed("t", "named", 1)
		if _, loose := c.m.View().Sealed("t", "loose", 1); named != (level == 2) || loose {
			t.Errorf("level %d: the named value is there: %t, the other one: %t", level, named, loose)
		}
		if a := c.do(begin("00000003", "loose")); !errors.Is(a.Err, want) {
			t.Errorf("level %d: a cluster names a value that is gone: %v", level, a.Err)
		}
		body := []byte(`{"name":"p","providertype":"x","provisioner":{"password":"coopr-sealed:loose@1"}}`)
		if a := c.do(&pb.Command{Tenant: "t", Change: &pb.Command_PutDefinitions{PutDefinitions: &pb.PutDefinitions{
			Definitions: []*pb.Definition{{Kind: "providers", Name: "p", Body: body}}}}}); !errors.Is(a.Err, want) {
			t.Errorf("level %d: a provider names a value that is gone: %v", level, a.Err)
		}
		have, _ := c.m.View().Cluster("t", "00000001")
		req := logtest.Request(operation.Request{Type: model.OpRestart,
			ProviderFields: map[string]any{"password": model.SealedRef{ID: "loose", Version: 1}.String()}})
		if a := c.do(&pb.Command{Tenant: "t", Change: &pb.Command_QueueOperation{QueueOperation: &pb.QueueOperation{
			ClusterVersion: have.Version, Request: req,
			Operation: logtest.Operation(model.Operation{ID: "00000001-002", Tenant: "t", Cluster: "00000001", Type: model.OpRestart}),
		}}}); !errors.Is(a.Err, want) {
			t.Errorf("level %d: a queued request names a value that is gone: %v", level, a.Err)
		}
	}
}

// The export of a key is on record as long as that key is in use.
func TestNoteExport(t *testing.T) {
	c := newClinic(t)
	note := func(number uint32, key string, at int64) error {
		return c.do(&pb.Command{Actor: "coopr", Change: &pb.Command_NoteExport{NoteExport: &pb.NoteExport{Number: number, Print: []byte(key),
			TimeMs: at}}}).Err
	}
	if err := note(1, "print", 5); !errors.Is(err, problem.Stale) {
		t.Errorf("before there is a key: %v", err)
	}
	c.do(putDataKey("", 1))
	for key, number := range map[string]uint32{"other": 1, "print": 2} {
		if err := note(number, key, 5); !errors.Is(err, problem.Stale) {
			t.Errorf("key %d %q: %v", number, key, err)
		}
	}
	if got := c.m.View().KeyringExported(); got != 0 {
		t.Errorf("exported at %d", got)
	}
	if err := note(1, "print", 5); err != nil || c.m.View().KeyringExported() != 5 {
		t.Errorf("%v, at %d", err, c.m.View().KeyringExported())
	}
	again := fresh(t)
	if err := again.Restore(io.NopCloser(bytes.NewReader(dump(t, c.m)))); err != nil || again.View().KeyringExported() != 5 {
		t.Errorf("restored: %v, at %d", err, again.View().KeyringExported())
	}
	c.do(&pb.Command{Change: &pb.Command_RaiseFeatureLevel{RaiseFeatureLevel: &pb.RaiseFeatureLevel{Level: logformat.RotationLevel}}})
	for phase := begins; phase < active; phase++ {
		if err := c.do(rotate(1, phase, phase+1)).Err; err != nil {
			t.Fatal(err)
		}
	}
	if got := c.m.View().KeyringExported(); got != 0 {
		t.Errorf("the new key was exported at %d", got)
	}
}
