package solver

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/coopr/coopr/engine/model"
)

// check records all faults of the input before any search (docs/spec/solver.md "Before solving").
// named are the services that the request names, and path is their place in the input.
func (w *world) check(named []string, path string) {
	w.checkNamed(named, path)
	w.checkDependencies()
	w.checkCycles("install", func(d *model.Dependencies) model.Needs { return d.Install })
	w.checkCycles("runtime", func(d *model.Dependencies) model.Needs { return d.Runtime })
}

func (w *world) fault(path, format string, args ...any) {
	f := model.Fault{Path: path, Message: fmt.Sprintf(format, args...)}
	for _, o := range w.faults {
		if o.Path == f.Path && o.Message == f.Message {
			return
		}
	}
	w.faults = append(w.faults, &f)
}

func (w *world) checkNamed(named []string, path string) {
	compatible := w.in.Template.Compatibility.Services
	for i, s := range named {
		at := fmt.Sprintf("%s[%d]", path, i)
		if _, ok := w.in.Services[s]; !ok {
			w.fault(at, "service %s does not exist", s)
			continue
		}
		if len(compatible) > 0 && !slices.Contains(compatible, s) {
			w.fault(at, "service %s is not compatible with template %s: add it to compatibility.services, or leave it out", s, w.in.Template.Name)
		}
	}
}

// checkDependencies records a fault for each required service that is not on the cluster, neither
// by its own name nor by a provided one, and for each conflict between services.
func (w *world) checkDependencies() {
	provided := map[string]bool{}
	for _, s := range w.services {
		provided[s] = true
		for _, p := range w.in.Services[s].Dependencies.Provides {
			provided[p] = true
		}
	}
	for _, s := range w.services {
		d := w.in.Services[s].Dependencies
		for _, stage := range []struct {
			name  string
			needs []string
		}{{"install", d.Install.Requires}, {"runtime", d.Runtime.Requires}} {
			for i, need := range stage.needs {
				if !provided[need] {
					w.fault(fmt.Sprintf("services.%s.dependencies.%s.requires[%d]", s, stage.name, i),
						"service %s requires %s, which is neither on the cluster nor among the services asked for: add %s", s, need, need)
				}
			}
		}
		for i, c := range d.Conflicts {
			if _, ok := slices.BinarySearch(w.services, c); ok {
				w.fault(fmt.Sprintf("services.%s.dependencies.conflicts[%d]", s, i),
					"service %s conflicts with %s: leave one of them out", s, c)
			}
		}
	}
}

// checkCycles records a fault for each cycle of services that need each other at one stage.
func (w *world) checkCycles(stage string, needs func(*model.Dependencies) model.Needs) {
	provider := map[string][]string{}
	for _, s := range w.services {
		provider[s] = append(provider[s], s)
		for _, p := range w.in.Services[s].Dependencies.Provides {
			if p != s {
				provider[p] = append(provider[p], s)
			}
		}
	}
	const (
		fresh = iota
		open
		closed
	)
	state := map[string]int{}
	var trail []string
	var visit func(s string)
	visit = func(s string) {
		state[s] = open
		trail = append(trail, s)
		d := w.in.Services[s].Dependencies
		n := needs(&d)
		for _, name := range slices.Concat(n.Requires, n.Uses) {
			for _, next := range provider[name] {
				if next == s {
					continue
				}
				switch state[next] {
				case fresh:
					visit(next)
				case open:
					cycle := append(slices.Clone(trail[slices.Index(trail, next):]), next)
					w.fault(fmt.Sprintf("services.%s.dependencies.%s", s, stage),
						"the services need each other in a circle: %s: take one of the dependencies away", strings.Join(cycle, " → "))
				}
			}
		}
		trail = trail[:len(trail)-1]
		state[s] = closed
	}
	for _, s := range w.services {
		if state[s] == fresh {
			visit(s)
		}
	}
}

// sortedUnique returns the names sorted and without duplicates.
func sortedUnique(names []string) []string {
	out := slices.Clone(names)
	sort.Strings(out)
	return slices.Compact(out)
}
