package state

import (
	"errors"
	"fmt"
	"slices"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/consensus/state/view"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
)

// resources changes plugin resources.
type resources struct{ *writer }

// changeResource carries out a change of plugin resources. It is the only writer of them.
func (a resources) changeResource(c *pb.Command, ch *pb.ChangeResource) Answer {
	if err := a.tenant(c.Tenant); err != nil {
		return Answer{Err: err}
	}
	switch x := ch.Change.(type) {
	case *pb.ChangeResource_Add:
		return a.addResource(c, x.Add)
	case *pb.ChangeResource_Order:
		return a.orderResource(c, x.Order)
	case *pb.ChangeResource_Sync:
		return a.syncResources(c)
	}
	return refuse(problem.Unsupported, "a change of resources is unknown to this build")
}

// orderResource carries out an order about a resource.
func (a resources) orderResource(c *pb.Command, o *pb.OrderResource) Answer {
	named, err := logformat.DecodeResourceKey(o.Resource)
	if err != nil {
		return refuse(problem.Unsupported, "resource: %v", err)
	}
	k, order := *named, logformat.ResourceOrders.Word(o.Order)
	have := table.Get[model.PluginResource](a.txn, table.Resources, "id", table.ResourceArgs(c.Tenant, k)...)
	if have == nil {
		return refuse(problem.NotFound, "there is no resource %s", k)
	}
	r, subject := have.Clone(), fmt.Sprintf("%s@%d", k, o.Version)
	if o.Order == pb.ResourceOrder_RESOURCE_ORDER_DELETE && o.Version == 0 {
		subject = k.String()
		for _, v := range have.Versions {
			err = errors.Join(err, r.Order(order, v.Version))
		}
	} else {
		err = r.Order(order, int(o.Version))
	}
	switch {
	case errors.Is(err, model.ErrNoResourceVersion):
		return Answer{Err: problem.Wrap(problem.NotFound, err)}
	case err != nil:
		return Answer{Err: problem.Wrap(problem.Conflict, err)}
	}
	status := "deleted"
	if v := r.Find(int(o.Version)); v != nil {
		status = string(v.Status)
	}
	a.putResource(r)
	a.inForce(c.Tenant)
	a.event(model.Event{Type: "resource.changed", Tenant: c.Tenant, Subject: subject, Status: status, Actor: c.Actor})
	return Answer{Subject: subject}
}

// addResource adds a version. A majority of the voters has its content already.
func (a resources) addResource(c *pb.Command, add *pb.AddResource) Answer {
	v, err := logformat.DecodeResourceVersion(add.Version)
	if err != nil {
		return refuse(problem.Unsupported, "resource: %v", err)
	}
	names, bytes := table.ResourceUse(a.txn, c.Tenant)
	mostNames, mostBytes := int64(model.MostResources), add.MostBytes
	if n := a.limit(c.Tenant, model.LimitResources); n > 0 {
		mostNames = n
	}
	if n := a.limit(c.Tenant, model.LimitResourceBytes); n > 0 {
		mostBytes = n
	}
	r := &model.PluginResource{Tenant: c.Tenant, ResourceKey: v.ResourceKey}
	have := table.Get[model.PluginResource](a.txn, table.Resources, "id", table.ResourceArgs(c.Tenant, v.ResourceKey)...)
	switch {
	case have != nil:
		r = have.Clone()
	case names >= mostNames:
		return refuse(problem.Quota, "tenant %s has %d resources, and may have no more: delete some, or %s", c.Tenant, names,
			model.LimitResources.Raise(c.Tenant))
	}
	if len(r.Versions) >= model.MostResourceVersions {
		return refuse(problem.Quota, "resource %s has %d versions, and may have no more: delete old ones", v.ResourceKey, len(r.Versions))
	}
	if mostBytes > 0 && bytes+v.Size > mostBytes {
		return refuse(problem.Quota, "the resources of tenant %s take %d bytes, and may take %d: this one of %d does not fit; "+
			"delete old versions, or %s", c.Tenant, bytes, mostBytes, v.Size, model.LimitResourceBytes.Raise(c.Tenant))
	}
	v.Time, v.Actor = a.now, c.Actor
	n := r.Add(*v)
	if add.Order != 0 {
		if err := r.Order(logformat.ResourceOrders.Word(add.Order), n); err != nil {
			return Answer{Err: problem.Wrap(problem.Unsupported, err)}
		}
	}
	a.putResource(r)
	a.inForce(c.Tenant)
	added := r.Find(n)
	a.event(model.Event{Type: "resource.changed", Tenant: c.Tenant, Subject: added.String(), Status: string(added.Status), Actor: c.Actor})
	return Answer{Subject: added.String()}
}

// syncResources brings all staged and recalled versions of a tenant into force at once.
func (a resources) syncResources(c *pb.Command) Answer {
	for _, have := range table.List[model.PluginResource](a.txn, table.Resources, "id_prefix", c.Tenant) {
		r := have.Clone()
		if !r.Sync() {
			continue
		}
		a.putResource(r)
		for i, v := range r.Versions {
			if v.Status != have.Versions[i].Status {
				a.event(model.Event{Type: "resource.changed", Tenant: c.Tenant, Subject: v.String(), Status: string(v.Status), Actor: c.Actor})
			}
		}
	}
	a.inForce(c.Tenant)
	return Answer{Subject: c.Tenant}
}

// putResource writes a resource, or removes one that has no versions left.
func (a resources) putResource(r *model.PluginResource) {
	a.batch.Resources = true
	if len(r.Versions) == 0 {
		a.remove(table.Resources, r)
		return
	}
	a.put(table.Resources, r)
}

// inForce makes a new set if the versions in force differ from those of the latest set. It drops
// the older sets that no kept plan and no living cluster needs.
func (a resources) inForce(tenant string) {
	// The numbers of a tenant that is made again begin after those of the old tenant, because
	// agents remember the old sets.
	now := &model.ResourceSet{Tenant: tenant, Number: a.index}
	table.Each(a.txn, table.Resources, "id_prefix", func(r *model.PluginResource) bool {
		if v := r.Live(); v != nil {
			now.Pins = append(now.Pins, v.ResourcePin)
		}
		return true
	}, tenant)
	sets := table.List[model.ResourceSet](a.txn, table.ResourceSets, "id_prefix", tenant)
	if n := len(sets); n > 0 {
		if slices.Equal(sets[n-1].Pins, now.Pins) {
			return
		}
		now.Number = max(a.index, sets[n-1].Number+1)
	} else if len(now.Pins) == 0 {
		return
	}
	a.put(table.ResourceSets, now)
	needed := a.view().NeededSets()
	for _, s := range sets {
		if !needed[view.SetKey{Tenant: tenant, Number: s.Number}] {
			a.remove(table.ResourceSets, s)
		}
	}
}

// currentResources returns the number of the set for a plan that begins now, or 0 for none.
func (a resources) currentResources(tenant string) uint64 {
	if s, ok := a.view().ResourcesInForce(tenant); ok && len(s.Pins) > 0 {
		return s.Number
	}
	return 0
}

// removeResources removes a tenant's resources.
func (a resources) removeResources(tenant string) {
	a.removeAll(tenant, "id_prefix", table.Resources, table.ResourceSets)
	a.batch.Resources = true
}
