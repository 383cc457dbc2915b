package access

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	"pgregory.net/rapid"
)

// oracle applies the rule literally: each policy is parsed from its text and asked by Cedar itself,
// with its scope, and with all that is known of principal and resource.
type oracle struct {
	mesh, tenants map[string][]*cedar.Policy // documents by name; those of tenants by "TENANT:"
	grants        []Grant
}

func newOracle(docs []Document, grants []Grant) *oracle {
	o := &oracle{mesh: map[string][]*cedar.Policy{}, tenants: map[string][]*cedar.Policy{}, grants: grants}
	for _, d := range append(Builtins(), docs...) {
		list, err := cedar.NewPolicyListFromBytes(d.Name, []byte(d.Text))
		if err != nil {
			panic(err)
		}
		if d.Tenant == "" {
			o.mesh[d.Name] = list
		} else {
			o.tenants[d.Tenant] = append(o.tenants[d.Tenant], list...)
		}
	}
	return o
}

// full returns a principal with everything.
func (o *oracle) full(p *Principal) types.Entity {
	last := p
	for last.Maker != nil {
		last = last.Maker
	}
	var parents []types.EntityUID
	for _, g := range p.Groups {
		parents = append(parents, types.NewEntityUID("Group", types.String(g)))
	}
	if p.Tenant != "" {
		parents = append(parents, types.NewEntityUID("Tenant", types.String(p.Tenant)))
	}
	return types.Entity{
		UID: types.NewEntityUID(types.EntityType(p.Type), types.String(p.ID)), Parents: types.NewEntityUIDSet(parents...),
		Attributes: types.NewRecord(types.RecordMap{
			"id": types.String(last.ID), "name": types.String(p.Name), "tenant": types.String(p.Tenant),
		}),
	}
}

func (o *oracle) request(p *Principal, r *Request) (types.EntityMap, cedar.Request) {
	who := o.full(p)
	x := types.Entity{UID: types.NewEntityUID(types.EntityType(r.Resource.Type), types.String(r.Resource.ID))}
	values, tags := types.RecordMap{}, types.RecordMap{}
	var parents []types.EntityUID
	if r.Resource.Tenant != "" && r.Resource.Type != "Tenant" {
		parents = append(parents, types.NewEntityUID("Tenant", types.String(r.Resource.Tenant)))
	}
	if r.Resource.Type == "Agent" {
		parents = append(parents, types.NewEntityUID("Mesh", "mesh"))
	}
	for _, in := range r.Resource.In {
		parents = append(parents, types.NewEntityUID(types.EntityType(in.Type), types.String(in.ID)))
	}
	for name, a := range vocab().Entities[x.UID.Type].Shape {
		var v any
		if r.Resource.Row != nil {
			v = r.Resource.Row.Attribute(string(name))
		}
		switch {
		case name == "tenant":
			values[name] = types.String(r.Resource.Tenant)
		case v == nil && a.Optional:
		case name == "size":
			n, _ := v.(int64)
			values[name] = types.Long(n)
		case name == "cost":
			d, err := types.NewDecimal(int64(v.(Price)), -4)
			if err != nil {
				panic(err)
			}
			values[name] = d
		default:
			s, _ := v.(string)
			values[name] = types.String(s)
		}
	}
	if r.Resource.Row != nil {
		for k, v := range r.Resource.Row.Labels() {
			tags[types.String(k)] = types.String(v)
		}
	}
	x.Attributes, x.Tags, x.Parents = types.NewRecord(values), types.NewRecord(tags), types.NewEntityUIDSet(parents...)
	all := types.EntityMap{x.UID: x, who.UID: who}
	context := types.RecordMap{}
	for name := range vocab().Actions[types.NewEntityUID("Action", types.String(r.Action))].AppliesTo.Context {
		if v := r.Context.attribute(r.Action, string(name)); v != nil {
			context[name] = v
		}
	}
	return all, cedar.Request{Principal: who.UID, Action: types.NewEntityUID("Action", types.String(r.Action)), Resource: x.UID,
		Context: types.NewRecord(context)}
}

