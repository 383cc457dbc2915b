package state

import (
	"cmp"
	"encoding/hex"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/profile"
	pb "github.com/coopr/coopr/rpc/proto"
)

// refuse returns the answer to a command that is not carried out.
func refuse(code problem.Code, format string, args ...any) Answer {
	return Answer{Err: problem.New(code, format, args...)}
}

// tenant checks that a command's tenant exists. Writes of the mesh itself have no tenant.
func (a *applier) tenant(name string) error {
	if table.Get[model.Tenant](a.txn, table.Tenants, "id", name) == nil {
		return problem.New(problem.NotFound, "there is no tenant %q", name)
	}
	return nil
}

func (a *applier) putDefinitions(c *pb.Command, p *pb.PutDefinitions) Answer {
	if err := a.tenant(c.Tenant); err != nil {
		return Answer{Err: err}
	}
	// All checks come before the first write, so that a refusal changes nothing.
	for _, d := range p.Definitions {
		if last := table.Latest(a.txn, c.Tenant, d.Kind, d.Name); p.CreateOnly && last != nil {
			return refuse(problem.Conflict, "%s %q exists, at version %d", d.Kind, d.Name, last.Version)
		}
	}
	for _, d := range p.Delete {
		if table.Latest(a.txn, c.Tenant, d.Kind, d.Name) == nil {
			return refuse(problem.NotFound, "there is no %s %q", d.Kind, d.Name)
		}
	}
	subject := ""
	for _, d := range p.Definitions {
		last := table.Latest(a.txn, c.Tenant, d.Kind, d.Name)
		subject = d.Kind + "/" + d.Name
		version := 1
		if last != nil {
			version = last.Version + 1
		}
		a.put(table.Definitions, &table.DefinitionRow{Tenant: c.Tenant, StoredDefinition: model.StoredDefinition{
			Kind: model.Kind(d.Kind), Name: d.Name, Version: version, Body: d.Body, Index: a.index,
		}})
		a.event(model.Event{Type: "definition.changed", Tenant: c.Tenant, Subject: subject, Status: fmt.Sprintf("version %d", version),
			Actor: c.Actor})
	}
	for _, d := range p.Delete {
		subject = d.Kind + "/" + d.Name
		for _, r := range table.List[table.DefinitionRow](a.txn, table.Definitions, "id_prefix", c.Tenant, d.Kind, d.Name) {
			if d.Version == 0 || r.Version == int(d.Version) {
				a.remove(table.Definitions, r)
			}
		}
		a.event(model.Event{Type: "definition.deleted", Tenant: c.Tenant, Subject: subject, Actor: c.Actor})
	}
	return Answer{Subject: subject}
}

