package storage

import "github.com/coopr/coopr/engine/change"

// LongestChain counts the transitions on the longest chain of those that follow
// from one another when a site comes up from nothing: no run is shorter.
func LongestChain(s *change.Site) int {
	return int(LongestTime(s, func(change.ID) int64 { return 1 }))
}

// LongestTime is the time of the chain that takes longest, where coming up takes
// each object as long as it says, in any unit.
func LongestTime(s *change.Site, takes func(change.ID) int64) int64 {
	over := make([]int64, len(s.Defs))
	seen := make([]bool, len(s.Defs))
	var walk func(id change.ID) int64
	walk = func(id change.ID) int64 {
		d := &s.Defs[id]
		if d.Name == "" || d.Type.Priority[0] == d.Preferred || seen[id] {
			return over[id]
		}
		seen[id] = true
		below := int64(0)
		d.Moving(d.Type.Priority[0], d.Preferred, func(p change.ID, in change.State) {
			if in == s.Defs[p].Preferred {
				below = max(below, walk(p))
			}
		})
		over[id] = below + takes(id)
		return over[id]
	}
	most := int64(0)
	for i := range s.Defs {
		most = max(most, walk(change.ID(i)))
	}
	return most
}
