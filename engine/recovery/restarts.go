package recovery

// Service is one service of a node, or one task of a pod.
type Service struct {
	Name string
	// Essential: if it fails, all services of the node restart.
	Essential bool
	// Running is true if it was started and is to keep running. Failed is true if it does not
	// run. Delayed is true if it must not be started again yet.
	Running, Failed, Delayed bool
}

// Restarts returns the services of a node to restart (docs/spec/plans.md §7): all started ones
// if an essential one failed, else the failed ones. While one is delayed, the restart after an
// essential failure waits; other restarts leave it out.
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
