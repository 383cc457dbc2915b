package solver

import (
	"slices"

	"github.com/coopr/coopr/engine/model"
)

// Place is the zone and host of a new node; each is empty if no spread determines it.
type Place struct{ Zone, Host string }

// Places returns the places of a group of new nodes, one for each node, in order. The group is an
// element of New.
func (a *Answer) Places(g model.NodeGroup) []Place {
	out := make([]Place, g.Count)
	at := slices.IndexFunc(a.Layout, func(l model.NodeGroup) bool {
		return l.HardwareType == g.HardwareType && l.ImageType == g.ImageType && slices.Equal(l.Services, g.Services)
	})
	zone, host := 0, 0
	for _, p := range a.Placement {
		if p.Group != at {
			continue
		}
		for range p.Count {
			if p.Zone != "" && zone < len(out) {
				out[zone].Zone, zone = p.Zone, zone+1
			}
			if p.Host != "" && host < len(out) {
				out[host].Host, host = p.Host, host+1
			}
		}
	}
	return out
}
