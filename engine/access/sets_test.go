package access

import (
	"encoding/json"
	"testing"

	"github.com/coopr/coopr/engine/model"
)

// stored is a state that counts how often its documents are read.
type stored struct {
	grants  []model.Grant
	edition int
	docs    map[string][]model.StoredDefinition // by tenant
	reads   int
}

func (s *stored) Edition(string, model.Kind) any { return s.edition }

func (s *stored) Definitions(tenant string, _ model.Kind) []model.StoredDefinition {
	s.reads++
	return s.docs[tenant]
}

func (s *stored) Grants(string) []model.Grant { return s.grants }

func (s *stored) GrantEdition(string) any { return s.edition }

// Acting returns a user who has the role user unless the name is "gone".
func (s *stored) Acting(tenant, actor string) model.Caller {
	who := model.Caller{Tenant: tenant, Actor: actor, Role: model.RoleUser}
	if actor == "gone" {
		who.Role = ""
	}
	return who
}

func (s *stored) put(t *testing.T, tenant, name, text string) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"name": name, "text": text})
	if err != nil {
		t.Fatal(err)
	}
	s.edition++
	s.docs[tenant] = []model.StoredDefinition{{Kind: model.KindPolicies, Name: name, Version: s.edition, Body: body}}
}

// TestSetsFollowTheState reads the documents of each state once, and makes a set only of new documents.
func TestSetsFollowTheState(t *testing.T) {
	var sets Sets
	s := &stored{edition: 7, docs: map[string][]model.StoredDefinition{}}
	cluster := Resource{Ref: Ref{TypeCluster, "1"}, Tenant: "one"}
	reads := func(set *Set) bool {
		t.Helper()
		if set.fault != nil {
			t.Fatal(set.fault)
		}
		p := OfCaller(model.Caller{Tenant: "one", Actor: "eve", Role: model.RoleRead})
		return set.Decide(&Request{Principal: p, Action: Read, Resource: cluster}).Allowed
	}
	first := sets.Of(s, "one")
	n := s.reads
	if sets.Of(s, "one") != first || s.reads != n {
		t.Errorf("the documents of one state were read %d times, want %d", s.reads, n)
	}
	s.edition++
	if sets.Of(s, "one") != first || s.reads == n {
		t.Error("a newer state with the same documents has another set, or was not read")
	}
	if !reads(first) {
		t.Fatal("the built-in policies do not permit to read")
	}
	for _, tenant := range []string{"", "one"} {
		s.put(t, tenant, "closed", `@id("closed") forbid (principal, action == Action::"read", resource is Cluster);`)
		if reads(sets.Of(s, "one")) {
			t.Errorf("a document of tenant %q is not in force", tenant)
		}
		s.edition++
		delete(s.docs, tenant)
		if !reads(sets.Of(s, "one")) {
			t.Errorf("a document of tenant %q that is gone is in force", tenant)
		}
	}
}

// A set has the grants of its tenant, with the rights that their granters have.
func TestSetsHaveGrants(t *testing.T) {
	s := &stored{edition: 1, docs: map[string][]model.StoredDefinition{}, grants: []model.Grant{
		{ID: "g1", Granter: "ann", To: "user/bob", Actions: []string{"read"}, Resource: "cluster/c"},
		{ID: "g2", Granter: "ann", To: "group/ops", Actions: []string{"read"}, Resource: "Cluster/c"},
		{ID: "g3", Granter: "gone", To: "user/eve", Actions: []string{"read"}, Resource: "cluster/c"},
		{ID: "g4", Granter: "zed", To: "user/dan", Actions: []string{"read"}, Resource: "cluster/c"}, // not the owner
	}}
	var sets Sets
	may := func(actor string, groups ...string) bool {
		r := Request{Principal: OfCaller(model.Caller{Tenant: "acme", Actor: actor, Role: model.RoleUser, Groups: groups}), Action: Read}
		r.Resource = Resource{Ref: Ref{TypeCluster, "c"}, Tenant: "acme", Row: &Attributes{Values: map[string]any{"owner": "ann"}}}
		return sets.Of(s, "acme").Decide(&r).Allowed
	}
	if !may("ann") || !may("bob") || !may("cid", "acme/ops") || may("cid") || may("eve") || may("dan") {
		t.Error("the grants do not count as they should")
	}
	first := sets.Of(s, "acme")
	s.edition = 2
	if sets.Of(s, "acme") != first {
		t.Error("a set is made anew although no grant has changed")
	}
	s.edition, s.grants = 3, s.grants[1:]
	if may("bob") || !may("cid", "acme/ops") {
		t.Error("a removed grant counts")
	}
	if sets.Of(s, "other").Decide(&Request{Principal: OfCaller(model.Caller{}), Action: Read}).Allowed {
		t.Error("nobody may read nothing")
	}
}
