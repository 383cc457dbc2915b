package access

import "strings"

// grantsOf returns the stored grants of a tenant, each with the rights that its granter has now.
func grantsOf(d Stored, tenant string) []Grant {
	var out []Grant
	granters := map[string]*Principal{}
	for _, g := range d.Grants(tenant) {
		p, ok := granters[g.Granter]
		if !ok {
			if who := d.Acting(tenant, g.Granter); who.Role != "" {
				p = OfCaller(who)
			}
			granters[g.Granter] = p
		}
		grant := Grant{ID: g.ID, Granter: p, Grantee: granteeOf(tenant, g.To), Resource: RefOf(g.Resource), Until: g.Until}
		for _, a := range g.Actions {
			grant.Actions = append(grant.Actions, Action(a))
		}
		out = append(out, grant)
	}
	return out
}

// granteeOf returns whom a grant is for.
func granteeOf(tenant, to string) Ref {
	r := RefOf(to)
	if r.Type == TypeGroup {
		r.ID = GroupID(tenant, r.ID)
	}
	return r
}

// RefOf parses TYPE/ID, in which the type is written in any case. The type of a text that names none is "".
func RefOf(text string) Ref {
	kind, id, _ := strings.Cut(text, "/")
	for _, t := range vocab().entities {
		if strings.EqualFold(t, kind) {
			return Ref{Type(t), id}
		}
	}
	return Ref{ID: id}
}

// ShortOf returns a reference as RefOf parses it, such as cluster/00000042.
func ShortOf(r Ref) string { return strings.ToLower(string(r.Type)) + "/" + r.ID }