// verdict evaluates all policies of one effect.
func verdict(list []*cedar.Policy, effect cedar.Effect, all types.EntityMap, q cedar.Request) (applies, fails bool) {
	for i, p := range list {
		if p.Effect() != effect {
			continue
		}
		_, diag := cedar.Authorize(cedar.PolicyMap{cedar.PolicyID(fmt.Sprint(i)): p}, all, q)
		applies = applies || len(diag.Reasons) > 0
		fails = fails || len(diag.Errors) > 0
	}
	return applies, fails
}

func (o *oracle) one(p *Principal, r *Request, grants bool) (bool, Because) {
	if p.Root {
		return true, ByRoot
	}
	if !Applies(r.Action, r.Resource.Type) {
		return false, ByNothing
	}
	all, q := o.request(p, r)
	var mesh []*cedar.Policy
	for _, list := range o.mesh {
		mesh = append(mesh, list...)
	}
	tenants := o.tenants[r.Resource.Tenant]
	if denies, fails := verdict(mesh, cedar.Forbid, all, q); denies || fails {
		return false, ByMeshForbid
	}
	operator := slices.Contains(p.Groups, "operator") || slices.Contains(p.Groups, "superadmin")
	if denies, fails := verdict(tenants, cedar.Forbid, all, q); (denies || fails) && !operator {
		return false, ByTenantForbid
	}
	if r.Action == HostExec || r.Resource.Type == TypeTenant && slices.Contains([]Action{Create, Update, Delete, GrantIt}, r.Action) {
		tenants = nil // only the mesh permits these
	}
	if allows, _ := verdict(append(mesh, tenants...), cedar.Permit, all, q); allows {
		return true, ByPermit
	}
	if grants && o.granted(p, r) {
		return true, ByGrant
	}
	return false, ByNothing
}

func (o *oracle) granted(p *Principal, r *Request) bool {
	for _, g := range o.grants {
		of := g.Resource == r.Resource.Ref || slices.Contains(r.Resource.In, g.Resource)
		to := g.Grantee.Type == p.Type && g.Grantee.ID == p.ID || g.Grantee.Type == TypeGroup && slices.Contains(p.Groups, g.Grantee.ID)
		if !of || !to || p.Tenant != r.Resource.Tenant || g.Until != 0 && g.Until <= r.Context.Now || !slices.Contains(g.Actions, r.Action) {
			continue
		}
		if g.Granter == nil {
			continue
		}
		if can, _ := o.one(g.Granter, r, false); can {
			return true
		}
	}
	return false
}

func (o *oracle) decide(r *Request) (bool, Because) {
	var chain []*Principal
	for p := r.Principal; p != nil; p = p.Maker {
		chain = append(chain, p)
	}
	var first Because
	for i, p := range chain {
		if i >= 3 {
			return false, ByChain
		}
		can, why := o.one(p, r, true)
		if !can {
			return false, why
		}
		if i == 0 {
			first = why
		}
	}
	return true, first
}

// world draws policies, principals and resources whose names meet often.
type world struct {
	docs       []Document
	grants     []Grant
	principals []*Principal
}

func pick[T any](t *rapid.T, what string, of ...T) T { return rapid.SampledFrom(of).Draw(t, what) }

var (
	tenantNames = []string{"acme", "other"}
	groupNames  = []string{"viewer", "user", "editor", "tenant-admin", "operator", "superadmin", "devs", "ops"}
	idNames     = []string{"ann", "bob", "cid"}
	thingNames  = []string{"1", "2", "3"}
)

func drawPrincipal(t *rapid.T) *Principal {
	p := &Principal{
		Type: pick(t, "principal type", TypeUser, TypeAccount), ID: pick(t, "principal", idNames...), Tenant: pick(t, "tenant", tenantNames...),
		Groups: rapid.SliceOfNDistinct(rapid.SampledFrom(groupNames), 0, 3, rapid.ID[string]).Draw(t, "groups"),
		Root:   rapid.IntRange(0, 19).Draw(t, "root") == 0,
	}
	p.Name = p.ID
	for range pick(t, "chain", 0, 0, 0, 1, 2, 3) {
		p = &Principal{Type: TypeToken, ID: pick(t, "accessor", "t1", "t2"), Tenant: p.Tenant, Maker: p,
			Groups: rapid.SliceOfNDistinct(rapid.SampledFrom(groupNames), 0, 3, rapid.ID[string]).Draw(t, "token's groups")}
	}
	return p
}

