package state

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/profile"
	pb "github.com/coopr/coopr/rpc/proto"
)

// tenants changes tenants, with their definitions.
type tenants struct{ *writer }

// isSame reports whether a definition needs no new version after its latest, which may be nil. It needs one if its author has a
// right that the author of the latest had not.
func isSame(last *table.DefinitionRow, d *pb.Definition) bool {
	return last != nil && bytes.Equal(last.Body, d.Body) && (last.HostExec || !d.HostExec)
}

func (a tenants) putDefinitions(c *pb.Command, p *pb.PutDefinitions) Answer {
	if err := a.owner(c.Tenant, p); err != nil {
		return Answer{Err: err}
	}
	// All checks come before the first write, so that a refusal changes nothing.
	for _, d := range p.Definitions {
		if last := table.Latest(a.txn, c.Tenant, d.Kind, d.Name); p.CreateOnly && last != nil {
			return refuse(problem.Conflict, "%s %q exists, at version %d", d.Kind, d.Name, last.Version)
		}
		if err := a.sealed().there(c.Tenant, d.Body); err != nil && (d.Kind == string(model.KindProvider) || a.sealed().anywhere()) {
			return Answer{Err: err}
		}
	}
	for _, d := range p.Delete {
		rows := table.List[table.DefinitionRow](a.txn, table.Definitions, "id_prefix", c.Tenant, d.Kind, d.Name)
		switch {
		case len(rows) == 0:
			return refuse(problem.NotFound, "there is no %s/%s", d.Kind, d.Name)
		case d.Version != 0 && !slices.ContainsFunc(rows, func(r *table.DefinitionRow) bool { return r.Version == int(d.Version) }):
			return refuse(problem.NotFound, "%s/%s has no version %d", d.Kind, d.Name, d.Version)
		case !p.UnlessUsed || d.Version != 0 && len(rows) > 1:
			continue // users name definitions without a version
		}
		if users := a.view().UsedBy(c.Tenant, model.Kind(d.Kind), d.Name); len(users) > 0 {
			return refuse(problem.Conflict, "%s/%s is in use by %s: change or delete its users first, or force the deletion", d.Kind, d.Name,
				someOf(users))
		}
	}
	if err := a.mayPut(c.Tenant, p.Definitions, p.UnlessSame); err != nil {
		return Answer{Err: err}
	}
	subject := ""
	for _, d := range p.Definitions {
		last := table.Latest(a.txn, c.Tenant, d.Kind, d.Name)
		subject = d.Kind + "/" + d.Name
		if p.UnlessSame && isSame(last, d) {
			continue
		}
		version := 1
		if last != nil {
			version = last.Version + 1
		}
		if p.NumbersContinue {
			version = a.nextNumber(c.Tenant, d.Kind, d.Name, version)
		}
		surplus := a.surplus(c.Tenant, d.Kind, d.Name)
		a.put(table.Definitions, &table.DefinitionRow{Tenant: c.Tenant, StoredDefinition: model.StoredDefinition{
			Kind: model.Kind(d.Kind), Name: d.Name, Version: version, Body: d.Body, Index: a.index, Author: c.Actor, HostExec: d.HostExec,
		}})
		for _, old := range surplus {
			a.remove(table.Definitions, old)
		}
		a.event(model.Event{Type: "definition.changed", Tenant: c.Tenant, Subject: subject, Status: fmt.Sprintf("version %d", version),
			Actor: c.Actor})
	}
	for _, d := range p.Delete {
		subject = d.Kind + "/" + d.Name
		last := table.Latest(a.txn, c.Tenant, d.Kind, d.Name)
		if p.NumbersContinue && last != nil && (d.Version == 0 || last.Version == int(d.Version)) {
			a.retire(c.Tenant, d.Kind, d.Name, last.Version)
		}
		for _, r := range table.List[table.DefinitionRow](a.txn, table.Definitions, "id_prefix", c.Tenant, d.Kind, d.Name) {
			if d.Version == 0 || r.Version == int(d.Version) {
				a.remove(table.Definitions, r)
			}
		}
		a.event(model.Event{Type: "definition.deleted", Tenant: c.Tenant, Subject: subject, Actor: c.Actor})
	}
	return Answer{Subject: subject}
}

