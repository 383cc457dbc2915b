package state_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/profile"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/testing/doubles/logtest"
)

// sameCounts compares the counts of tenants, which a machine kept up to date, with those of another one, which counts the rows
// of a snapshot.
func sameCounts(rt interface{ Errorf(string, ...any) }, t testing.TB, m *state.Machine) {
	t.Helper()
	counted := restored(t, m)
	for _, tenant := range []string{"", "one", "two"} {
		if got, want := m.Counts(tenant), counted.Counts(tenant); !maps.Equal(got, want) {
			rt.Errorf("tenant %q: the counts are %v, but the rows %v", tenant, got, want)
		}
	}
}

// limited is a machine with the tenant "one".
type limited struct {
	t      *testing.T
	m      *state.Machine
	index  uint64
	bounds uint32
}

func newLimited(t *testing.T, limits model.Tenant) *limited {
	l := &limited{t: t, m: fresh(t), bounds: state.Bounds}
	limits.Name = "one"
	l.want("", &pb.Command{Actor: "root", Change: &pb.Command_PutTenant{PutTenant: &pb.PutTenant{Tenant: logtest.Tenant(limits)}}})
	return l
}

// want applies commands. The last one must be refused with an error of this code and all of the texts, or with "" not.
func (l *limited) want(code problem.Code, c *pb.Command, texts ...string) {
	l.t.Helper()
	l.index++
	if c.Tenant == "" {
		c.Tenant = "one"
	}
	a := do(l.t, l.m, entryWithin(l.bounds, l.index, int64(l.index), c))[0]
	switch {
	case code == "" && a.Err != nil:
		l.t.Errorf("entry %d: %v", l.index, a.Err)
	case code != "" && !errors.Is(a.Err, code):
		l.t.Errorf("entry %d: %v, want %s", l.index, a.Err, code)
	}
	for _, text := range texts {
		if a.Err == nil || !strings.Contains(a.Err.Error(), text) {
			l.t.Errorf("entry %d: %v does not say %q", l.index, a.Err, text)
		}
	}
}

func document(kind, name string, bytes int) *pb.Definition {
	head := fmt.Sprintf(`{"name":%q,"description":"`, name)
	return &pb.Definition{Kind: kind, Name: name, Body: []byte(head + strings.Repeat("x", max(bytes-len(head)-2, 0)) + `"}`)}
}

func policies(name string, n int) *pb.Definition {
	return &pb.Definition{Kind: string(model.KindPolicies), Name: name,
		Body: js(model.Policies{Base: model.Base{Name: name}, Text: strings.Repeat(`permit (principal, action, resource); // one; of many`+"\n", n)})}
}

func (l *limited) setting(kind, name string, v any) *pb.Command {
	c := setting(l.t, kind, name, "put", v)
	c.Tenant = "one"
	return c
}

func newToken(id string) *pb.Command {
	return &pb.Command{Change: &pb.Command_PutToken{PutToken: &pb.PutToken{Hash: []byte(id), Actor: "ann", Tenant: "one", Role: "user", Id: id}}}
}