// idOf returns the id of the resource with a name.
func idOf(t Type, tenant, name string) string {
	switch t {
	case TypeCluster:
		return "0000000" + name
	case TypeNode:
		return "00000001-" + name
	case TypeUser, TypeAccount, TypeToken, TypeGroup, TypeTenant, TypeAgent, TypeMesh, TypeRun:
		return name
	}
	return tenant + "/" + name
}

func drawResource(t *rapid.T) Resource {
	x := Resource{Ref: Ref{Type(pick(t, "resource type", vocab().entities...)), pick(t, "resource", thingNames...)}}
	switch x.Type {
	case TypeCluster, TypeNode, TypeRun: // more of what has owners
	default:
		if rapid.Bool().Draw(t, "cluster instead") {
			x.Type = TypeCluster
		}
	}
	switch x.Type {
	case TypeMesh:
		x.Ref = TheMesh
		return x
	case TypeAgent:
	case TypeTenant:
		x.Tenant = pick(t, "resource's tenant", tenantNames...)
		x.ID = x.Tenant
	case TypeUser, TypeAccount:
		x.ID = pick(t, "principal as resource", idNames...)
		x.Tenant = pick(t, "resource's tenant", "", "acme", "other")
	default:
		x.Tenant = pick(t, "resource's tenant", "", "acme", "acme", "other")
	}
	x.ID = idOf(x.Type, x.Tenant, x.ID)
	if x.Type == TypeNode {
		x.In = []Ref{{TypeCluster, idOf(TypeCluster, "", pick(t, "cluster", thingNames...))}}
	}
	if rapid.IntRange(0, 9).Draw(t, "row") > 0 {
		a := &Attributes{Values: map[string]any{
			"owner": pick(t, "owner", idNames...), "name": pick(t, "name", thingNames...), "size": int64(pick(t, "size", 1, 50, 51, 100)),
			"template": pick(t, "template", "lamp", "web"), "provider": pick(t, "provider", "cloud", "lab"), "status": "active",
			"id": x.ID,
		}, Tags: map[string]string{}}
		if rapid.Bool().Draw(t, "cost") {
			a.Values["cost"] = Price(pick(t, "price", 10000, 25000))
		}
		for _, k := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"env", "protected", "approved"}), 0, 3, rapid.ID[string]).Draw(t, "labels") {
			a.Tags[k] = pick(t, "label", "prod", "test", "yes")
		}
		x.Row = a
	}
	return x
}

// bodies are conditions, each with the actions and types for which it is valid.
var bodies = []struct {
	actions []string
	of      []string
	when    string
}{
	{nil, []string{"Cluster", "Node", "Run"}, `resource.owner == principal.id`},
	{nil, []string{"Cluster"}, `resource.size > 50`},
	{nil, []string{"Cluster"}, `resource.size * 4611686018427387904 > 0`}, // fails for sizes above 1
	{nil, []string{"Cluster"}, `resource has cost && resource.cost.greaterThan(decimal("2.0"))`},
	{nil, []string{"Cluster", "Site", "Program", "Node"}, `resource.hasTag("env") && resource.getTag("env") == "prod"`},
	{nil, []string{"Cluster", "Run"}, `resource.hasTag("protected")`},
	{nil, []string{"Cluster", "Run"}, `resource.hasTag(principal.id)`},
	{nil, []string{"Cluster"}, `resource == Cluster::"00000001"`},
	{nil, []string{"Node"}, `resource in Cluster::"00000001"`},
	{nil, []string{"Cluster", "Program", "Node", "Template"}, `resource in Tenant::"acme"`},
	{nil, []string{""}, `principal in Group::"devs"`},
	{nil, []string{""}, `principal in Tenant::"acme"`},
	{nil, []string{""}, `context.now < datetime("1970-01-01T00:00:01Z")`},
	{nil, []string{""}, `context.method == "token"`},
	{nil, []string{""}, `context has source && context.source.isInRange(ip("10.0.0.0/8"))`},
	{nil, []string{""}, `resource has tenant && resource.tenant == principal.tenant`},
	{nil, []string{"User"}, `resource == principal || resource.name == principal.name`},
	{[]string{"create", "update"}, []string{"Cluster", "Template"}, `context.after.size > 50`},
	{[]string{"create", "update"}, []string{"Cluster"}, `context.after.provider == "cloud" && context.after.services.contains("web")`},
	{[]string{"create"}, []string{"Cluster"}, `context.after.size * 4611686018427387904 > 0`},
	{[]string{"label"}, []string{"Cluster"}, `context.label == "approved" && context has value`},
	{nil, []string{""}, `true`},
}

