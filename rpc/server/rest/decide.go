package rest

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/coopr/coopr/engine/access"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/rpc/api"
)

// decider answers what the caller of a request may do.
type decider struct {
	set           *access.Set
	principal     *access.Principal
	circumstances access.Context
	right         Right
	// planned is set if the orchestrator decides about the route's action.
	planned bool
	// asked is what the right was asked about before the handler; nil if the handler asks.
	asked *access.Resource
	// done is set once the right that the route needs was asked about. Nothing is answered before.
	done bool
}

// builtin is the set without policies other than the built-in ones.
var builtin = sync.OnceValue(func() *access.Set {
	s, faults := access.NewSet(nil, nil)
	if len(faults) > 0 {
		panic(faults)
	}
	return s
})

// decide asks whether the caller may use the route, unless that depends on what the handler finds: on a
// cluster, a node or a run, or for lists on each item.
func (s *Server) decide(r *http.Request, route string, ru Rule, c *Call, own string) error {
	right, ok := RightOf(route)
	if !ok {
		return fmt.Errorf("the route %s has no right", route)
	}
	c.decider = decider{
		set: s.policies(r.Context(), c.Who.Tenant), principal: principalOf(c.Who, own), right: right, planned: ru.Planned,
		circumstances: access.Context{Now: s.Millis(), Method: "token"},
	}
	if right.Mesh && right.On == access.TypePolicy {
		c.Who.Tenant = ""
	}
	switch right.Action {
	case "":
		c.done = true
		return nil
	case access.List:
		return nil
	}
	var x access.Resource
	switch right.On {
	case access.TypeCluster, access.TypeNode, access.TypeRun:
		if right.Action != access.Create || ru.Planned {
			return nil
		}
		x = c.named(right.On, "")
		x.Row = ownRow(c.Who.Actor)
	default:
		x = c.object(r)
	}
	c.asked = &x
	return c.May(right.Action, x)
}

// decideBy makes the further decisions of a call by the policies of the state that it reads. If these differ from those
// before, it decides again about the route's right.
func (s *Server) decideBy(c *Call, v View) error {
	set := s.setOf(v, c.Who.Tenant)
	if set == c.set {
		return nil
	}
	c.set = set
	if c.asked == nil {
		return nil
	}
	return c.May(c.right.Action, *c.asked)
}

// principalOf returns the caller, who is of the tenant own, as a principal.
func principalOf(who model.Caller, own string) *access.Principal {
	who.Tenant = own
	return access.OfCaller(who)
}

// policies returns the policies that decide about a tenant. An agent without a copy of the state knows the built-in
// policies only, and answers only requests about itself.
func (s *Server) policies(ctx context.Context, tenant string) *access.Set {
	v, err := s.State.View(ctx, api.Stale, 0)
	if err != nil {
		return builtin()
	}
	return s.setOf(v, tenant)
}

func (s *Server) setOf(v View, tenant string) *access.Set {
	if tenant == api.AllTenants {
		tenant = ""
	}
	return s.sets.Of(v, tenant)
}

// LocksOut reports whether none of the principals could change the policies of the tenant any more if next were in
// force, although one can now.
func (c *Call) LocksOut(next *access.Set, of []*access.Principal) bool {
	return c.set.LocksOut(next, c.Who.Tenant, of, c.circumstances)
}

// pathNames are the parameters of paths that hold names of resources.
var pathNames = []string{"name", "profile", "program", "schedule", "site", "id", "agent"}

// object returns the resource that a path names. It has no name if the path has none.
func (c *Call) object(r *http.Request) access.Resource {
	name := ""
	for _, key := range pathNames {
		if name = r.PathValue(key); name != "" {
			break
		}
	}
	if c.right.On == access.TypeTenant && c.right.Action == access.Admin {
		name = c.Who.Tenant
	}
	return c.named(c.right.On, name)
}

// named returns a resource that has no attributes but its name.
func (c *Call) named(on access.Type, name string) access.Resource {
	tenant := c.Who.Tenant
	if c.right.Mesh {
		tenant = ""
	}
	x := access.Named(on, tenant, name)
	switch on {
	case access.TypeTenant:
		x.ID, x.Tenant = name, name
	case access.TypeProfile: // by one of several names
		if ref, err := profile.ParseRef(name); err == nil {
			if ref.Scope == profile.System {
				x.Tenant = ""
			}
			x.ID, x.Row = x.Tenant+"/"+ref.Name, access.NameRow(ref.Name)
		}
	case access.TypeMesh:
		x.Ref, x.Tenant, x.Row = access.TheMesh, "", nil
	case access.TypeAgent:
		x.ID, x.Tenant = name, ""
	}
	return x
}

