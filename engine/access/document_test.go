package access

import (
	"fmt"
	"strings"
	"testing"
)

// TestFaults checks that a faulty document is refused at its place, with the nearest name.
func TestFaults(t *testing.T) {
	known := Known{TypeUser: {"ann", "bob"}, TypeGroup: {"devs"}, TypeTenant: {"acme"}}
	for name, c := range map[string]struct{ text, line, want string }{
		"text":                  {"permit (principal, action, resource", "", "1:36"},
		"effect":                {"permitt (principal, action, resource);", "", "1:9"},
		"action":                {"permit (principal,\n action == Action::\"delte\",\n resource);", "2", `unknown action "delte": did you mean "delete"?`},
		"type":                  {"permit (principal, action,\n resource is Clusterr);", "2", `unknown type Clusterr: did you mean "Cluster"?`},
		"type in a condition":   {"permit (principal, action, resource)\nwhen {\n resource is Nodes };", "3", `did you mean "Node"?`},
		"attribute":             {"permit (principal, action, resource is Cluster)\nwhen { resource.onwer == principal.id };", "2", `resource.onwer: did you mean "owner"?`},
		"attribute of a who":    {"permit (principal, action, resource)\nwhen { principal.nam == \"x\" };", "2", `principal.nam: did you mean "name"?`},
		"context":               {"permit (principal, action, resource)\nwhen { context.nwo > datetime(\"2026-01-01\") };", "2", `context.nwo: did you mean "now"?`},
		"what is asked for":     {"permit (principal, action == Action::\"create\", resource)\nwhen { context.after.sise > 5 };", "2", `context.after.sise: did you mean "size"?`},
		"user":                  {"permit (principal == User::\"an\", action, resource);", "1", `there is no User "an"`},
		"user near":             {"permit (principal == User::\"annn\", action, resource);", "1", `there is no User "annn": did you mean "ann"?`},
		"group":                 {"permit (principal in Group::\"dev\", action, resource);", "1", `there is no Group "dev": did you mean "devs"?`},
		"cluster by its name":   {"permit (principal, action,\n resource == Cluster::\"shop\");", "2", `nothing has the id Cluster::"shop": write the cluster's id`},
		"node by its name":      {"permit (principal, action, resource == Node::\"web-1\");", "1", `write the node's id, such as "00000042-1000"`},
		"template by its name":  {"permit (principal, action, resource == Template::\"lamp\");", "1", `write the tenant and the name, "TENANT/NAME"`},
		"template of a tenant":  {"permit (principal, action, resource == Template::\"acmee/lamp\");", "1", `there is no tenant "acmee": did you mean "acme"?`},
		"tenant in a condition": {"permit (principal, action, resource)\nwhen { resource in Tenant::\"acmee\" };", "2", `there is no Tenant "acmee": did you mean "acme"?`},
		"annotation":            {"@mesage(\"no\")\npermit (principal, action, resource);", "1", `@mesage: did you mean "message"?`},
		"same id":               {"@id(\"a\") permit (principal, action, resource);\n@id(\"a\") permit (principal, action, resource);", "2", `choose another`},
		"action of no such":     {"permit (principal, action == Action::\"execute\", resource is Cluster);", "1", "unable to find an applicable action"},
		"attribute of another":  {"permit (principal, action, resource is Secret)\nwhen { resource.size > 5 };", "1", "attribute `size` on entity type `Secret` not found"},
		"optional":              {"permit (principal, action, resource is Cluster)\nwhen { resource.cost.lessThan(decimal(\"1.0\")) };", "1", "optional attribute `cost`"},
		"tag":                   {"permit (principal, action, resource is Cluster)\nwhen { resource.getTag(\"env\") == \"prod\" };", "1", "tag"},
		"kind of value":         {"permit (principal, action, resource is Cluster)\nwhen { resource.size == \"big\" };", "1", "the types Long and String are not compatible"},
		"another's attribute":   {"permit (principal, action, resource)\nwhen { User::\"ann\".name == \"x\" };", "2", "only principal, resource, context and context.after have attributes"},
		"another's groups":      {"permit (principal, action, resource)\nwhen { User::\"ann\" in Group::\"devs\" };", "2", "can be asked what they are in"},
		"depth":                 {"permit (principal, action, resource)\nwhen { " + strings.Repeat("(", 70) + "true" + strings.Repeat(")", 70) + " };", "2", "nested more than 64 deep"},
		"length":                {"permit (principal, action, resource)\nwhen { true" + strings.Repeat(" && principal.id == \"x\"", 500) + " };", "1", "at most 1000 are allowed"},
		"bytes":                 {strings.Repeat(" ", MaxDocument+1), "", "at most 65536 are allowed"},
		"number":                {strings.Repeat("permit (principal, action, resource);", MaxPolicies+1), "", "at most 500 are allowed"},
	} {
		_, faults := Parse(Document{Name: "doc", Text: c.text}, known)
		if len(faults) == 0 {
			t.Errorf("%s: accepted", name)
			continue
		}
		if got := faults.Error(); !strings.Contains(got, c.want) || c.line != "" && !strings.Contains(got, "policies/doc, line "+c.line+":") {
			t.Errorf("%s: got %s; want line %s, %s", name, got, c.line, c.want)
		}
	}
}

