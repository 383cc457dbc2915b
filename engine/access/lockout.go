package access

// Administrators returns the principals who may change the policies of a tenant, or with "" those of
// the mesh. A change of rights after which none remains locks out all principals except root.
func (s *Set) Administrators(tenant string, of []*Principal, c Context) []*Principal {
	var out []*Principal
	for _, p := range of {
		if !p.Root && s.mayRepair(tenant, p, c) {
			out = append(out, p)
		}
	}
	return out
}

// mayRepair reports whether a principal could undo a change of policies: change one and delete one.
func (s *Set) mayRepair(tenant string, p *Principal, c Context) bool {
	for _, a := range []Action{Read, Update, Delete} {
		r := Request{Principal: p, Action: a, Resource: Resource{Ref: Ref{TypePolicy, tenant + "/any"}, Tenant: tenant}, Context: c}
		if !s.Decide(&r).Allowed {
			return false
		}
	}
	return true
}

// LocksOut reports whether no principal may change the policies of a tenant (with "": those of the
// mesh) under next, although one may do so now.
func (s *Set) LocksOut(next *Set, tenant string, of []*Principal, c Context) bool {
	return len(s.Administrators(tenant, of, c)) > 0 && len(next.Administrators(tenant, of, c)) == 0
}