// ownRow is a new resource of its owner.
type ownRow string

// Attribute returns the owner.
func (r ownRow) Attribute(name string) any {
	if name == "owner" {
		return string(r)
	}
	return nil
}

// Labels returns nil.
func (ownRow) Labels() map[string]string { return nil }

func (c *Call) ask(a access.Action, x *access.Resource) access.Decision {
	return c.set.Decide(&access.Request{Principal: c.principal, Action: a, Resource: *x, Context: c.circumstances})
}

// forbidden reports whether a policy forbids what others may permit.
func forbidden(d access.Decision) bool {
	return d.Because == access.ByMeshForbid || d.Because == access.ByTenantForbid
}

// MayCreate returns nil if a policy permits the caller to create a cluster. What others forbid, the orchestrator finds
// out when it knows the whole cluster.
func (c *Call) MayCreate(cl *model.Cluster, after access.After) error {
	c.done = true
	x := access.OfCluster(cl, func() int { return 0 })
	circumstances := c.circumstances
	circumstances.After = after
	d := c.set.Decide(&access.Request{Principal: c.principal, Action: access.Create, Resource: x, Context: circumstances})
	if d.Allowed || forbidden(d) {
		return nil
	}
	return c.refusal(access.Create, &x, d)
}

// askAs is like ask, about a change that leaves the cluster as it is.
func (c *Call) askAs(a access.Action, x *access.Resource) access.Decision {
	circumstances := c.circumstances
	if row, ok := x.Row.(interface{ After() access.After }); ok {
		circumstances.After = row.After()
	}
	return c.set.Decide(&access.Request{Principal: c.principal, Action: a, Resource: *x, Context: circumstances})
}

// May returns nil if the caller may do something with a resource. What the caller may not read is not
// there for it.
func (c *Call) May(a access.Action, x access.Resource) error {
	c.done = true
	d := c.ask(a, &x)
	switch {
	case d.Allowed:
		return nil
	case a == access.Read && nameOf(&x) != "":
		return NotFound("there is no %s in tenant %s", phrase(&x), c.Who.Tenant)
	}
	return c.refusal(a, &x, d)
}

// MayNamed is like May, for a resource of the tenant that has no attributes but its name.
func (c *Call) MayNamed(a access.Action, on access.Type, name string) error {
	return c.May(a, c.named(on, name))
}

// MayStartRun returns nil if the caller may start a run of its own.
func (c *Call) MayStartRun() error {
	x := c.named(access.TypeRun, "")
	x.Row = ownRow(c.Who.Actor)
	return c.May(access.Create, x)
}

// MayWrite returns nil if the caller may write a resource that has no attributes but its name: create it, or update it if
// it is there.
func (c *Call) MayWrite(on access.Type, name string, there bool) error {
	if there {
		return c.MayNamed(access.Update, on, name)
	}
	return c.MayNamed(access.Create, on, name)
}

// MayLabel returns nil if the caller may change a label of a cluster: set it to a value, or with nil remove it. v is nil
// for a cluster that is not there yet.
func (c *Call) MayLabel(v View, cl *model.Cluster, key string, value *string) error {
	x := access.OfCluster(cl, func() int { return 0 })
	if v != nil {
		x = ofCluster(v, cl)
	}
	circumstances := c.circumstances
	circumstances.Label, circumstances.Value = key, value
	d := c.set.Decide(&access.Request{Principal: c.principal, Action: access.Label, Resource: x, Context: circumstances})
	if d.Allowed {
		return nil
	}
	return Forbidden("%s, with the role %s, may not change the label %s of cluster %s: %s", c.Who.Actor, c.Who.Role, key, cl.Name, d.Why())
}

// use decides about a cluster, a node or a run that a request is about: whether the caller may read it, and
// whether the caller may do with it what the route does. It fails with hidden if the caller may not read it.
func (c *Call) use(x access.Resource, hidden error) error {
	if !c.ask(access.Read, &x).Allowed {
		return hidden
	}
	a := c.right.Action
	switch {
	case a == access.Read, a == access.List:
	case x.Type == c.right.On:
		if d := c.askAs(a, &x); !d.Allowed && !(c.planned && a == access.Update && forbidden(d)) {
			return c.refusal(a, &x, d)
		}
	default:
		return nil // the handler finds what the right is about next
	}
	c.done = true
	return nil
}

