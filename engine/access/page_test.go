package access

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// pageCase is a request, and the answers before and after a document is in force.
type pageCase struct {
	who, role       string
	action          Action
	of              Type
	name            string
	tags            map[string]string
	label           string
	attributes      map[string]any
	after           After
	now             string
	before, allowed bool
}

// TestPage runs each policy of docs/policies.md: what it is about changes, and what it is not about stays.
func TestPage(t *testing.T) {
	t.Parallel()
	cluster := func(kv ...any) map[string]any {
		m := map[string]any{"owner": "bob"}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i].(string)] = kv[i+1]
		}
		return m
	}
	cases := map[string][]pageCase{
		"No cluster above 50 nodes": {
			{who: "bob", role: "user", action: Create, of: TypeCluster, attributes: cluster(), after: After{Size: 51}, before: true},
			{who: "bob", role: "user", action: Create, of: TypeCluster, attributes: cluster(), after: After{Size: 50}, before: true, allowed: true},
		},
		"More than 50 nodes need an approval": {
			{who: "bob", role: "user", action: Update, of: TypeCluster, attributes: cluster(), after: After{Size: 51}, before: true},
			{who: "bob", role: "user", action: Update, of: TypeCluster, attributes: cluster(), tags: map[string]string{"approved": ""}, after: After{Size: 51}, before: true, allowed: true},
		},
		"Only administrators approve": {
			{who: "bob", role: "user", action: Label, of: TypeCluster, attributes: cluster(), label: "approved", before: true},
			{who: "bob", role: "user", action: Label, of: TypeCluster, attributes: cluster(), label: "env", before: true, allowed: true},
			{who: "ann", role: "tenant-admin", action: Label, of: TypeCluster, attributes: cluster(), label: "approved", before: true, allowed: true},
		},
		"What is protected is not deleted": {
			{who: "ann", role: "tenant-admin", action: Delete, of: TypeCluster, attributes: cluster(), tags: map[string]string{"protected": ""}, before: true},
			{who: "ann", role: "tenant-admin", action: Delete, of: TypeCluster, attributes: cluster(), before: true, allowed: true},
		},
		"Production is changed by administrators only": {
			{who: "bob", role: "user", action: Operate, of: TypeCluster, attributes: cluster(), tags: map[string]string{"env": "prod"}, before: true},
			{who: "bob", role: "user", action: Operate, of: TypeCluster, attributes: cluster(), tags: map[string]string{"env": "dev"}, before: true, allowed: true},
			{who: "ann", role: "tenant-admin", action: Operate, of: TypeCluster, attributes: cluster(), tags: map[string]string{"env": "prod"}, before: true, allowed: true},
		},
		"Only approved images on one provider": {
			{who: "bob", role: "user", action: Create, of: TypeCluster, attributes: cluster(), after: After{Provider: "aws", ImageType: "any"}, before: true},
			{who: "bob", role: "user", action: Create, of: TypeCluster, attributes: cluster(), after: After{Provider: "aws", ImageType: "hardened-9"}, before: true, allowed: true},
			{who: "bob", role: "user", action: Create, of: TypeCluster, attributes: cluster(), after: After{Provider: "lab", ImageType: "any"}, before: true, allowed: true},
		},
		"No large machines": {
			{who: "bob", role: "user", action: Update, of: TypeCluster, attributes: cluster(), after: After{HardwareType: "xlarge"}, before: true},
			{who: "bob", role: "user", action: Update, of: TypeCluster, attributes: cluster(), after: After{HardwareType: "small"}, before: true, allowed: true},
		},
		"Test clusters must end": {
			{who: "bob", role: "user", action: Create, of: TypeCluster, attributes: cluster(), after: After{Name: "test-1"}, before: true},
			{who: "bob", role: "user", action: Create, of: TypeCluster, attributes: cluster(), after: After{Name: "test-1", Lease: 3_600_000}, before: true, allowed: true},
			{who: "bob", role: "user", action: Create, of: TypeCluster, attributes: cluster(), after: After{Name: "shop"}, before: true, allowed: true},
		},
		"No changes during the freeze": {
			{who: "ann", role: "tenant-admin", action: Update, of: TypeTemplate, now: "2026-12-24", before: true},
			{who: "ann", role: "tenant-admin", action: Update, of: TypeTemplate, now: "2027-01-02", before: true, allowed: true},
			{who: "ann", role: "tenant-admin", action: Operate, of: TypeCluster, attributes: cluster(), now: "2026-12-24", before: true, allowed: true},
		},
		"A template for some users only": {
			{who: "bob", role: "user", action: Create, of: TypeCluster, attributes: cluster(), after: After{Template: "hadoop"}, before: true},
			{who: "carol", role: "user", action: Create, of: TypeCluster, attributes: cluster("owner", "carol"), after: After{Template: "hadoop"}, before: true, allowed: true},
		},
		"Everybody sees all clusters of the tenant": {
			{who: "dan", role: "user", action: Read, of: TypeCluster, attributes: cluster(), allowed: true},
			{who: "dan", role: "user", action: Operate, of: TypeCluster, attributes: cluster()},
		},
		"Everybody sees the nodes too": {
			{who: "dan", role: "user", action: List, of: TypeNode, attributes: cluster(), allowed: true},
		},
		"Somebody on call operates every cluster": {
			{who: "oscar", role: "user", action: Operate, of: TypeCluster, attributes: cluster(), allowed: true},
			{who: "dan", role: "user", action: Operate, of: TypeCluster, attributes: cluster()},
			{who: "oscar", role: "user", action: Delete, of: TypeCluster, attributes: cluster()},
		},
		"Two people share clusters by name": {
			{who: "carol", role: "user", action: Update, of: TypeCluster, attributes: cluster("name", "team-1"), allowed: true},
			{who: "carol", role: "user", action: Update, of: TypeCluster, attributes: cluster("name", "mine")},
			{who: "dan", role: "user", action: Update, of: TypeCluster, attributes: cluster("name", "team-1")},
		},
		"A user writes templates": {
			{who: "bob", role: "user", action: Update, of: TypeTemplate, allowed: true},
			{who: "bob", role: "user", action: Delete, of: TypeTemplate},
			{who: "dan", role: "user", action: Update, of: TypeTemplate},
		},
		"Templates with a prefix have an owner": {
			{who: "ann", role: "tenant-admin", action: Update, of: TypeTemplate, name: "db-big", before: true},
			{who: "carol", role: "tenant-admin", action: Update, of: TypeTemplate, name: "db-big", before: true, allowed: true},
			{who: "ann", role: "tenant-admin", action: Update, of: TypeTemplate, name: "web", before: true, allowed: true},
		},
		"Providers change only through superadmins": {
			{who: "ann", role: "tenant-admin", action: Update, of: TypeProvider, before: true},
			{who: "sue", role: "superadmin", action: Update, of: TypeProvider, before: true, allowed: true},
		},
		"Readers do not see the names of secrets": {
			{who: "vic", role: "viewer", action: List, of: TypeSecret, before: true},
			{who: "bob", role: "user", action: List, of: TypeSecret, before: true, allowed: true},
		},
		"A program is started by one user only": {
			{who: "bob", role: "user", action: Execute, of: TypeProgram, name: "nightly-report", before: true},
			{who: "carol", role: "user", action: Execute, of: TypeProgram, name: "nightly-report", before: true, allowed: true},
			{who: "bob", role: "user", action: Execute, of: TypeProgram, name: "other", before: true, allowed: true},
		},
		"Users start no runs": {
			{who: "bob", role: "user", action: Create, of: TypeRun, attributes: cluster(), before: true},
			{who: "ann", role: "tenant-admin", action: Create, of: TypeRun, attributes: cluster(), before: true, allowed: true},
		},
		"A failed cluster is left for its investigation": {
			{who: "bob", role: "user", action: Delete, of: TypeCluster, attributes: cluster("status", "failed"), before: true},
			{who: "bob", role: "user", action: Delete, of: TypeCluster, attributes: cluster("status", "active"), before: true, allowed: true},
		},
		"One service is not for everybody": {
			{who: "bob", role: "user", action: Update, of: TypeCluster, attributes: cluster(), after: After{Services: []string{"web", "oracle"}}, before: true},
			{who: "bob", role: "user", action: Update, of: TypeCluster, attributes: cluster(), after: After{Services: []string{"web"}}, before: true, allowed: true},
		},
		"Nobody issues tokens for a while": {
			{who: "ann", role: "tenant-admin", action: Create, of: TypeToken, before: true},
			{who: "ann", role: "tenant-admin", action: Delete, of: TypeToken, before: true, allowed: true},
		},
	}
	page, err := os.ReadFile("../../docs/policies.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Examples\n")
	found := regexp.MustCompile("(?s)### ([^\n]+)\n\n```cedar\n(.*?)```").FindAllStringSubmatch(section, -1)
	if len(found) < 20 {
		t.Errorf("the page has only %d policies", len(found))
	}
	none, _ := NewSet(nil, nil)
	known := Known{TypeUser: {"oscar", "bob", "carol"}, TypeGroup: BuiltinNames, TypeTenant: {"acme"}}
	for _, m := range found {
		title, text := m[1], m[2]
		p, faults := Parse(Document{Name: "doc", Tenant: "acme", Text: text}, known)
		if len(faults) > 0 {
			t.Errorf("%s: %v", title, faults)
			continue
		}
		set, faults := NewSet([]*Policies{p}, nil)
		if len(faults) > 0 {
			t.Errorf("%s: %v", title, faults)
			continue
		}
		changes := false
		for _, q := range cases[title] {
			r := q.request(t)
			if got := none.Decide(r).Allowed; got != q.before {
				t.Errorf("%s: %s %s %s without the policy: %t", title, q.who, q.action, q.of, got)
			}
			d := set.Decide(r)
			if d.Allowed != q.allowed {
				t.Errorf("%s: %s %s %s with the policy: %+v", title, q.who, q.action, q.of, d)
			}
			changes = changes || q.before != q.allowed
		}
		if !changes {
			t.Errorf("%s: no pageCase that the policy answers otherwise", title)
		}
		delete(cases, title)
	}
	for title := range cases {
		t.Errorf("the page has no policy %q", title)
	}
}

func (q *pageCase) request(t *testing.T) *Request {
	t.Helper()
	values := map[string]any{"name": q.name}
	for k, v := range q.attributes {
		values[k] = v
	}
	r := &Request{
		Principal: who(q.who, "acme", q.role), Action: q.action,
		Resource: Resource{Ref: Ref{q.of, "x"}, Tenant: "acme", Row: &Attributes{Values: values, Tags: q.tags}},
		Context:  Context{Now: 1_780_000_000_000, Method: "token", After: q.after, Label: q.label},
	}
	if q.now != "" {
		at, err := time.Parse(time.DateOnly, q.now)
		if err != nil {
			t.Fatal(err)
		}
		r.Context.Now = at.UnixMilli()
	}
	return r
}
