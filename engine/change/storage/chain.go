package storage

import "github.com/coopr/coopr/engine/change"

// LongestChain counts the transitions on the longest chain of those that follow
// from one another when a site comes up from nothing: no run is shorter.
func LongestChain(s *change.Site) int {
	depth := make([]int, len(s.Defs))
	var walk func(id change.ID) int
	walk = func(id change.ID) int {
		d := &s.Defs[id]
		if d.Name == "" || d.Type.Priority[0] == d.Preferred || depth[id] > 0 {
			return depth[id]
		}
		below := 0
		d.Moving(d.Type.Priority[0], d.Preferred, func(p change.ID, in change.State) {
			if in == s.Defs[p].Preferred {
				below = max(below, walk(p))
			}
		})
		depth[id] = below + 1
		return depth[id]
	}
	most := 0
	for i := range s.Defs {
		most = max(most, walk(change.ID(i)))
	}
	return most
}
