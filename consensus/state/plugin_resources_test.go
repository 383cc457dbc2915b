package state_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	"pgregory.net/rapid"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
)

func addResource(tenant, name, sum string, size int64, order string) *pb.Command {
	v := model.ResourceVersion{ResourcePin: model.ResourcePin{ResourceKey: model.ResourceKey{Kind: model.KindAutomatorType, Plugin: "shell",
		Type: "scripts", Name: name}, SHA256: sum, Size: size, Format: "file"}}
	return &pb.Command{Tenant: tenant, Actor: "ann", Change: changeResource(logformat.AddResource(&v, 1000, order))}
}

func orderResource(tenant, name, order string, version int) *pb.Command {
	return &pb.Command{Tenant: tenant, Actor: "ann", Change: changeResource(logformat.OrderResource(order,
		model.ResourceKey{Kind: model.KindAutomatorType, Plugin: "shell", Type: "scripts", Name: name}, version))}
}

func syncResources(tenant string) *pb.Command {
	return &pb.Command{Tenant: tenant, Actor: "ann",
		Change: changeResource(logformat.OrderResource(logformat.SyncOrder, model.ResourceKey{}, 0))}
}

func changeResource(ch *pb.ChangeResource, err error) *pb.Command_ChangeResource {
	if err != nil {
		panic(err)
	}
	return &pb.Command_ChangeResource{ChangeResource: ch}
}

