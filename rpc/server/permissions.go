package server

import (
	"fmt"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/access"
	"github.com/coopr/coopr/rpc/server/rest"
)

// Permissions returns the page docs/permissions.md, generated from the routes and the built-in policies.
func Permissions() ([]byte, error) {
	s, err := withRoutes(Config{})
	if err != nil {
		return nil, err
	}
	routes := map[rest.Right][]string{}
	var rights []rest.Right
	for _, item := range s.OpenAPI().Paths {
		for _, op := range operations(item) {
			r, ok := rest.RightOf(op)
			if !ok || r.Action == "" {
				continue
			}
			if routes[r] == nil {
				rights = append(rights, r)
			}
			routes[r] = append(routes[r], op)
		}
	}
	slices.SortFunc(rights, func(a, b rest.Right) int { return strings.Compare(rightName(a), rightName(b)) })
	set, faults := access.NewSet(nil, nil)
	if len(faults) > 0 {
		return nil, faults
	}
	var b strings.Builder
	b.WriteString(permissionsHead)
	groups := access.BuiltinNames
	fmt.Fprintf(&b, "| right | routes | %s |\n|---|---|%s\n", strings.Join(groups, " | "), strings.Repeat("---|", len(groups)))
	for _, r := range rights {
		slices.Sort(routes[r])
		fmt.Fprintf(&b, "| %s | %s |", rightName(r), strings.Join(routes[r], ", "))
		for _, group := range access.BuiltinNames {
			fmt.Fprintf(&b, " %s |", reach(set, r, group))
		}
		b.WriteString("\n")
	}
	return []byte(b.String()), nil
}

const permissionsHead = `# Permissions

What each route of the API needs, and which group of the built-in [policies](policies.md) has it. This page is generated.
The roles of tokens are groups: read is viewer, user is user, admin is tenant-admin, superadmin is superadmin.

**own**: only what belongs to the caller; **tenant**: all of the caller's tenant; **all**: all tenants; **yes**: what
belongs to the mesh.

`

// rightName returns a right as the page names it.
func rightName(r rest.Right) string {
	name := string(r.On) + " " + string(r.Action)
	if r.Mesh && r.On != access.TypeMesh && r.On != access.TypeAgent {
		name = "mesh " + name
	}
	return name
}

// reach returns how far a right of a group reaches.
func reach(set *access.Set, r rest.Right, group string) string {
	may := func(tenant, owner string) bool {
		x := access.Resource{
			Ref: access.Ref{Type: r.On, ID: "x"}, Tenant: tenant,
			Row: &access.Attributes{Values: map[string]any{"owner": owner}},
		}
		p := &access.Principal{Type: access.TypeUser, ID: "ann", Name: "ann", Tenant: "acme", Groups: []string{group}}
		return set.Decide(&access.Request{Principal: p, Action: r.Action, Resource: x}).Allowed
	}
	switch {
	case r.Mesh:
		if may("", "") {
			return "yes"
		}
	case may("other", "bob"):
		return "all"
	case may("acme", "bob"):
		return "tenant"
	case may("acme", "ann"):
		return "own"
	}
	return "–"
}
