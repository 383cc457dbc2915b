package rest

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/coopr/coopr/engine/access"
	"github.com/coopr/coopr/engine/model"
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
	who := c.Who
	who.Tenant = own
	c.decider = decider{
		set: s.policies(r.Context(), c.Who.Tenant), principal: access.OfCaller(who), right: right, planned: ru.Planned,
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
		x = c.own(right.On)
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

func (c *Call) ask(a access.Action, x *access.Resource) access.Decision {
	return c.askIn(a, x, c.circumstances)
}

// askIn is like ask, in other circumstances.
func (c *Call) askIn(a access.Action, x *access.Resource, in access.Context) access.Decision {
	return c.set.Decide(&access.Request{Principal: c.principal, Action: a, Resource: *x, Context: in})
}

// MayCreate returns nil if a policy permits the caller to create a cluster. What others forbid, the orchestrator finds
// out when it knows the whole cluster.
func (c *Call) MayCreate(cl *model.Cluster, after access.After) error {
	c.done = true
	x := access.OfCluster(cl, func() int { return 0 })
	in := c.circumstances
	in.After = after
	d := c.askIn(access.Create, &x, in)
	if d.Allowed || d.Forbidden() {
		return nil
	}
	return c.refusal(access.Create, &x, d)
}

// askAs is like ask, about a change that leaves the cluster as it is.
func (c *Call) askAs(a access.Action, x *access.Resource) access.Decision {
	in := c.circumstances
	if row, ok := x.Row.(interface{ After() access.After }); ok {
		in.After = row.After()
	}
	return c.askIn(a, x, in)
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
	return c.May(access.Create, c.own(access.TypeRun))
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
	in := c.circumstances
	in.Label, in.Value = key, value
	d := c.askIn(access.Label, &x, in)
	if d.Allowed {
		return nil
	}
	return d.Refusal(c.Who, "change the label "+key+" of cluster "+cl.Name)
}

// MayChangeLease returns nil if the caller may have the lease of a cluster end at a time, in Unix milliseconds: update the cluster to have
// that lease and, if it ends earlier than before, delete the cluster.
func MayChangeLease(c *Call, v View, cl *model.Cluster, end int64) error {
	x := ofCluster(v, cl)
	in := c.circumstances
	nodes := v.Nodes(cl.Tenant, cl.ID)
	seen := map[[2]string]bool{}
	for i := 0; i < max(len(nodes), 1); i++ { // a policy sees each pair of types
		in.After = access.AfterOf(cl, len(nodes))
		in.After.Lease = max(end-cl.CreatedAt, 1)
		if len(nodes) > 0 {
			in.After.HardwareType, in.After.ImageType = nodes[i].HardwareType, nodes[i].ImageType
		}
		if key := [2]string{in.After.HardwareType, in.After.ImageType}; !seen[key] {
			seen[key] = true
			if d := c.askIn(access.Update, &x, in); !d.Allowed {
				return c.refusal(access.Update, &x, d)
			}
		}
	}
	if cl.ExpiresAt == 0 || end < cl.ExpiresAt {
		if d := c.askAs(access.Delete, &x); !d.Allowed {
			return c.refusal(access.Delete, &x, d)
		}
	}
	return nil
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
		if d := c.askAs(a, &x); !d.Allowed && !(c.planned && a == access.Update && d.Forbidden()) {
			return c.refusal(a, &x, d)
		}
	default:
		return nil // the handler finds what the right is about next
	}
	c.done = true
	return nil
}

// filter returns a filter for what the caller may list.
func (c *Call) filter(on access.Type) *access.Filter {
	c.done = true
	return c.set.Filter(c.principal, access.List, on, c.circumstances)
}

// Listed returns those of a tenant's resources that the caller may list. It fails if there are none and
// the caller may list no resource of this type.
func Listed[T any](c *Call, on access.Type, all []T, name func(T) string) ([]T, error) {
	listed := NameFilter(c, on)
	out := make([]T, 0, len(all))
	for _, item := range all {
		if listed(name(item)) {
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
	return d.Refusal(c.Who, verb+" "+what)
}
