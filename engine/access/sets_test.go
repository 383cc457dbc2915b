package access

import (
	"encoding/json"
	"testing"

	"github.com/coopr/coopr/engine/model"
)

// stored is a state that counts how often its documents are read.
type stored struct {
	edition int
	docs    map[string][]model.StoredDefinition // by tenant
	reads   int
}

func (s *stored) Edition(string, model.Kind) any { return s.edition }

func (s *stored) Definitions(tenant string, _ model.Kind) []model.StoredDefinition {
	s.reads++
	return s.docs[tenant]
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
