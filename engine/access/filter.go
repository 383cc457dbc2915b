package access

import (
	"encoding/binary"
	"slices"
)

// maxKinds bounds the decisions that a filter remembers.
const maxKinds = 1024

// Filter decides one action of one principal on many resources of one type, as lists and streams of
// events need it. Resources that are alike in all that the policies read share a decision. A filter is
// for one goroutine, and for one Set: after a change of rights its owner makes another.
type Filter struct {
	set     *Set
	request Request
	grants  bool
	// evaluates is set if the filter is part of its set's memory, which all other filters ask.
	evaluates bool
	// maker is the filter for the principal that a token acts for; nil if there is none.
	maker *Filter
	// tooLong is set if the chain of makers is too long.
	tooLong bool
	// tenant is the tenant whose policies rules and reads are of.
	tenant string
	fit    bool
	rules  []*rule
	reads  reads
	known  map[string]Decision
	key    []byte
	// granters decide for those whose grants were asked about.
	granters map[*Principal]*Filter
}

// Filter returns a filter for a principal, an action, a type of resource, and the circumstances.
func (s *Set) Filter(p *Principal, a Action, t Type, c Context) *Filter {
	f := s.filter(p, a, t, c, true)
	at := f
	for depth := 1; p.Maker != nil; depth++ {
		if depth == maxChain {
			f.tooLong = true
			break
		}
		p = p.Maker
		at.maker = s.filter(p, a, t, c, true)
		at = at.maker
	}
	return f
}

func (s *Set) filter(p *Principal, a Action, t Type, c Context, grants bool) *Filter {
	return &Filter{set: s, grants: grants, request: Request{Principal: p, Action: a, Resource: Resource{Ref: Ref{Type: t}}, Context: c}}
}

// At sets the time of the next decisions, in Unix milliseconds.
func (f *Filter) At(now int64) {
	for ; f != nil; f = f.maker {
		f.request.Context.Now = now
		if slices.Contains(f.reads.context, "now") {
			clear(f.known)
		}
		for _, g := range f.granters {
			g.At(now)
		}
	}
}

// Allows reports whether the action is allowed on a resource, which is of the filter's type.
func (f *Filter) Allows(x *Resource) bool {
	if f.tooLong || f.set.fault != nil && !f.request.Principal.Root && !f.request.Principal.in("superadmin") {
		return false
	}
	for ; f != nil; f = f.maker {
		if !f.one(x) {
			return false
		}
	}
	return true
}

func (f *Filter) one(x *Resource) bool {
	p := f.request.Principal
	if p.Root {
		return true
	}
	if !f.fit || f.tenant != x.Tenant {
		f.cut(x.Tenant)
	}
	d := f.decided(x)
	if d.Allowed {
		return true
	}
	if d.Because != ByNothing || !f.grants || len(f.set.grants) == 0 {
		return false // no grant changes what a forbid policy denies
	}
	f.request.Resource = *x
	for _, g := range f.set.shared(x) {
		if g.isFor(p, &f.request) && f.granter(g.Granter).one(x) {
			return true
		}
	}
	return false
}

// cut selects the policies that can affect decisions about resources of a tenant.
func (f *Filter) cut(tenant string) {
	f.fit, f.tenant, f.rules, f.reads = true, tenant, nil, reads{}
	f.known = map[string]Decision{}
	take := func(tenant string, heeded bool) {
		for _, r := range f.set.cuts[cut{tenant, f.request.Action, f.request.Resource.Type}] {
			if r.fits(f.request.Principal) && (heeded || !r.forbid) {
				f.rules = append(f.rules, r)
				f.reads.join(&r.reads)
			}
		}
	}
	take("", true)
	if tenant != "" {
		take(tenant, !f.request.Principal.Operator())
	}
}

// decided returns the decision without grants, if possible the remembered one.
func (f *Filter) decided(x *Resource) Decision {
	f.request.Resource = *x
	if f.reads.itself || f.reads.allTags || uid(x.Ref) == f.request.Principal.uid() {
		return f.set.one(f.request.Principal, &f.request)
	}
	f.note(x)
	d, ok := f.known[string(f.key)]
	if !ok {
		if f.evaluates {
			d = f.set.one(f.request.Principal, &f.request)
		} else {
			d = f.set.remembered(f.request.Principal, &f.request)
		}
		if len(f.known) == maxKinds {
			clear(f.known)
		}
		f.known[string(f.key)] = d
	}
	return d
}

// note makes the key of a resource: all that the policies read of it, and which scopes it is in.
func (f *Filter) note(x *Resource) {
	key := f.key[:0]
	for _, r := range f.rules {
		if !r.whole {
			b := byte(0)
			if r.covers(x) {
				b = 1
			}
			key = append(key, b)
		}
	}
	text := func(s string) {
		key = binary.AppendUvarint(key, uint64(len(s)))
		key = append(key, s...)
	}
	for _, name := range f.reads.resource {
		if name == "tenant" || x.Row == nil {
			continue // the same for all of this cut, or for all without attributes
		}
		switch v := x.Row.Attribute(name).(type) {
		case string:
			key = append(key, 's')
			text(v)
		case int64:
			key = binary.AppendVarint(append(key, 'i'), v)
		case Price:
			key = binary.AppendVarint(append(key, 'p'), int64(v))
		default:
			key = append(key, 0)
		}
	}
	if len(f.reads.tags) > 0 && x.Row != nil {
		labels := x.Row.Labels()
		for _, name := range f.reads.tags {
			v, ok := labels[name]
			if !ok {
				key = append(key, 0)
				continue
			}
			key = append(key, 1)
			text(v)
		}
	}
	if x.Row == nil {
		key = append(key, 0xff)
	}
	f.key = key
}

func (f *Filter) granter(p *Principal) *Filter {
	g, ok := f.granters[p]
	if !ok {
		g = f.set.filter(p, f.request.Action, f.request.Resource.Type, f.request.Context, false)
		if f.granters == nil {
			f.granters = map[*Principal]*Filter{}
		}
		f.granters[p] = g
	}
	return g
}

// shared returns the grants of a resource and of what it is in.
func (s *Set) shared(x *Resource) []*Grant {
	out := s.grants[x.Ref]
	for _, outer := range x.In {
		if more := s.grants[outer]; len(more) > 0 {
			out = slices.Concat(out, more)
		}
	}
	return out
}
