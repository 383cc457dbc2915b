package model

import (
	"maps"
	"slices"
)

// Lookup returns definitions of one tenant, in their latest versions.
type Lookup interface {
	// Definition returns a definition. The caller must not change its value.
	Definition(kind Kind, name string) (Definition, bool)
	// Names returns the names of a kind, in any order.
	Names(kind Kind) []string
}

// Set is a Lookup over definitions in memory.
type Set map[Kind]map[string]Definition

// NewSet returns a set. Of two definitions with the same name the later one counts.
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

// Definition returns a definition.
func (s Set) Definition(kind Kind, name string) (Definition, bool) {
	d, ok := s[kind][name]
	return d, ok
}

// Names returns the names of the definitions of a kind, sorted.
func (s Set) Names(kind Kind) []string { return slices.Sorted(maps.Keys(s[kind])) }

// Over returns a Lookup that asks top first and then below, which may be nil. It shows the
// definitions as they will be once those of top are written.
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

// Find returns a definition's value with its Go type.
func Find[T any](l Lookup, kind Kind, name string) (*T, bool) {
	d, ok := l.Definition(kind, name)
	if !ok {
		return nil, false
	}
	v, ok := d.Value.(*T)
	return v, ok
}
