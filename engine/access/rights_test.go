package access

import "testing"

// TestHostExec checks the rights that no route has: only superadmin may use control hosts, and no
// built-in policy reveals secrets.
func TestHostExec(t *testing.T) {
	s := sets(t, nil)
	for _, name := range BuiltinNames {
		p := who("ann", "acme", name)
		for _, tenant := range []string{"acme", "other"} {
			if got := s.Decide(&Request{Principal: p, Action: HostExec, Resource: Resource{Ref: Ref{TypeTenant, tenant}, Tenant: tenant}}); got.Allowed != (name == "superadmin") {
				t.Errorf("host:exec for %s: %+v", name, got)
			}
			if got := s.Decide(&Request{Principal: p, Action: Reveal, Resource: Resource{Ref: Ref{TypeSecret, "s"}, Tenant: tenant}}); got.Allowed {
				t.Errorf("%s reveals secrets", name)
			}
		}
	}
}