func drawPolicy(t *rapid.T) string {
	effect := pick(t, "effect", "permit", "forbid")
	who := pick(t, "who", "principal", "principal is User", `principal == User::"ann"`, `principal in Group::"devs"`, `principal in Group::"user"`,
		`principal is User in Group::"ops"`, `principal in Tenant::"acme"`)
	b := pick(t, "body", bodies...)
	actions := b.actions
	of := pick(t, "of", b.of...)
	switch {
	case of == "Node":
		actions = []string{"list", "read"}
	case actions == nil:
		actions = []string{"list", "read", "create", "update", "delete"}
	}
	what := "action"
	switch rapid.IntRange(0, 3).Draw(t, "actions") {
	case 0:
		what = `action == Action::"` + pick(t, "action", actions...) + `"`
	case 1:
		if b.actions == nil {
			break
		}
		fallthrough
	default:
		what = "action in ["
		for i, a := range actions {
			if i > 0 {
				what += ", "
			}
			what += `Action::"` + a + `"`
		}
		what += "]"
	}
	on := "resource"
	if of != "" {
		on = "resource is " + of
		switch rapid.IntRange(0, 4).Draw(t, "scope") {
		case 0:
			if of != "User" {
				on += ` in Tenant::"` + pick(t, "in", tenantNames...) + `"`
			}
		case 1:
			on = "resource == " + of + `::"` + idOf(Type(of), "acme", "1") + `"`
		}
	}
	return fmt.Sprintf("%s (%s, %s, %s)\n%s { %s };\n", effect, who, what, on, pick(t, "when", "when", "when", "unless"), b.when)
}

func drawWorld(t *rapid.T) *world {
	w := &world{}
	for i := range rapid.IntRange(0, 4).Draw(t, "documents") {
		d := Document{Name: fmt.Sprint("d", i), Tenant: pick(t, "document's tenant", "", "acme", "other")}
		for range rapid.IntRange(1, 4).Draw(t, "policies") {
			text := drawPolicy(t)
			if d.Tenant != "" { // such policies name only what is of their tenant
				text = strings.ReplaceAll(text, `"acme/1"`, `"`+d.Tenant+`/1"`)
			} else { // such policies name nobody without a tenant
				text = strings.ReplaceAll(text, `principal == User::"ann"`, "principal is User")
				text = strings.ReplaceAll(text, " };\n", ` && principal.tenant like "*" };`+"\n")
			}
			d.Text += text
		}
		w.docs = append(w.docs, d)
	}
	for range 3 {
		w.principals = append(w.principals, drawPrincipal(t))
	}
	for i := range rapid.IntRange(0, 4).Draw(t, "grants") {
		g := Grant{ID: fmt.Sprint("g", i), Grantee: Ref{TypeUser, pick(t, "grantee", idNames...)}, Until: pick(t, "until", int64(0), 0, 500, 2000),
			Actions:  rapid.SliceOfNDistinct(rapid.SampledFrom([]Action{List, Read, Operate, Delete}), 1, 3, rapid.ID[Action]).Draw(t, "shared"),
			Resource: Ref{pick(t, "shared type", TypeCluster, TypeCluster, TypeRun), pick(t, "shared", thingNames...)}}
		g.Resource.ID = idOf(g.Resource.Type, "", g.Resource.ID)
		if rapid.IntRange(0, 3).Draw(t, "to a group") == 0 {
			g.Grantee = Ref{TypeGroup, pick(t, "grantees", groupNames...)}
		}
		if rapid.IntRange(0, 5).Draw(t, "gone") > 0 {
			g.Granter = pick(t, "granter", w.principals...)
		}
		w.grants = append(w.grants, g)
	}
	return w
}