// Each limit is checked when the state is changed, so that no two requests pass it together. The refusal names the limit, the
// use and the command that raises the limit.
func TestLimitsOfATenant(t *testing.T) {
	t.Run("definitions", func(t *testing.T) {
		l := newLimited(t, model.Tenant{MaxDefinitions: 2, MaxVersions: 3})
		l.want("", definitions("ann", "", document("services", "a", 0), document("services", "b", 0)))
		l.want(problem.Quota, definitions("ann", "", document("services", "c", 0)), "2 services and has 2", "maxDefinitions",
			"coopr tenant put one --max-definitions N")
		l.want("", definitions("ann", "", document("providers", "c", 0)))
		l.want(problem.Quota, definitions("ann", "", document("hardwaretypes", "a", 0), document("hardwaretypes", "b", 0),
			document("hardwaretypes", "c", 0)))
		for range 5 {
			l.want("", definitions("ann", "", document("services", "a", 0)))
		}
		var versions []int
		for _, d := range l.m.View().Versions("one", "services", "a") {
			versions = append(versions, d.Version)
		}
		if !slices.Equal(versions, []int{4, 5, 6}) {
			t.Errorf("versions %v are kept, not the newest three", versions)
		}
		l.want("", &pb.Command{Change: &pb.Command_PutDefinitions{PutDefinitions: &pb.PutDefinitions{Delete: []*pb.DefinitionVersion{
			{Kind: "services", Name: "b"}}}}})
		l.want("", definitions("ann", "", document("services", "c", 0)))
		sameCounts(t, t, l.m)
	})
	t.Run("bytes", func(t *testing.T) {
		l := newLimited(t, model.Tenant{MaxDocumentBytes: 1000, MaxDefinitionBytes: 2500})
		l.want(problem.TooLarge, definitions("ann", "", document("services", "a", 1001)), "1001 bytes", "maxDocumentBytes")
		l.want("", definitions("ann", "", document("services", "a", 1000), document("services", "b", 1000)))
		l.want(problem.Quota, definitions("ann", "", document("services", "c", 501)), "2500 bytes", "has 2000", "maxDefinitionBytes")
		l.want(problem.TooLarge, l.setting("program", "p", profile.Program{Steps: []profile.Step{{Script: strings.Repeat("x", 1000)}}}))
		l.want(problem.Quota, l.setting("program", "p", profile.Program{Steps: []profile.Step{{Script: strings.Repeat("x", 600)}}}))
		l.want(problem.TooLarge, l.setting("secret", "s", profile.Secret{Value: model.NewSecret(strings.Repeat("x", 1001))}))
		l.want("", l.setting("program", "p", profile.Program{Steps: []profile.Step{{Script: strings.Repeat("x", 100)}}}))
		// A document that is replaced makes room for the new one.
		l.want("", l.setting("secret", "s", profile.Secret{Value: model.NewSecret(strings.Repeat("x", 250))}))
		l.want(problem.Quota, l.setting("secret", "u", profile.Secret{Value: model.NewSecret(strings.Repeat("x", 250))}))
		l.want("", l.setting("secret", "s", profile.Secret{Value: model.NewSecret(strings.Repeat("y", 250))}))
		l.want(problem.Quota, l.setting("secret", "s", profile.Secret{Value: model.NewSecret(strings.Repeat("y", 900))}))
		sameCounts(t, t, l.m)
		l = newLimited(t, model.Tenant{MaxDefinitionBytes: 2500, MaxVersions: 2})
		l.want("", definitions("ann", "", document("services", "a", 1000)))
		l.want("", definitions("ann", "", document("services", "a", 1000)))
		l.want("", definitions("ann", "", document("services", "a", 1500)))
		l.want(problem.Quota, definitions("ann", "", document("services", "a", 1001)))
		sameCounts(t, t, l.m)
	})
	t.Run("numbers", func(t *testing.T) {
		l := newLimited(t, model.Tenant{MaxTokens: 1, MaxSecrets: 1, MaxPolicies: 5, MaxOperations: 1, MaxClusters: 9, MaxDefinitions: 1})
		l.want("", newToken("t1"))
		l.want(problem.Quota, newToken("t2"), "maxTokens")
		l.want("", &pb.Command{Change: &pb.Command_DeleteToken{DeleteToken: &pb.DeleteToken{Id: "t1"}}})
		l.want("", newToken("t2"))
		l.want("", l.setting("secret", "a", profile.Secret{Value: model.NewSecret("x")}))
		l.want("", l.setting("secret", "a", profile.Secret{Value: model.NewSecret("y")}))
		l.want(problem.Quota, l.setting("secret", "b", profile.Secret{Value: model.NewSecret("x")}), "maxSecrets")
		l.want("", l.setting("program", "a", profile.Program{Steps: []profile.Step{{Script: "x"}}}))
		l.want("", l.setting("program", "a", profile.Program{Steps: []profile.Step{{Script: "y"}}}))
		l.want(problem.Quota, l.setting("program", "b", profile.Program{Steps: []profile.Step{{Script: "x"}}}), "1 programs")
		l.want(problem.Quota, definitions("ann", "", policies("p", 6)), "maxPolicies")
		l.want("", definitions("ann", "", policies("p", 3)))
		l.want("", definitions("ann", "", policies("p", 5)))
		l.want("", start("one", "00000001", "a", 1, "", ""))
		l.want(problem.Quota, start("one", "00000002", "b", 1, "", ""), "1 operations that run or wait and has 1", "maxOperations")
		sameCounts(t, t, l.m)
	})
	// An operation that supersedes another one needs no room: the other one ends for it.
	t.Run("another target", func(t *testing.T) {
		l := newLimited(t, model.Tenant{MaxOperations: 1})
		b := plan.NewBuilder([]string{"00000001-1000"}, []string{"db"})
		b.Task(model.Configure, 0, 0)
		g, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		upgrade := start("one", "00000001", "a", 1, "", "")
		upgrade.GetStartOperation().Operation = logtest.Operation(model.Operation{ID: "00000001-001", Tenant: "one", Cluster: "00000001",
			Type: model.OpUpgrade})
		upgrade.GetStartOperation().Graph = g.Encode()
		l.want("", upgrade)
		queued := func(id, supersedes string) *pb.Command {
			cl, _ := l.m.View().Cluster("one", "00000001")
			return &pb.Command{Actor: "ann", Change: &pb.Command_QueueOperation{QueueOperation: &pb.QueueOperation{
				Operation: logtest.Operation(model.Operation{ID: id, Tenant: "one", Cluster: cl.ID, Type: model.OpUpgrade}),
				Request:   logtest.Request(operation.Request{Type: model.OpUpgrade}), ClusterVersion: cl.Version, Supersedes: supersedes}}}
		}
		l.want(problem.Quota, queued("00000001-002", ""), "maxOperations")
		l.want("", queued("00000001-002", "00000001-001"))
		sameCounts(t, t, l.m)
	})
	// An entry from before there were limits has the effect that it had then.
	t.Run("old entries", func(t *testing.T) {
		l := newLimited(t, model.Tenant{MaxDefinitions: 1, MaxDocumentBytes: 10, MaxTokens: 1, MaxVersions: 1, MaxNodes: 1})
		l.bounds = 0
		l.want("", definitions("ann", "", document("services", "a", 100), document("services", "b", 100)))
		l.want("", definitions("ann", "", document("services", "a", 200)))
		l.want("", newToken("t1"))
		l.want("", newToken("t2"))
		l.want(problem.Quota, start("one", "00000002", "b", 2, "", ""))
		if n := len(l.m.View().Versions("one", "services", "a")); n != 2 {
			t.Errorf("%d versions are kept", n)
		}
		sameCounts(t, t, l.m)
	})
}

