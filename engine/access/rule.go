package access

import (
	"slices"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/ast"
	"github.com/cedar-policy/cedar-go/types"
	tree "github.com/cedar-policy/cedar-go/x/exp/ast"
)

// rule is one policy, with its scope apart from its conditions. Scopes are answered by comparing
// names, conditions by Cedar.
type rule struct {
	// id is the name of the document, with that of the policy if it has several.
	id, document, tenant, message string
	forbid                        bool
	line                          int
	tree                          *tree.Policy
	// bare has the conditions without the scope. It is nil if there are none.
	bare  *cedar.Policy
	reads reads
	// whole is set if the rule asks nothing of a resource but its type.
	whole bool
}

func (r *rule) compile(what reads) {
	r.reads = what
	switch r.tree.Resource.(type) {
	case tree.ScopeTypeAll, tree.ScopeTypeIs:
		r.whole = true
	}
	if len(r.tree.Conditions) > 0 {
		bare := *r.tree
		bare.Principal, bare.Action, bare.Resource = tree.ScopeTypeAll{}, tree.ScopeTypeAll{}, tree.ScopeTypeAll{}
		r.bare = cedar.NewPolicyFromAST((*ast.Policy)(&bare))
	}
}

// speaksOf reports whether a rule can apply to an action on a type of resource.
func (r *rule) speaksOf(a Action, t Type) bool {
	switch s := r.tree.Action.(type) {
	case tree.ScopeTypeEq:
		if s.Entity != actionUID(a) {
			return false
		}
	case tree.ScopeTypeIn:
		if s.Entity != actionUID(a) {
			return false
		}
	case tree.ScopeTypeInSet:
		if !slices.Contains(s.Entities, actionUID(a)) {
			return false
		}
	}
	switch s := r.tree.Resource.(type) {
	case tree.ScopeTypeEq:
		return s.Entity.Type == types.EntityType(t)
	case tree.ScopeTypeIs:
		return s.Type == types.EntityType(t)
	case tree.ScopeTypeIsIn:
		return s.Type == types.EntityType(t)
	}
	return true
}

// fits reports whether a principal is in the scope.
func (r *rule) fits(p *Principal) bool {
	switch s := r.tree.Principal.(type) {
	case tree.ScopeTypeEq:
		return s.Entity == p.uid()
	case tree.ScopeTypeIn:
		return p.within(s.Entity)
	case tree.ScopeTypeIs:
		return s.Type == types.EntityType(p.Type)
	case tree.ScopeTypeIsIn:
		return s.Type == types.EntityType(p.Type) && p.within(s.Entity)
	}
	return true
}

// covers reports whether a resource is in the scope. Its type is known to be.
func (r *rule) covers(x *Resource) bool {
	if r.whole {
		return true
	}
	switch s := r.tree.Resource.(type) {
	case tree.ScopeTypeEq:
		return s.Entity == uid(x.Ref)
	case tree.ScopeTypeIn:
		return x.within(s.Entity)
	case tree.ScopeTypeIsIn:
		return x.within(s.Entity)
	}
	return true
}

func (p *Principal) uid() types.EntityUID { return uid(Ref{p.Type, p.ID}) }

func (p *Principal) within(e types.EntityUID) bool {
	switch Type(e.Type) {
	case TypeGroup:
		return p.in(string(e.ID))
	case TypeTenant:
		return p.Tenant != "" && string(e.ID) == p.Tenant
	}
	return e == p.uid()
}

func (x *Resource) within(e types.EntityUID) bool {
	if e == uid(x.Ref) {
		return true
	}
	switch Type(e.Type) {
	case TypeTenant:
		return x.Tenant != "" && x.Type != TypeTenant && string(e.ID) == x.Tenant
	case TypeMesh:
		return x.Type == TypeAgent && e == meshUID
	}
	for _, r := range x.In {
		if e == uid(r) {
			return true
		}
	}
	return false
}

// TheMesh is the resource for the mesh as a whole.
var TheMesh = Ref{TypeMesh, "mesh"}

var meshUID = uid(TheMesh)
