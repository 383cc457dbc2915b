package access

import (
	"fmt"

	"github.com/coopr/coopr/engine/model"
)

// Grant shares a resource. It is data, not a policy.
type Grant struct {
	ID string
	// Granter is the principal who shares. It is nil if that principal is gone, and then the grant
	// does not count.
	Granter *Principal
	// Grantee is a user, an account or a group.
	Grantee Ref
	Actions []Action
	// Resource is what is shared, with all that is in it.
	Resource Ref
	// Until is in Unix milliseconds; 0 has no end.
	Until int64
}

// Set is all policies and grants of a mesh.
type Set struct {
	rules  map[string]*rule // by the tenant and the id
	cuts   map[cut][]*rule
	grants map[Ref][]*Grant // by the resource
	memory memory
	// fault is why the stored documents could not be read.
	fault error
}

func emptySet() *Set {
	return &Set{rules: map[string]*rule{}, cuts: map[cut][]*rule{}, grants: map[Ref][]*Grant{}}
}

// cut selects the policies that can affect a decision: those of the mesh or of one tenant, about
// one action and one type of resource.
type cut struct {
	tenant string
	action Action
	of     Type
}

// NewSet returns a set of policies and grants, or what is wrong with their number and names. The
// built-in policies are part of it, unless a document of the mesh with the same name replaces them.
func NewSet(docs []*Policies, grants []Grant) (*Set, model.Faults) {
	s := emptySet()
	var faults model.Faults
	add := func(d Document, message string) {
		faults = append(faults, &model.Fault{Subject: "policies/" + d.Name, Message: message})
	}
	count := map[string]int{}
	seen := map[Document]bool{}
	for _, d := range docs {
		name := Document{Name: d.of.Name, Tenant: d.of.Tenant}
		if seen[name] {
			add(name, "is there twice")
			continue
		}
		seen[name] = true
		if count[name.Tenant] += len(d.rules); count[name.Tenant] > MaxPolicies {
			add(name, fmt.Sprintf("exceeds the limit of %d policies: delete some", MaxPolicies))
			continue
		}
		s.add(d)
	}
	if len(faults) > 0 {
		return nil, faults
	}
	for _, b := range builtins() {
		if !seen[Document{Name: b.of.Name}] {
			s.add(b)
		}
	}
	for i := range grants {
		g := &grants[i]
		s.grants[g.Resource] = append(s.grants[g.Resource], g)
	}
	return s, nil
}

func (s *Set) add(p *Policies) {
	for _, r := range p.rules {
		s.rules[r.key()] = r
		for a, x := range vocab().Actions {
			for _, t := range x.AppliesTo.Resources {
				if r.speaksOf(Action(a.ID), Type(t)) && (r.forbid || r.tenant == "" || !reserved(Action(a.ID), Type(t))) {
					at := cut{r.tenant, Action(a.ID), Type(t)}
					s.cuts[at] = append(s.cuts[at], r)
				}
			}
		}
	}
}

// reserved reports whether only the mesh can permit an action: a tenant neither sets its own limits nor deletes itself,
// nor does it let anybody run programs on control hosts.
func reserved(a Action, t Type) bool {
	return a == HostExec || t == TypeTenant && (a == Create || a == Update || a == Delete || a == GrantIt)
}

// key is the id by which Cedar knows a rule.
func (r *rule) key() string { return r.tenant + ":" + r.id }
