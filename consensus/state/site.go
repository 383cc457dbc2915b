package state

import (
	"errors"
	"fmt"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/change/object"
	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
)

// sites changes the sites of change objects.
type sites struct{ *writer }

// keptGenerations is the number of a site's generations that are kept, others those in force.
const keptGenerations = 50

// SiteKey identifies a site among those of all tenants.
type SiteKey struct{ Tenant, Name string }

// changeSite carries out a change of a site. It is the only writer of sites.
func (a sites) changeSite(c *pb.Command, ch *pb.ChangeSite) Answer {
	old := table.Get[site.Record](a.txn, table.Sites, "id", c.Tenant, ch.Site)
	if next := ch.GetNext(); next != nil {
		return a.nextGeneration(c, ch.Site, old, next)
	}
	if old == nil {
		return refuse(problem.NotFound, "there is no site %q", ch.Site)
	}
	r := old.Clone()
	var err error
	status, message := "", ""
	switch x := ch.Change.(type) {
	case *pb.ChangeSite_Events:
		for _, e := range x.Events.Events {
			a.event(model.Event{Type: "object.changed", Tenant: c.Tenant, Subject: ch.Site + "/" + e.Object, Status: e.Status, Message: e.Message})
		}
		return Answer{Subject: ch.Site}
	case *pb.ChangeSite_Forget:
		a.batch.Sites = append(a.batch.Sites, SiteKey{old.Tenant, old.Name})
		a.removeSite(old)
		a.event(model.Event{Type: "site.deleted", Tenant: old.Tenant, Subject: old.Name, Actor: c.Actor})
		return Answer{Subject: ch.Site}
	case *pb.ChangeSite_Assign:
		if x.Assign.Epoch != r.Epoch {
			return refuse(problem.Stale, "site %s was deleted and created again after its hosts were assigned", ch.Site)
		}
		hosts := make([]site.Host, len(x.Assign.Hosts))
		for i, m := range x.Assign.Hosts {
			h, err := logformat.DecodeHost(m)
			if err != nil {
				return refuse(problem.Unsupported, "hosts of site %s: %v", ch.Site, err)
			}
			hosts[i] = *h
		}
		err = r.Assign(hosts, func(id string) bool {
			n := table.Get[model.Agent](a.txn, table.Agents, "id", id)
			return n != nil && n.Session != ""
		})
	case *pb.ChangeSite_Switch:
		if r.Next != x.Switch.Generation {
			return refuse(problem.Stale, "generation %d of site %s is not on its way", x.Switch.Generation, ch.Site)
		}
		groups := make([]int, len(x.Switch.Groups))
		for i, g := range x.Switch.Groups {
			groups[i] = int(g)
		}
		err = r.Turn(groups)
		if status = fmt.Sprintf("generation %d is on its way", x.Switch.Generation); r.Next == 0 {
			status = fmt.Sprintf("generation %d is in force", r.Generation)
		}
	case *pb.ChangeSite_Release:
		err = r.Release(site.Release{ID: object.ID(x.Release.Id), Actor: c.Actor, Reason: x.Release.Reason, Time: a.now})
		status, message = "released "+x.Release.Name, x.Release.Reason
		if err == nil {
			a.audit.Released(c.Tenant, ch.Site, x.Release.Name, x.Release.Reason)
		}
	default:
		return refuse(problem.Unsupported, "a change of site %s is unknown to this build", ch.Site)
	}
	switch {
	case errors.Is(err, site.ErrHeld), errors.Is(err, site.ErrOnItsWay):
		return Answer{Err: problem.Wrap(problem.Conflict, err)}
	case err != nil:
		return Answer{Err: problem.Wrap(problem.Stale, err)}
	}
	a.putSite(r, c.Actor, status, message)
	return Answer{Subject: ch.Site}
}

// nextGeneration adds a generation to a site and begins the switch to it. It makes the site if
// there is none.
func (a sites) nextGeneration(c *pb.Command, name string, old *site.Record, n *pb.NextGeneration) Answer {
	if err := a.tenant(c.Tenant); err != nil {
		return Answer{Err: err}
	}
	g, err := logformat.DecodeGeneration(n.Generation)
	if err != nil {
		return refuse(problem.Unsupported, "generation of site %q: %v", name, err)
	}
	if g.Tenant != c.Tenant || g.Site != name {
		return refuse(problem.Unsupported, "generation of site %q is of site %q of tenant %q", name, g.Site, g.Tenant)
	}
	switches := make([]site.Switch, len(n.Switches))
	for i, m := range n.Switches {
		s, err := logformat.DecodeSwitch(m)
		if err != nil {
			return refuse(problem.Unsupported, "generation of site %q: %v", name, err)
		}
		switches[i] = *s
	}
	r := &site.Record{Tenant: c.Tenant, Name: name, Epoch: a.index}
	if old != nil {
		r = old.Clone()
	}
	if r.Version != n.Version {
		return refuse(problem.Stale, "site %s changed while its new generation was planned; run the command again", name)
	}
	if err := a.document(c.Tenant, table.CountSites, name, len(g.Document), old == nil, 0); err != nil && !n.Deleting {
		return Answer{Err: err}
	}
	if s := (sealed(a)); s.anywhere() {
		if err := s.there(c.Tenant, g.Document); err != nil {
			return Answer{Err: err}
		}
	}
	g.Time, g.Actor = a.now, c.Actor
	if err := r.Begin(g.Number, switches, n.Deleting); err != nil {
		return Answer{Err: problem.Wrap(problem.Conflict, err)}
	}
	a.put(table.Generations, g)
	status := fmt.Sprintf("generation %d is on its way", g.Number)
	if r.Next == 0 {
		status = fmt.Sprintf("generation %d is in force", g.Number)
	}
	message := ""
	if g.Reverts != 0 {
		message = fmt.Sprintf("the content of generation %d again", g.Reverts)
	}
	a.putSite(r, c.Actor, status, message)
	return Answer{Subject: name}
}

// putSite writes a site's record, or removes a site whose deletion is complete. It drops the oldest
// generations.
func (a sites) putSite(r *site.Record, actor, status, message string) {
	r.Version = a.index
	a.batch.Sites = append(a.batch.Sites, SiteKey{r.Tenant, r.Name})
	if r.Deleting && r.Next == 0 {
		a.removeSite(r)
		a.event(model.Event{Type: "site.deleted", Tenant: r.Tenant, Subject: r.Name, Actor: actor})
		return
	}
	a.put(table.Sites, r)
	if status != "" {
		a.event(model.Event{Type: "site.changed", Tenant: r.Tenant, Subject: r.Name, Status: status, Actor: actor, Message: message})
	}
	for _, g := range table.List[site.Generation](a.txn, table.Generations, "id_prefix", r.Tenant, r.Name) {
		if g.Number+keptGenerations < r.Last && g.Number != r.Generation && g.Number != r.Next {
			a.remove(table.Generations, g)
		}
	}
}

func (a sites) removeSite(r *site.Record) {
	for _, g := range table.List[site.Generation](a.txn, table.Generations, "id_prefix", r.Tenant, r.Name) {
		a.remove(table.Generations, g)
	}
	a.remove(table.Sites, r)
}

// removeSites removes a tenant's sites. No object is driven to another state first: the host
// runtimes release the objects that they run.
func (a sites) removeSites(tenant string) {
	for _, r := range table.List[site.Record](a.txn, table.Sites, "id_prefix", tenant) {
		a.batch.Sites = append(a.batch.Sites, SiteKey{r.Tenant, r.Name})
		a.removeSite(r)
	}
}