func drawRequest(t *rapid.T, w *world) *Request {
	r := &Request{Principal: pick(t, "asks", w.principals...), Resource: drawResource(t), Context: Context{
		Now: pick(t, "now", int64(0), 499, 500, 1000, 3000), Method: pick(t, "method", "token", "ldap"),
	}}
	r.Action = Action(pick(t, "asked", vocab().actions...))
	if rapid.Bool().Draw(t, "often") {
		r.Action = pick(t, "asked", List, Read, Create, Delete)
	}
	if len(w.grants) > 0 && rapid.Bool().Draw(t, "of a grant") {
		g := pick(t, "grant", w.grants...)
		r.Action, r.Resource.Ref = pick(t, "asked", g.Actions...), g.Resource
		if r.Resource.Tenant = "acme"; g.Granter != nil {
			r.Resource.Tenant = g.Granter.Tenant
		}
		r.Resource.In = nil
		if g.Resource.Type == TypeCluster && r.Action == List && rapid.Bool().Draw(t, "node of it") {
			r.Resource.Ref, r.Resource.In = Ref{TypeNode, "n"}, []Ref{g.Resource}
		}
		r.Principal = &Principal{Type: TypeUser, ID: "bob", Tenant: pick(t, "tenant", r.Resource.Tenant, r.Resource.Tenant, "acme")}
		if g.Grantee.Type == TypeGroup {
			r.Principal.Groups = []string{g.Grantee.ID}
		} else if rapid.IntRange(0, 3).Draw(t, "grantee") > 0 {
			r.Principal.ID = g.Grantee.ID
		}
	}
	r.Context.Source = pick(t, "source", noAddress, inside, outside)
	r.Context.After = After{Size: int64(pick(t, "after", 1, 51)), Provider: pick(t, "provider after", "cloud", "lab"), Services: []string{"web"}}
	r.Context.Label = pick(t, "label", "approved", "env")
	if rapid.Bool().Draw(t, "sets a label") {
		v := "yes"
		r.Context.Value = &v
	}
	return r
}

func (w *world) set(t interface{ Fatal(...any) }) *Set {
	var all []*Policies
	for _, d := range w.docs {
		p, faults := Parse(d, nil)
		if len(faults) > 0 {
			t.Fatal(faults, d.Text)
		}
		all = append(all, p)
	}
	s, faults := NewSet(all, w.grants)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return s
}

// TestOracle compares the fast decisions with the literal ones.
func TestOracle(t *testing.T) {
	seen := map[Because]int{}
	missing := []Because{ByRoot, ByMeshForbid, ByTenantForbid, ByPermit, ByGrant, ByNothing, ByChain}
	for round := 0; len(missing) > 0 && round < 20; round++ { // one is nearly always enough in a full run
		rapid.Check(t, func(t *rapid.T) {
			w := drawWorld(t)
			s := w.set(t)
			o := newOracle(w.docs, w.grants)
			for range 12 {
				r := drawRequest(t, w)
				want, why := o.decide(r)
				got := s.Decide(r)
				seen[why]++
				if got.Allowed != want || got.Because != why {
					t.Fatalf("%+v asks %s %+v (%+v): got %+v, want %v by %s", r.Principal, r.Action, r.Resource, r.Context, got, want, why)
				}
			}
		})
		missing = slices.DeleteFunc(missing, func(why Because) bool { return seen[why] > 0 })
	}
	if len(missing) > 0 {
		t.Errorf("no request was decided by %q; seen %v", missing, seen)
	}
}

// TestFilter compares filters, which remember decisions, with the literal decisions.
func TestFilter(t *testing.T) {
	yes, no := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		s := w.set(t)
		o := newOracle(w.docs, w.grants)
		first := drawRequest(t, w)
		f := s.Filter(first.Principal, first.Action, first.Resource.Type, first.Context)
		for range 20 {
			r := *first
			if r.Resource = drawResource(t); r.Resource.Type != first.Resource.Type {
				id := r.Resource
				r.Resource = first.Resource
				if id.Tenant != "" && first.Resource.Type != TypeTenant {
					r.Resource.Tenant, r.Resource.ID, r.Resource.Row = id.Tenant, id.ID, id.Row
				}
			}
			r.Context.Now = pick(t, "later", first.Context.Now, 499, 500, 3000)
			f.At(r.Context.Now)
			want, why := o.decide(&r)
			if got := f.Allows(&r.Resource); got != want {
				t.Fatalf("%+v asks %s %+v: got %t, want %t by %s", r.Principal, r.Action, r.Resource, got, want, why)
			}
			if want {
				yes++
			} else {
				no++
			}
		}
	})
	if yes == 0 || no == 0 {
		t.Errorf("%d allowed, %d denied", yes, no)
	}
}
