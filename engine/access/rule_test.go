package access

import (
	"fmt"
	"slices"
	"testing"
)

func sets(t *testing.T, grants []Grant, docs ...Document) *Set {
	t.Helper()
	w := &world{docs: docs, grants: grants}
	return w.set(t)
}

func who(id, tenant string, groups ...string) *Principal {
	return &Principal{Type: TypeUser, ID: id, Name: id, Tenant: tenant, Groups: groups}
}

func cluster(id, tenant, owner string, size int64, labels map[string]string) Resource {
	return Resource{Ref: Ref{TypeCluster, id}, Tenant: tenant, Row: &Attributes{Values: map[string]any{"owner": owner, "size": size}, Tags: labels}}
}

const guard = `
@id("size")
@message("more than 50 nodes need the label approved")
forbid (principal, action in [Action::"create", Action::"update"], resource is Cluster)
when { context.after.size > 50 } unless { resource.hasTag("approved") };

@id("protected")
@message("it is protected")
forbid (principal, action == Action::"delete", resource is Cluster) when { resource.hasTag("protected") };
`

const fails = `forbid (principal, action == Action::"read", resource is Cluster) when { resource.size * 9223372036854775807 < 0 };`

// TestRule checks each line of the rule, and the explanation of each decision.
func TestRule(t *testing.T) {
	small, large := After{Size: 10}, After{Size: 51}
	admin, ann, ops := who("adm", "acme", "tenant-admin"), who("ann", "acme", "user"), who("ops", "main", "superadmin")
	root := &Principal{Type: TypeUser, ID: "root", Root: true}
	token := &Principal{Type: TypeToken, ID: "t", Tenant: "acme", Groups: []string{"viewer"}, Maker: ann}
	strong := &Principal{Type: TypeToken, ID: "t", Tenant: "acme", Groups: []string{"tenant-admin"}, Maker: ann}
	grants := []Grant{
		{ID: "g1", Granter: ann, Grantee: Ref{TypeUser, "bob"}, Actions: []Action{Read, Delete}, Resource: Ref{TypeCluster, "c"}, Until: 100},
		{ID: "g2", Granter: who("cid", "acme", "user"), Grantee: Ref{TypeUser, "dan"}, Actions: []Action{Read}, Resource: Ref{TypeCluster, "c"}},
		{ID: "g3", Granter: who("bob", "acme", "user"), Grantee: Ref{TypeUser, "eve"}, Actions: []Action{Read}, Resource: Ref{TypeCluster, "c"}},
		{ID: "g4", Grantee: Ref{TypeUser, "fay"}, Actions: []Action{Read}, Resource: Ref{TypeCluster, "c"}},
	}
	own := cluster("c", "acme", "ann", 10, nil)
	node := Resource{Ref: Ref{TypeNode, "n"}, Tenant: "acme", In: []Ref{{TypeCluster, "c"}}, Row: &Attributes{Values: map[string]any{"owner": "ann"}}}
	protected := cluster("c", "acme", "ann", 10, map[string]string{"protected": "yes"})
	theirs := Document{Name: "guard", Tenant: "acme", Text: guard}
	ours := Document{Name: "guard", Text: guard}
	for name, c := range map[string]struct {
		docs    []Document
		request Request
		want    string
	}{
		"nothing allows it":              {nil, Request{ann, Admin, Resource{Ref: TheMesh}, Context{}}, "false nothing allows it [] []"},
		"own":                            {nil, Request{ann, Delete, own, Context{}}, "true a permit [user/user-owns] []"},
		"another's":                      {nil, Request{who("bob", "acme", "user"), Operate, own, Context{}}, "false nothing allows it [] []"},
		"another tenant's":               {nil, Request{who("ann", "other", "user"), Read, own, Context{}}, "false nothing allows it [] []"},
		"guarded":                        {[]Document{theirs}, Request{ann, Create, own, Context{After: large}}, "false a forbid of the tenant [guard/size: more than 50 nodes need the label approved] []"},
		"small enough":                   {[]Document{theirs}, Request{ann, Create, own, Context{After: small}}, "true a permit [user/user-owns] []"},
		"approved":                       {[]Document{theirs}, Request{ann, Create, cluster("c", "acme", "ann", 0, map[string]string{"approved": ""}), Context{After: large}}, "true a permit [user/user-owns] []"},
		"guarded by the mesh":            {[]Document{ours}, Request{ann, Delete, protected, Context{}}, "false a forbid of the mesh [guard/protected: it is protected] []"},
		"mesh and tenant":                {[]Document{ours, theirs}, Request{ann, Delete, protected, Context{}}, "false a forbid of the mesh [guard/protected: it is protected] []"},
		"operators above tenants":        {[]Document{theirs}, Request{ops, Delete, protected, Context{}}, "true a permit [superadmin] []"},
		"operators below the mesh":       {[]Document{ours}, Request{ops, Delete, protected, Context{}}, "false a forbid of the mesh [guard/protected: it is protected] []"},
		"admins below tenants":           {[]Document{theirs}, Request{admin, Delete, protected, Context{}}, "false a forbid of the tenant [guard/protected: it is protected] []"},
		"root above all":                 {[]Document{ours, theirs}, Request{root, Reveal, Resource{Ref: Ref{TypeSecret, "s"}}, Context{}}, "true root [] []"},
		"another tenant's policies":      {[]Document{{Name: "all", Tenant: "other", Text: "permit (principal, action, resource);"}}, Request{who("x", "acme"), Read, own, Context{}}, "false nothing allows it [] []"},
		"another tenant's forbid":        {[]Document{{Name: "all", Tenant: "other", Text: "forbid (principal, action, resource);"}}, Request{ann, Read, own, Context{}}, "true a permit [user/user-owns] []"},
		"a tenant's permit":              {[]Document{{Name: "all", Tenant: "acme", Text: "permit (principal, action, resource);"}}, Request{who("x", "acme"), Read, own, Context{}}, "true a permit [all] []"},
		"a tenant's permit elsewhere":    {[]Document{{Name: "all", Tenant: "acme", Text: "permit (principal, action, resource);"}}, Request{who("x", "acme"), Read, Resource{Ref: TheMesh}, Context{}}, "false nothing allows it [] []"},
		"a forbid that fails":            {[]Document{{Name: "f", Text: fails}}, Request{ann, Read, own, Context{}}, "false a forbid of the mesh [] [] f fails"},
		"a tenant's forbid that fails":   {[]Document{{Name: "f", Tenant: "acme", Text: fails}}, Request{ann, Read, own, Context{}}, "false a forbid of the tenant [] [] f fails"},
		"a permit that fails":            {[]Document{{Name: "f", Text: "permit" + fails[6:]}}, Request{who("x", "acme"), Read, own, Context{}}, "false nothing allows it [] [] f fails"},
		"one permit fails, one allows":   {[]Document{{Name: "f", Text: "permit" + fails[6:]}}, Request{ann, Read, own, Context{}}, "true a permit [user/user-owns] [] f fails"},
		"shared":                         {nil, Request{who("bob", "acme", "user"), Read, own, Context{Now: 99}}, "true a grant [] [g1]"},
		"shared with its nodes":          {nil, Request{who("bob", "acme", "user"), Read, node, Context{}}, "true a grant [] [g1]"},
		"shared for another action":      {nil, Request{who("bob", "acme", "user"), Operate, own, Context{}}, "false nothing allows it [] []"},
		"shared until now":               {nil, Request{who("bob", "acme", "user"), Read, own, Context{Now: 100}}, "false nothing allows it [] []"},
		"shared by one who may not":      {nil, Request{who("dan", "acme"), Read, own, Context{}}, "false nothing allows it [] []"},
		"shared on":                      {nil, Request{who("eve", "acme"), Read, own, Context{}}, "false nothing allows it [] []"},
		"shared by one who is gone":      {nil, Request{who("fay", "acme"), Read, own, Context{}}, "false nothing allows it [] []"},
		"shared across tenants":          {nil, Request{who("bob", "other", "user"), Read, own, Context{}}, "false nothing allows it [] []"},
		"shared, but forbidden":          {[]Document{theirs}, Request{who("bob", "acme", "user"), Delete, protected, Context{}}, "false a forbid of the tenant [guard/protected: it is protected] []"},
		"shared, forbidden to the other": {[]Document{{Name: "no", Tenant: "acme", Text: `forbid (principal == User::"ann", action, resource);`}}, Request{who("bob", "acme", "user"), Read, own, Context{}}, "false nothing allows it [] []"},
		"a token of less":                {nil, Request{token, Delete, own, Context{}}, "false nothing allows it [] []"},
		"a token of as much":             {nil, Request{token, Read, own, Context{}}, "true a permit [viewer] []"},
		"a token of more":                {nil, Request{strong, Delete, cluster("d", "acme", "bob", 1, nil), Context{}}, "false nothing allows it [] [] (maker)"},
		"a token of a grantee":           {nil, Request{&Principal{Type: TypeToken, ID: "t", Tenant: "acme", Groups: []string{"user"}, Maker: who("bob", "acme", "user")}, Read, own, Context{}}, "false nothing allows it [] []"},
		"a replaced policy":              {[]Document{{Name: "user", Text: `permit (principal in Group::"user", action == Action::"read", resource);`}}, Request{ann, Delete, own, Context{}}, "false nothing allows it [] []"},
		"a tenant's namesake":            {[]Document{{Name: "user", Tenant: "acme", Text: `permit (principal in Group::"user", action == Action::"read", resource);`}}, Request{ann, Delete, own, Context{}}, "true a permit [user/user-owns] []"},
	} {
		d := sets(t, grants, c.docs...).Decide(&c.request)
		var by []string
		for _, p := range d.Policies {
			if p.Message != "" {
				p.Policy += ": " + p.Message
			}
			by = append(by, p.Policy)
		}
		got := fmt.Sprintf("%t %s %s %s", d.Allowed, d.Because, by, d.Grants)
		for _, f := range d.Faults {
			got += " " + f.Policy + " fails"
		}
		if d.Maker {
			got += " (maker)"
		}
		if got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

// TestLockOut checks that a change that leaves no administrator is noticed.
func TestLockOut(t *testing.T) {
	admin, ops := who("adm", "acme", "tenant-admin"), who("ops", "main", "superadmin")
	all := []*Principal{admin, ops, who("ann", "acme", "user"), {Type: TypeUser, ID: "root", Root: true}}
	now := sets(t, nil)
	for name, c := range map[string]struct {
		doc    Document
		tenant string
		want   bool
	}{
		"a tenant's forbid":             {Document{Name: "no", Tenant: "acme", Text: "forbid (principal, action, resource);"}, "acme", false}, // operators remain
		"the mesh's forbid":             {Document{Name: "no", Text: "forbid (principal, action, resource);"}, "acme", true},
		"the mesh's forbid on the mesh": {Document{Name: "no", Text: `forbid (principal, action == Action::"delete", resource is Policy);`}, "", true},
		"a forbid of the tenant's own":  {Document{Name: "no", Text: `forbid (principal, action, resource) unless { principal in Group::"superadmin" };`}, "", false},
		"an innocent one":               {Document{Name: "no", Text: guard}, "", false},
	} {
		if got := now.LocksOut(sets(t, nil, c.doc), c.tenant, all, Context{}); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	if got := now.Administrators("acme", all, Context{}); !slices.Equal(got, []*Principal{admin, ops}) {
		t.Errorf("%+v", got)
	}
	if got := now.Administrators("", all, Context{}); !slices.Equal(got, []*Principal{ops}) {
		t.Errorf("%+v", got)
	}
}
