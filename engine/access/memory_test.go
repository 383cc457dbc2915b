package access

import (
	"fmt"
	"testing"
)

// TestMemory checks that no caller gets the answer that a set remembers for another, and that the number
// of remembered callers is bounded.
func TestMemory(t *testing.T) {
	s := sets(t, nil, Document{Name: "own", Tenant: "acme", Text: `permit (principal, action == Action::"read", resource is Cluster)
when { resource.owner == principal.id };`})
	token := func(maker string) *Principal {
		return &Principal{Type: TypeToken, ID: "t", Tenant: "acme", Maker: who(maker, "acme", "viewer")}
	}
	ask := func(p *Principal, owner string) bool {
		return s.Decide(&Request{Principal: p, Action: Read, Resource: Resource{Ref: Ref{TypeCluster, "1"}, Tenant: "acme",
			Row: &Attributes{Values: map[string]any{"owner": owner}}}}).Allowed
	}
	for range 2 {
		for _, owner := range []string{"ann", "bob"} {
			for _, maker := range []string{"ann", "bob"} {
				if got := ask(token(maker), owner); got != (owner == maker) {
					t.Errorf("a token of %s reads a cluster of %s: %v", maker, owner, got)
				}
			}
		}
	}
	for i := range 3 * maxFilters {
		name := fmt.Sprint("user", i)
		if !ask(&Principal{Type: TypeUser, ID: name, Tenant: "acme"}, name) {
			t.Fatalf("%s may not read its cluster", name)
		}
		if n := len(s.memory.filters); n > maxFilters {
			t.Fatalf("%d filters are kept", n)
		}
	}
}