// surplus returns the oldest versions of a definition, which go when one more is written.
func (a tenants) surplus(tenant, kind, name string) []*table.DefinitionRow {
	most := a.limit(tenant, model.LimitVersions)
	if most == 0 {
		return nil
	}
	all := table.List[table.DefinitionRow](a.txn, table.Definitions, "id_prefix", tenant, kind, name)
	return all[:max(len(all)+1-int(most), 0)]
}

// owner returns an error if there is no tenant that the definitions can belong to. The mesh itself has policies
// and no other definitions.
func (a tenants) owner(tenant string, p *pb.PutDefinitions) error {
	if tenant != "" {
		return a.tenant(tenant)
	}
	for _, d := range p.Definitions {
		if d.Kind != string(model.KindPolicies) {
			return problem.New(problem.Invalid, "%s/%s: the mesh itself has policies and no other definitions", d.Kind, d.Name)
		}
	}
	return nil
}

// retire keeps the number of a deleted latest version, so that it is not used again.
func (w *writer) retire(tenant, kind, name string, version int) {
	if old := table.Get[table.RetiredRow](w.txn, table.Retired, "id", tenant, kind, name); old == nil || old.Version < version {
		w.put(table.Retired, &table.RetiredRow{Tenant: tenant, Kind: kind, Name: name, Version: version})
	}
}

// nextNumber returns the number of a new version: next, or a greater one if next was used before.
func (w *writer) nextNumber(tenant, kind, name string, next int) int {
	old := table.Get[table.RetiredRow](w.txn, table.Retired, "id", tenant, kind, name)
	if old == nil {
		return next
	}
	w.remove(table.Retired, old)
	return max(next, old.Version+1)
}

// namedUsers is the number of a definition's users that a refusal names.
const namedUsers = 10

// someOf returns the names of the first users, and how many more there are.
func someOf(users []string) string {
	if more := len(users) - namedUsers; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(users[:namedUsers], ", "), more)
	}
	return strings.Join(users, ", ")
}

func (a tenants) putTenant(c *pb.Command, p *pb.PutTenant) Answer {
	t, err := logformat.DecodeTenant(p.Tenant)
	if err != nil {
		return refuse(problem.Unsupported, "tenant: %v", err)
	}
	if p.CreateOnly && a.tenant(t.Name) == nil {
		return refuse(problem.Conflict, "tenant %q exists", t.Name)
	}
	a.put(table.Tenants, t)
	a.event(model.Event{Type: "tenant.changed", Tenant: t.Name, Subject: t.Name, Actor: c.Actor})
	return Answer{Subject: t.Name}
}

func (a tenants) deleteTenant(c *pb.Command, name string) Answer {
	if err := a.tenant(name); err != nil {
		return Answer{Err: err}
	}
	var living string
	table.Each(a.txn, table.Clusters, "id_prefix", func(cl *model.Cluster) bool {
		if cl.Status != model.ClusterTerminated {
			living = cl.ID
		}
		return living == ""
	}, name)
	if living != "" {
		return refuse(problem.Conflict, "tenant %q still has cluster %s: delete its clusters first", name, living)
	}
	if runs := table.List[profile.Run](a.txn, table.Runs, "tenantup", name); len(runs) > 0 {
		return refuse(problem.Conflict, "tenant %q still has run %s: wait for it, or stop it first", name, runs[0].ID)
	}
	a.removeTenantRows(name)
	a.remove(table.Tenants, &model.Tenant{Name: name})
	a.event(model.Event{Type: "tenant.deleted", Tenant: name, Subject: name, Actor: c.Actor})
	return Answer{Subject: name}
}

// removeTenantRows removes everything that belonged to a tenant, so that a
// later tenant of the same name begins with nothing.
func (a tenants) removeTenantRows(name string) {
	a.removeAll(name, "id_prefix", table.Definitions, table.Retired)
	a.removeAll(name, "actor_prefix", table.Tokens)
	a.removeAll(name, "id_prefix", table.Grants, table.Users)
	for _, c := range table.List[model.Cluster](a.txn, table.Clusters, "id_prefix", name) {
		a.operations().forgetCluster(c, a.remove)
	}
	a.sites().removeSites(name)
	a.resources().removeResources(name)
	a.removeAll(name, "id_prefix", table.Profiles, table.Programs, table.Schedules, table.Preferences, table.Secrets, table.Runs, table.Usages)
	a.removeAll(name, "id_prefix", table.DataKeys, table.Sealed)
}