func (a *applier) putTenant(c *pb.Command, p *pb.PutTenant) Answer {
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

func (a *applier) deleteTenant(c *pb.Command, name string) Answer {
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
	a.removeTenantRuns(name)
	a.remove(table.Tenants, &model.Tenant{Name: name})
	a.event(model.Event{Type: "tenant.deleted", Tenant: name, Subject: name, Actor: c.Actor})
	return Answer{Subject: name}
}

// removeTenantRows removes everything that belonged to a tenant, so that a
// later tenant of the same name begins with nothing.
func (a *applier) removeTenantRows(name string) {
	for _, r := range table.List[table.DefinitionRow](a.txn, table.Definitions, "id_prefix", name) {
		a.remove(table.Definitions, r)
	}
	for _, r := range table.List[table.TokenRow](a.txn, table.Tokens, "id") {
		if r.Tenant == name {
			a.remove(table.Tokens, r)
		}
	}
	for _, o := range table.List[model.Operation](a.txn, table.Operations, "id") {
		if o.Tenant == name {
			a.forget(o)
		}
	}
	for _, n := range table.List[model.Node](a.txn, table.Nodes, "id_prefix", name) {
		a.remove(table.Nodes, n)
	}
	for _, c := range table.List[model.Cluster](a.txn, table.Clusters, "id_prefix", name) {
		a.remove(table.Clusters, c)
	}
	a.removeSites(name)
	a.removeResources(name)
}

func (a *applier) putToken(c *pb.Command, p *pb.PutToken) Answer {
	if err := a.tenant(p.Tenant); err != nil {
		return Answer{Err: err}
	}
	if table.Get[table.TokenRow](a.txn, table.Tokens, "id", p.Id) != nil {
		return refuse(problem.Conflict, "token %q exists", p.Id)
	}
	a.put(table.Tokens, &table.TokenRow{Hash: hex.EncodeToString(p.Hash),
		Token: model.Token{ID: p.Id, Actor: p.Actor, Tenant: p.Tenant, Role: model.Role(p.Role), Created: a.now}})
	a.event(model.Event{Type: "token.changed", Tenant: p.Tenant, Subject: p.Id, Actor: c.Actor})
	return Answer{Subject: p.Id}
}

func (a *applier) deleteToken(c *pb.Command, id string) Answer {
	t := table.Get[table.TokenRow](a.txn, table.Tokens, "id", id)
	if t == nil {
		return refuse(problem.NotFound, "there is no token %q", id)
	}
	a.remove(table.Tokens, t)
	a.event(model.Event{Type: "token.deleted", Tenant: t.Tenant, Subject: id, Actor: c.Actor})
	return Answer{Subject: id}
}

func (a *applier) saveValue(s *pb.SaveValue) Answer {
	e := a.edit(s.Operation)
	if e == nil || int(s.Task) >= e.State().Graph.Len() {
		return refuse(problem.NotFound, "there is no task %s/%d", s.Operation, s.Task)
	}
	if !e.State().Status(s.Task).Held() || e.State().Fence(s.Task) != s.Fence {
		return refuse(problem.Stale, "task %s/%d: the lease is not valid any more", s.Operation, s.Task)
	}
	a.put(table.Values, &table.ValueRow{Node: e.State().Graph.NodeID(int(s.Task)), Key: s.Key, Value: s.Value})
	return Answer{}
}

// part stores a piece of a large command. The last piece completes the command and applies it.
func (a *applier) part(p *pb.Part) Answer {
	a.put(table.Parts, &table.PartRow{ID: p.Id, Number: p.Number, Data: p.Data})
	rows := table.List[table.PartRow](a.txn, table.Parts, "id_prefix", p.Id)
	if p.Number+1 < p.Total {
		return Answer{}
	}
	var data []byte
	for _, r := range rows {
		data = append(data, r.Data...)
		a.remove(table.Parts, r)
	}
	if len(rows) != int(p.Total) {
		return refuse(problem.Stale, "a part of a large command is missing: send it again")
	}
	var c pb.Command
	if err := proto.Unmarshal(data, &c); err != nil || c.Change == nil {
		return refuse(problem.Unsupported, "a large command is damaged: %v", err)
	}
	return a.command(&c)
}

func (a *applier) raise(level uint32, mesh string) Answer {
	m := table.MetaRow{ID: table.TheMeta}
	if old := table.Get[table.MetaRow](a.txn, table.Meta, "id", table.TheMeta); old != nil {
		m = *old
	}
	if level > FeatureLevel {
		return Answer{Err: a.halt(problem.New(problem.Unsupported, "the mesh's feature level is %d, this build's %d: upgrade this agent", level,
			FeatureLevel))}
	}
	m.FeatureLevel = max(m.FeatureLevel, level)
	m.Mesh = cmp.Or(m.Mesh, mesh)
	a.put(table.Meta, &m)
	return Answer{}
}

func (a *applier) prune(p *pb.Prune) Answer {
	for _, id := range p.Operations {
		if o := table.Get[model.Operation](a.txn, table.Operations, "id", id); o != nil && o.Status.Ended() {
			a.forget(o)
		}
	}
	for _, r := range table.List[table.RequestRow](a.txn, table.Requests, "id") {
		if r.Time < p.RequestsBeforeMs {
			a.remove(table.Requests, r)
		}
	}
	for _, id := range p.Parts {
		for _, r := range table.List[table.PartRow](a.txn, table.Parts, "id_prefix", id) {
			a.remove(table.Parts, r)
		}
	}
	a.audit.prune(p.AuditBeforeMs, p.AuditKeep)
	return Answer{}
}

// forget removes an operation and its plan.
func (a *applier) forget(o *model.Operation) {
	delete(a.edits, o.ID)
	if p := table.Get[table.PlanRow](a.txn, table.Plans, "id", o.ID); p != nil {
		a.remove(table.Plans, p)
	}
	a.remove(table.Operations, o)
}