// A tenant without limits in its document has the defaults. There is an event when little room is left, and only then.
func TestDefaultLimitsAndWarnings(t *testing.T) {
	l := newLimited(t, model.Tenant{})
	for i := range int(model.LimitTokens.Default) {
		l.want("", newToken(fmt.Sprint("t", i)))
	}
	l.want(problem.Quota, newToken("more"), "has 1000")
	use := l.m.View().Use(model.Tenant{Name: "one"})
	i := slices.IndexFunc(use, func(u model.Use) bool { return u.Limit == model.LimitTokens.Name })
	if u := use[i]; u.Used == nil || *u.Used != 1000 || u.Max != 1000 || !u.Near {
		t.Errorf("%+v", u)
	}
	for _, u := range use {
		if u.Limit != model.LimitTokens.Name && u.Near {
			t.Errorf("little room is left for %+v", u)
		}
	}
	var found []string
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := l.m.Follow(ctx, "one", 1, func(list []model.Event) error {
		for _, e := range list {
			if e.Type == "tenant.limit" {
				found = append(found, e.Subject+" "+e.Status)
			}
		}
		cancel()
		return nil
	})
	if err != nil || !slices.Equal(found, []string{"maxTokens 801 of 1000"}) {
		t.Errorf("events %v, %v", found, err)
	}
}

// Recovery, rollback and deletion need no room: a tenant that has reached its limits can go below them.
func TestWhatNeedsNoRoom(t *testing.T) {
	l := newLimited(t, model.Tenant{MaxOperations: 1})
	l.want("", start("one", "00000001", "a", 1, "", ""))
	again := start("one", "00000002", "b", 1, "", "")
	op := model.Operation{ID: "00000002-001", Tenant: "one", Cluster: "00000002", Type: model.OpCreate, Actor: model.Self}
	again.GetStartOperation().Operation = logtest.Operation(op)
	l.want("", again)
	sameCounts(t, t, l.m)
}

// The oldest request ids of a tenant go when it has too many, and those of others stay.
func TestRememberedRequests(t *testing.T) {
	l := newLimited(t, model.Tenant{MaxRequestIDs: 3})
	put := func(tenant, request string) *pb.Command {
		c := asked(request, definitions("ann", "", document("services", "a", 0)))
		c.Tenant = tenant
		return c
	}
	l.want("", &pb.Command{Actor: "root", Change: &pb.Command_PutTenant{PutTenant: &pb.PutTenant{Tenant: logtest.Tenant(model.Tenant{
		Name: "two"})}}})
	l.want("", put("two", "r0"))
	for i := range 5 {
		l.want("", put("one", fmt.Sprint("r", i)))
	}
	remembered := func(tenant string) (out []string) {
		for i := range 5 {
			if _, ok := l.m.View().Request(model.Caller{Tenant: tenant, Actor: "ann", Request: fmt.Sprint("r", i)}); ok {
				out = append(out, fmt.Sprint("r", i))
			}
		}
		return out
	}
	if one, two := remembered("one"), remembered("two"); !slices.Equal(one, []string{"r2", "r3", "r4"}) || !slices.Equal(two, []string{"r0"}) {
		t.Errorf("tenant one: %v, tenant two: %v", one, two)
	}
	sameCounts(t, t, l.m)
}
