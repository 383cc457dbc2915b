package state

import (
	"strings"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
)

// maxGrants bounds the grants of one tenant.
const maxGrants = 5000

func (a users) putGrant(c *pb.Command, p *pb.PutGrant) Answer {
	g, err := logformat.DecodeGrant(p.Grant)
	if err != nil {
		return refuse(problem.Unsupported, "grant: %v", err)
	}
	if err := a.tenant(g.Tenant); err != nil {
		return Answer{Err: err}
	}
	all := table.List[model.Grant](a.txn, table.Grants, "id_prefix", g.Tenant)
	now := 0
	for _, old := range all {
		switch {
		case old.ID == g.ID:
			return refuse(problem.Conflict, "grant %q exists", g.ID)
		case !old.Ended(a.now):
			now++
		}
	}
	if now >= maxGrants {
		return refuse(problem.Quota, "tenant %s has %d grants: remove some first, or share with a group or by a policy", g.Tenant, now)
	}
	for _, old := range all {
		if old.Ended(a.now) {
			a.remove(table.Grants, old)
		}
	}
	g.Created = a.now
	a.put(table.Grants, g)
	a.event(model.Event{Type: "grant.changed", Tenant: g.Tenant, Subject: g.ID, Actor: c.Actor})
	return Answer{Subject: g.ID}
}

func (a users) deleteGrant(c *pb.Command, id string) Answer {
	g := table.Get[model.Grant](a.txn, table.Grants, "id", c.Tenant, id)
	if g == nil {
		return refuse(problem.NotFound, "there is no grant %q", id)
	}
	a.removeGrant(c.Actor, g)
	return Answer{Subject: id}
}

func (a users) removeGrant(actor string, g *model.Grant) {
	a.remove(table.Grants, g)
	a.event(model.Event{Type: "grant.deleted", Tenant: g.Tenant, Subject: g.ID, Actor: actor})
}

// removeGrantsOf removes what a user who is deleted shared, and what was shared with that user.
func (a users) removeGrantsOf(c *pb.Command, u *table.UserRow) {
	for _, g := range table.List[model.Grant](a.txn, table.Grants, "id_prefix", u.Tenant) {
		kind, name, _ := strings.Cut(g.To, "/")
		if g.Granter == u.Name || name == u.Name && kind != "group" {
			a.removeGrant(c.Actor, g)
		}
	}
}
