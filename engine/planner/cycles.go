package planner

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
)

// CycleError is a cycle of services that depend on each other.
type CycleError struct {
	// Install is true if the dependencies are install-time, and false if they are run-time.
	Install bool
	// Services are the cycle, each depending on the next and the last on the first.
	Services []string
}

// Error returns the cycle and what to do about it.
func (e *CycleError) Error() string {
	stage := "run-time"
	if e.Install {
		stage = "install-time"
	}
	return fmt.Sprintf("services depend on each other in a circle (%s): %s -> %s: remove one of these dependencies",
		stage, strings.Join(e.Services, " -> "), e.Services[0])
}

// CheckCycles returns a *CycleError for the first dependency cycle among services, or nil. Provided
// names are resolved. Definitions are checked when they are written (docs/spec/planner.md,
// "Operations").
func CheckCycles(services map[string]model.Service) error {
	names := slices.Sorted(maps.Keys(services))
	p := newProviders(names, services)
	for _, install := range []bool{true, false} {
		if err := newRelations(names, services, p, install).cycle(names, install); err != nil {
			return err
		}
	}
	return nil
}

// cycle returns the shortest cycle through the first service that is on one.
func (r *relations) cycle(names []string, install bool) error {
	for start := range names {
		if !r.reaches[start].has(start) {
			continue
		}
		from := make(map[int]int)
		queue := []int{start}
		for len(queue) > 0 {
			s := queue[0]
			queue = queue[1:]
			for _, d := range r.direct[s] {
				if d == start {
					path := []string{names[s]}
					for s != start {
						s = from[s]
						path = append(path, names[s])
					}
					slices.Reverse(path)
					return &CycleError{Install: install, Services: path}
				}
				if _, seen := from[d]; !seen {
					from[d] = s
					queue = append(queue, d)
				}
			}
		}
	}
	return nil
}

// ExpandServices widens the services of an operation: start adds all services on which they depend
// at run time, stop and restart add all services that depend on them (docs/spec/coopr.md 5.4). nil
// stays nil and means all. The result is sorted and leaves out names that are not in all.
func ExpandServices(op model.OperationType, services []string, all map[string]model.Service) []string {
	if services == nil {
		return nil
	}
	names := slices.Sorted(maps.Keys(all))
	p := newProviders(names, all)
	set := newBitset(len(names))
	for _, s := range services {
		if i, ok := p.index[s]; ok {
			set.set(i)
		}
	}
	expand(op, set, newRelations(names, all, p, false))
	out := make([]string, 0, len(services))
	for i, name := range names {
		if set.has(i) {
			out = append(out, name)
		}
	}
	return out
}

func expand(op model.OperationType, set bitset, runtime *relations) {
	switch op {
	case model.OpStart:
		spread(set, runtime.direct)
	case model.OpStop, model.OpRestart:
		spread(set, inverse(runtime.direct))
	}
}