// TestNamesOfATenant refuses what a document of a tenant can never mean.
func TestNamesOfATenant(t *testing.T) {
	for id, want := range map[string]string{
		"acme/lamp":   "",
		"lamp":        `write the tenant and the name, "acme/NAME"`,
		"SYSTEM:lamp": `write the tenant and the name, "acme/NAME"`,
		"other/lamp":  `write the tenant and the name, "acme/NAME"`,
		"acme/":       `write the tenant and the name, "acme/NAME"`,
		"acme/a/b":    `write the tenant and the name, "acme/NAME"`,
	} {
		for _, text := range []string{
			"permit (principal, action, resource == Template::%q);",
			"permit (principal, action, resource is Template) when { resource == Template::%q };",
		} {
			_, faults := Parse(Document{Name: "doc", Tenant: "acme", Text: fmt.Sprintf(text, id)}, nil)
			if got := fmt.Sprint(faults); want == "" && len(faults) > 0 || !strings.Contains(got, want) {
				t.Errorf("%s with %s: got %s; want %s", text, id, got, want)
			}
		}
	}
}

// TestNames checks under which names policies appear in decisions.
func TestNames(t *testing.T) {
	p, faults := Parse(Document{Name: "doc", Text: `@id("doc") permit (principal, action, resource);
permit (principal, action, resource);
@id("three") @message("because") forbid (principal, action, resource);`}, nil)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	var got []string
	for _, r := range p.rules {
		got = append(got, r.id+" "+r.message)
	}
	if fmt.Sprintf("%q", got) != `["doc " "doc#2 " "doc/three because"]` {
		t.Errorf("%q", got)
	}
}

// TestSetLimits checks that names and the number of policies are checked across documents.
func TestSetLimits(t *testing.T) {
	many := func(name, tenant string, n int) *Policies {
		p, faults := Parse(Document{Name: name, Tenant: tenant, Text: "permit (principal == User::\"x\", action == Action::\"reveal\", resource is Secret);"}, nil)
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		for len(p.rules) < n {
			p.rules = append(p.rules, p.rules[0])
		}
		return p
	}
	if _, faults := NewSet([]*Policies{many("a", "acme", 300), many("a", "other", 300), many("b", "acme", 200)}, nil); len(faults) > 0 {
		t.Error(faults)
	}
	if _, faults := NewSet([]*Policies{many("a", "acme", 300), many("b", "acme", 201)}, nil); len(faults) != 1 ||
		!strings.Contains(faults.Error(), "policies/b: exceeds the limit of 500 policies") {
		t.Error(faults)
	}
	if _, faults := NewSet([]*Policies{many("a", "acme", 1), many("a", "acme", 1)}, nil); len(faults) != 1 {
		t.Error(faults)
	}
}

// FuzzParse checks that no text breaks the parser, and that what it accepts can be decided.
func FuzzParse(f *testing.F) {
	for _, d := range Builtins() {
		f.Add(d.Text)
	}
	for _, b := range bodies {
		f.Add("forbid (principal, action, resource) when { " + b.when + " };")
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, faults := Parse(Document{Name: "doc", Text: text}, Known{TypeUser: {"ann"}})
		if len(faults) > 0 {
			return
		}
		s, faults := NewSet([]*Policies{p}, nil)
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		for _, action := range []Action{List, Create, Label} {
			s.Decide(&Request{Principal: &Principal{Type: TypeUser, ID: "ann"}, Action: action, Resource: Resource{Ref: Ref{TypeCluster, "1"}}})
		}
	})
}
