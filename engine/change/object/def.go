package object

import (
	"cmp"
	"slices"
)

// ID identifies an object within its site: its index in Site.Defs. It stays the same from
// generation to generation. A removed object leaves a hole that a later object may fill; the two
// have different incarnations.
type ID int32

// Site is a compiled site of one generation. It is shared and never changed.
type Site struct {
	Name       string
	Generation uint64
	// CheckInterval is how often objects are checked for drift, in
	// milliseconds; 0 for never.
	CheckInterval int64
	Defs          []Def // by ID; a hole has no name
}

// Def is the definition of one object within its site.
type Def struct {
	Name string
	Host string
	Type *Type
	// Content is a digest of type and content. A changed digest makes the object's state
	// unknown (rule 23).
	Content   uint64
	Needs     []Need
	Out       []ID        // the objects that it depends on, ascending
	In        []Dependent // the objects that depend on it, ascending
	ID        ID
	Preferred State
}

// Dependent is an object that depends on another one. States has one bit for each state that
// it may ever request.
type Dependent struct {
	ID   ID
	Asks uint16
}

// Need is a dependency of one object (rules 7 and 8): to go from state From to state To the
// object must hold Out[Slot] in State. If Hold is set, it must hold it to grant From.
type Need struct {
	Slot     uint32
	From, To State
	State    State
	Hold     bool
	// Drives is true if State is not the preferred state of the provider. Link sets it.
	Drives bool
}

// Find returns the ID of the object with this name.
func (s *Site) Find(name string) (ID, bool) {
	for i := range s.Defs {
		if s.Defs[i].Name == name {
			return ID(i), true
		}
	}
	return 0, false
}

// Covers reports whether a transition dependency applies to a step.
func (n *Need) Covers(from, to State) bool {
	return !n.Hold && (n.From == Any || n.From == from) && (n.To == Any || n.To == to)
}

// Moving calls yield for each dependency of one step.
func (d *Def) Moving(from, to State, yield func(provider ID, in State)) {
	for i := range d.Needs {
		if n := &d.Needs[i]; n.Covers(from, to) {
			yield(d.Out[n.Slot], n.State)
		}
	}
}

// Granting calls yield for each lock that the object must hold to grant a state.
func (d *Def) Granting(s State, yield func(provider ID, in State)) {
	for i := range d.Needs {
		if n := &d.Needs[i]; n.Hold && n.From == s {
			yield(d.Out[n.Slot], n.State)
		}
	}
}

// slot returns the index of a provider in Out.
func (d *Def) slot(id ID) int {
	i, ok := slices.BinarySearch(d.Out, id)
	if !ok {
		return -1
	}
	return i
}

// Link derives the links between definitions: In, the counterpart of every Out, and the needs
// that drive others. The compiler calls it once all definitions are complete.
func (s *Site) Link() {
	count := make([]int, len(s.Defs))
	for i := range s.Defs {
		for _, p := range s.Defs[i].Out {
			count[p]++
		}
	}
	for i := range s.Defs {
		if count[i] > 0 {
			s.Defs[i].In = make([]Dependent, 0, count[i])
		}
	}
	for i := range s.Defs {
		d := &s.Defs[i]
		for j := range d.Needs {
			n := &d.Needs[j]
			n.Drives = n.State != s.Defs[d.Out[n.Slot]].Preferred
		}
	}
	for i := range s.Defs { // ascending, so that every In is
		d := &s.Defs[i]
		for slot, p := range d.Out {
			asks := uint16(0)
			for _, n := range d.Needs {
				if int(n.Slot) == slot {
					asks |= 1 << n.State
				}
			}
			s.Defs[p].In = append(s.Defs[p].In, Dependent{d.ID, asks})
		}
	}
}

func findDependent(in []In, id ID) int {
	i, ok := slices.BinarySearchFunc(in, id, func(s In, id ID) int { return cmp.Compare(s.peer, id) })
	if !ok {
		return -1
	}
	return i
}
