package sitegen

import "github.com/coopr/coopr/engine/change/object"

// LongestChain returns the number of transitions on the longest chain of dependent
// transitions when a site comes up from nothing. No run can be shorter.
func LongestChain(s *object.Site) int {
	return int(LongestTime(s, func(object.ID) int64 { return 1 }))
}

// LongestTime returns the time of the slowest chain when a site comes up from nothing.
// The function takes returns the time of each object, in any unit.
func LongestTime(s *object.Site, takes func(object.ID) int64) int64 {
	over := make([]int64, len(s.Defs))
	seen := make([]bool, len(s.Defs))
	var walk func(id object.ID) int64
	walk = func(id object.ID) int64 {
		d := &s.Defs[id]
		if d.Name == "" || d.Type.Priority[0] == d.Preferred || seen[id] {
			return over[id]
		}
		seen[id] = true
		below := int64(0)
		d.Moving(d.Type.Priority[0], d.Preferred, func(p object.ID, in object.State) {
			if in == s.Defs[p].Preferred {
				below = max(below, walk(p))
			}
		})
		over[id] = below + takes(id)
		return over[id]
	}
	most := int64(0)
	for i := range s.Defs {
		most = max(most, walk(object.ID(i)))
	}
	return most
}