// TestPlansKeepTheirResources expects that an operation keeps the versions that were in force when
// it began. Their contents are needed for as long as its plan is kept.
func TestPlansKeepTheirResources(t *testing.T) {
	m := fresh(t)
	index := uint64(0)
	one := func(c *pb.Command) state.Answer {
		index++
		return do(t, m, entry(index, int64(index), c))[0]
	}
	must := func(c *pb.Command) {
		t.Helper()
		if a := one(c); a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	set := func(op string) string {
		o, _ := m.View().Operation("t", op)
		s, ok := m.View().ResourceSet("t", o.Resources)
		if o.Resources == 0 {
			return ""
		}
		if !ok {
			t.Fatalf("operation %s has no set %d", op, o.Resources)
		}
		var out []string
		for _, p := range s.Of(model.KindAutomatorType, "shell") {
			out = append(out, fmt.Sprintf("%s@%d", p.Name, p.Version))
		}
		return strings.Join(out, " ")
	}
	must(tenant("t", 0, 0))
	must(start("t", "00000001", "none", 1, "leave", ""))
	must(addResource("t", "a", "a1", 10, ""))
	must(start("t", "00000002", "inactive", 1, "leave", ""))
	must(orderResource("t", "a", "stage", 1))
	must(start("t", "00000003", "staged", 1, "leave", ""))
	must(syncResources("t"))
	must(start("t", "00000004", "one", 1, "leave", ""))
	must(addResource("t", "a", "a2", 10, "activate"))
	must(addResource("t", "b", "b1", 10, "stage"))
	must(start("t", "00000005", "two", 1, "leave", ""))
	must(orderResource("t", "a", "recall", 2))
	must(start("t", "00000006", "recalled, not synced", 1, "leave", ""))
	must(syncResources("t"))
	must(start("t", "00000007", "b alone", 1, "leave", ""))
	for op, want := range map[string]string{"00000001": "", "00000002": "", "00000003": "", "00000004": "a@1", "00000005": "a@2",
		"00000006": "a@2", "00000007": "b@1"} {
		if got := set(op + "-001"); got != want {
			t.Errorf("operation %s has %q, not %q", op, got, want)
		}
		cl, _ := m.View().Cluster("t", op)
		if o, _ := m.View().Operation("t", op+"-001"); cl.Resources != o.Resources {
			t.Errorf("checks of cluster %s follow set %d, not %d", op, cl.Resources, o.Resources)
		}
	}
	must(orderResource("t", "a", "delete", 0))
	if v := m.View(); !v.HasBlob("t", "a1") || !v.HasBlob("t", "b1") || v.HasBlob("t2", "a1") || v.HasBlob("", "a1") || v.HasBlob("t", "x") {
		t.Error("contents are not those of the tenant")
	}
	if b := m.View().Blobs(); len(b) != 3 || b["a1"] != 10 {
		t.Errorf("contents that plans need are gone: %v", b)
	}
	if a := one(orderResource("t", "b", "delete", 1)); !errors.Is(a.Err, problem.Conflict) {
		t.Errorf("what is in force was deleted: %v", a.Err)
	}
	if a := one(orderResource("t", "b", "stage", 7)); !errors.Is(a.Err, problem.NotFound) {
		t.Error(a.Err)
	}
	if a := one(addResource("t", "c", "c1", 991, "")); !errors.Is(a.Err, problem.Quota) {
		t.Errorf("990 bytes were left: %v", a.Err)
	}
	for i := range model.MostResourceVersions {
		if a := one(addResource("t", "d", "d", 0, "")); a.Err != nil {
			t.Fatal(i, a.Err)
		}
	}
	if a := one(addResource("t", "d", "d", 0, "")); !errors.Is(a.Err, problem.Quota) {
		t.Error(a.Err)
	}
}

// TestResourcesAreReplicated expects the same state on voters that apply the same entries in other
// batches, or that start from a snapshot in the middle.
func TestResourcesAreReplicated(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		one, two := fresh2(t), fresh2(t)
		var logs []*raft.Log
		index, clusters := uint64(0), 0
		add := func(c *pb.Command) {
			index++
			logs = append(logs, entry(index, int64(index), c))
		}
		add(tenant("t", 0, 0))
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			name := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "name")
			switch what := rapid.SampledFrom([]string{"add", "sync", "start", "stage", "recall", "activate", "delete"}).Draw(t, "what"); what {
			case "add":
				add(addResource("t", name, fmt.Sprint(name, index), 1, rapid.SampledFrom([]string{"", "stage", "activate"}).Draw(t, "order")))
			case "sync":
				add(syncResources("t"))
			case "start":
				clusters++
				add(start("t", fmt.Sprintf("%08d", clusters), fmt.Sprint("c", clusters), 1, "leave", ""))
			default:
				add(orderResource("t", name, what, rapid.IntRange(0, 4).Draw(t, "version")))
			}
		}
		for _, l := range logs {
			one.Apply(l)
		}
		cut := rapid.IntRange(0, len(logs)).Draw(t, "cut")
		two.ApplyBatch(logs[:cut])
		var snap bytes.Buffer
		if err := two.View().Write(&snap); err != nil {
			t.Fatal(err)
		}
		three := fresh2(t)
		if err := three.Restore(io.NopCloser(bytes.NewReader(snap.Bytes()))); err != nil {
			t.Fatal(err)
		}
		two.ApplyBatch(logs[cut:])
		three.ApplyBatch(logs[cut:])
		a, b, c := dump2(t, one), dump2(t, two), dump2(t, three)
		if !bytes.Equal(a, b) || !bytes.Equal(a, c) {
			t.Fatal("voters differ")
		}
		v := one.View()
		needed := v.Blobs()
		for _, o := range v.Operations("t", "") {
			if o.Resources == 0 {
				continue
			}
			s, ok := v.ResourceSet("t", o.Resources)
			if !ok {
				t.Fatalf("operation %s has lost its set %d", o.ID, o.Resources)
			}
			for _, p := range s.Pins {
				if _, ok := needed[p.SHA256]; !ok {
					t.Fatalf("operation %s needs %s, which may be removed", o.ID, p)
				}
			}
		}
	})
}

func fresh2(t *rapid.T) *state.Machine {
	m, err := state.New(state.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func dump2(t *rapid.T, m *state.Machine) []byte {
	var b bytes.Buffer
	if err := m.View().Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
