package model

import "slices"

// Lookup finds definitions of one tenant, the latest version of each.
type Lookup interface {
	// Definition finds one; the value it gives is not to be changed.
	Definition(kind Kind, name string) (Definition, bool)
	// Names gives the names of a kind, in any order.
	Names(kind Kind) []string
}

// Set is a Lookup over definitions in memory.
type Set map[Kind]map[string]Definition

// NewSet returns a set; of two definitions with one name the later counts.
func NewSet(defs ...Definition) Set {
	s := Set{}
	for _, d := range defs {
		s.Add(d)
	}
	return s
}

// Add puts a definition into the set.
func (s Set) Add(d Definition) {
	if s[d.Kind] == nil {
		s[d.Kind] = map[string]Definition{}
	}
	s[d.Kind][d.Name] = d
}

// Definition finds one.
func (s Set) Definition(kind Kind, name string) (Definition, bool) {
	d, ok := s[kind][name]
	return d, ok
}

// Names returns the names of a kind in order.
func (s Set) Names(kind Kind) []string { return sorted(s[kind]) }

// Over is a Lookup that asks top first and then below, which may be nil: the
// world as it will be once top is written.
func Over(top, below Lookup) Lookup {
	if below == nil {
		return top
	}
	return overlay{top, below}
}

type overlay struct{ top, below Lookup }

func (o overlay) Definition(kind Kind, name string) (Definition, bool) {
	if d, ok := o.top.Definition(kind, name); ok {
		return d, true
	}
	return o.below.Definition(kind, name)
}

func (o overlay) Names(kind Kind) []string {
	names := slices.Concat(o.top.Names(kind), o.below.Names(kind))
	slices.Sort(names)
	return slices.Compact(names)
}

// find returns a definition's value with its Go type.
func find[T any](l Lookup, kind Kind, name string) (*T, bool) {
	d, ok := l.Definition(kind, name)
	if !ok {
		return nil, false
	}
	v, ok := d.Value.(*T)
	return v, ok
}