// filter returns a filter for what the caller may list, or read.
func (c *Call) filter(a access.Action, on access.Type) *access.Filter {
	c.done = true
	return c.set.Filter(c.principal, a, on, c.circumstances)
}

// Listed returns those of a tenant's resources that the caller may list. It fails if there are none and
// the caller may list no resource of this type.
func Listed[T any](c *Call, on access.Type, all []T, name func(T) string) ([]T, error) {
	f := c.filter(access.List, on)
	out := make([]T, 0, len(all))
	for _, item := range all {
		if x := c.named(on, name(item)); f.Allows(&x) {
			out = append(out, item)
		}
	}
	if len(out) == 0 {
		if err := c.MayNamed(access.List, on, ""); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// MayListIn reports whether the caller may list a resource of another tenant, or with "" of the mesh.
func (c *Call) MayListIn(tenant string, on access.Type, name string) bool {
	x := access.Named(on, tenant, name)
	return c.ask(access.List, &x).Allowed
}

// MayList returns nil if the caller may list all resources of the type that the route lists.
func (c *Call) MayList() error {
	return c.MayNamed(access.List, c.right.On, "")
}

var nouns = map[access.Type]string{
	access.TypeHardwareType: "hardware type", access.TypeImageType: "image type", access.TypePluginType: "plugin type",
	access.TypePluginResource: "plugin resource", access.TypeMesh: "the mesh",
}

func nameOf(x *access.Resource) string {
	if x.Row == nil {
		return ""
	}
	s, _ := x.Row.Attribute("name").(string)
	return s
}

func nounOf(x *access.Resource) string {
	return cmp.Or(nouns[x.Type], strings.ToLower(string(x.Type)))
}

// phrase returns how a text names a resource: "cluster shop", "a template", "the mesh".
func phrase(x *access.Resource) string {
	noun := nounOf(x)
	switch name := nameOf(x); {
	case name != "":
		return noun + " " + name
	case x.Type == access.TypeMesh:
		return noun
	case strings.ContainsRune("aeiou", rune(noun[0])):
		return "an " + noun
	}
	return "a " + noun
}

// refusal returns the problem of a decision that denies.
func (c *Call) refusal(a access.Action, x *access.Resource, d access.Decision) error {
	verb := string(a)
	if a == access.Admin {
		verb = "administer"
	}
	what := phrase(x)
	if a == access.List {
		what = strings.ReplaceAll(nounOf(x)+"s", "ys", "ies")
	}
	return Forbidden("%s, with the role %s, may not %s %s: %s", c.Who.Actor, c.Who.Role, verb, what, d.Why())
}

func ofCluster(v View, cl *model.Cluster) access.Resource {
	return access.OfCluster(cl, func() int { return len(v.Nodes(cl.Tenant, cl.ID)) })
}

// nodeRow lets policies read a node.
type nodeRow struct {
	v View
	n *model.Node
}

// Attribute returns an attribute of the node.
func (r nodeRow) Attribute(name string) any {
	switch name {
	case "owner":
		if cl, ok := r.v.Cluster(r.n.Tenant, r.n.Cluster); ok {
			return cl.Owner
		}
	case "name":
		return r.n.Hostname
	}
	return nil
}

// Labels returns nil.
func (nodeRow) Labels() map[string]string { return nil }

func ofNode(v View, n *model.Node) access.Resource {
	return access.Resource{
		Ref: access.Ref{Type: access.TypeNode, ID: n.ID}, Tenant: n.Tenant,
		In: []access.Ref{{Type: access.TypeCluster, ID: n.Cluster}}, Row: nodeRow{v, n},
	}
}

// runRow lets policies read a run.
type runRow struct{ r *profile.Run }

// Attribute returns an attribute of the run.
func (r runRow) Attribute(name string) any {
	switch name {
	case "owner":
		return r.r.Actor
	case "name":
		return r.r.ID
	case "status":
		return string(r.r.Status)
	}
	return nil
}

// Labels returns nil.
func (runRow) Labels() map[string]string { return nil }
