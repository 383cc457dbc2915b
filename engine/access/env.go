package access

import (
	"net/netip"
	"slices"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
)

// env is a request as Cedar sees it. It has only those attributes that the policies in question
// read, as making the others would cost more than the decision.
type env struct {
	reads     reads
	request   cedar.Request
	principal types.Entity
	resource  types.Entity
}

// Get returns the principal or the resource; policies see nothing else.
func (e *env) Get(id types.EntityUID) (types.Entity, bool) {
	switch id {
	case e.resource.UID:
		return e.resource, true
	case e.principal.UID:
		return e.principal, true
	}
	return types.Entity{}, false
}

func (e *env) build(p *Principal, x *Resource, a Action, c *Context) {
	e.principal.UID, e.resource.UID = p.uid(), uid(x.Ref)
	e.request = cedar.Request{Principal: e.principal.UID, Action: actionUID(a), Resource: e.resource.UID}
	e.principal.Attributes = record(e.reads.principal, p.attribute)
	if e.reads.groups {
		e.principal.Parents = p.parents()
	}
	if e.principal.UID == e.resource.UID {
		both := e.reads.principal.clone()
		both.join(e.reads.resource)
		e.principal.Attributes = record(both, p.attribute)
		e.principal.Parents = p.parents()
		e.resource = e.principal
	} else {
		e.resource.Attributes = record(e.reads.resource, x.attribute)
		e.resource.Tags = x.labels(&e.reads)
		if e.reads.itself {
			e.resource.Parents = x.parents()
		}
	}
	e.request.Context = record(e.reads.context, func(name string) types.Value { return c.attribute(a, name) })
}

func record(of names, value func(string) types.Value) types.Record {
	if len(of) == 0 {
		return types.Record{}
	}
	m := make(types.RecordMap, len(of))
	for _, name := range of {
		if v := value(name); v != nil {
			m[types.String(name)] = v
		}
	}
	return types.NewRecord(m)
}

// actsFor returns the id of the principal that a token acts for in the end.
func (p *Principal) actsFor() string {
	for p.Maker != nil {
		p = p.Maker
	}
	return p.ID
}

func (p *Principal) attribute(name string) types.Value {
	switch name {
	case "id":
		return types.String(p.actsFor())
	case "name":
		return types.String(p.Name)
	case "tenant":
		return types.String(p.Tenant)
	}
	return nil
}

func (p *Principal) parents() types.EntityUIDSet {
	out := make([]types.EntityUID, 0, len(p.Groups)+1)
	for _, g := range p.Groups {
		out = append(out, uid(Ref{TypeGroup, g}))
	}
	if p.Tenant != "" {
		out = append(out, uid(Ref{TypeTenant, p.Tenant}))
	}
	return types.NewEntityUIDSet(out...)
}

// attribute returns an attribute that the schema knows for the type of resource, or nil.
func (x *Resource) attribute(name string) types.Value {
	a, ok := vocab().Entities[types.EntityType(x.Type)].Shape[types.String(name)]
	if !ok {
		return nil
	}
	if name == "tenant" {
		return types.String(x.Tenant)
	}
	var v any
	if x.Row != nil {
		v = x.Row.Attribute(name)
	}
	switch v := v.(type) {
	case string:
		return types.String(v)
	case int64:
		return types.Long(v)
	case Price:
		d, err := types.NewDecimal(int64(v), -4)
		if err != nil {
			return nil
		}
		return d
	}
	if a.Optional {
		return nil
	}
	return zero(a.Type)
}

func (x *Resource) labels(r *reads) types.Record {
	if len(r.tags) == 0 && !r.allTags || x.Row == nil {
		return types.Record{}
	}
	m := types.RecordMap{}
	for k, v := range x.Row.Labels() {
		if r.allTags || slices.Contains(r.tags, k) {
			m[types.String(k)] = types.String(v)
		}
	}
	return types.NewRecord(m)
}

func (x *Resource) parents() types.EntityUIDSet {
	var out []types.EntityUID
	if x.Tenant != "" && x.Type != TypeTenant {
		out = append(out, uid(Ref{TypeTenant, x.Tenant}))
	}
	if x.Type == TypeAgent {
		out = append(out, meshUID)
	}
	for _, r := range x.In {
		out = append(out, uid(r))
	}
	return types.NewEntityUIDSet(out...)
}

// attribute returns a part of the context that the schema knows for the action, or nil.
func (c *Context) attribute(a Action, name string) types.Value {
	if _, ok := vocab().Actions[actionUID(a)].AppliesTo.Context[types.String(name)]; !ok {
		return nil
	}
	switch name {
	case "now":
		return types.NewDatetimeFromMillis(c.Now)
	case "method":
		return types.String(c.Method)
	case "source":
		if c.Source.IsValid() {
			return types.IPAddr(netip.PrefixFrom(c.Source, c.Source.BitLen()))
		}
	case "after":
		return c.After.record()
	case "label":
		return types.String(c.Label)
	case "value":
		if c.Value != nil {
			return types.String(*c.Value)
		}
	}
	return nil
}

func (a *After) record() types.Record {
	services := make([]types.Value, len(a.Services))
	for i, s := range a.Services {
		services[i] = types.String(s)
	}
	return types.NewRecord(types.RecordMap{
		"name": types.String(a.Name), "size": types.Long(a.Size), "template": types.String(a.Template),
		"provider": types.String(a.Provider), "hardwaretype": types.String(a.HardwareType), "imagetype": types.String(a.ImageType),
		"services": types.NewSet(services...), "lease": types.Long(a.Lease),
	})
}
