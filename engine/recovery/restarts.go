package recovery

// Service is one service of a node, or task of a pod, as far as restarts care.
type Service struct {
	Name string
	// Essential: all of the node is restarted when it fails.
	Essential bool
	// Running says that it was launched and is to run on; Failed that it does not;
	// Delayed that it may not be tried again yet.
	Running, Failed, Delayed bool
}

// Restarts returns which services of a node are restarted (docs/spec/plans.md §7): where an
// essential one failed, all that were launched; else those that failed. As long as one is
// delayed, an essential failure waits; others just leave it out.
func Restarts(services []Service) []string {
	essential, delayed := false, false
	for _, s := range services {
		essential = essential || s.Failed && s.Essential
		delayed = delayed || s.Delayed
	}
	if essential && delayed {
		return nil
	}
	var out []string
	for _, s := range services {
		if s.Failed && !s.Delayed || essential && s.Running {
			out = append(out, s.Name)
		}
	}
	return out
}
