package lint

import (
	"maps"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/sets"
)

// dependencyCycle returns a cycle of services that depend on each other at one stage (install
// or runtime, required or used), or nil. The first name is repeated as the last. A provided
// name stands for all services that provide it, as in the planner (docs/spec/coopr.md 5.3).
// The argument has the services of one cluster. The result does not depend on the order of the
// map.
func dependencyCycle(services map[string]model.Service) []string {
	providers := map[string][]string{}
	names := slices.Sorted(maps.Keys(services))
	for _, name := range names {
		for _, p := range sets.Unique(services[name].Dependencies.Provides) {
			providers[p] = append(providers[p], name)
		}
	}
	for _, stage := range []func(model.Service) model.Needs{
		func(s model.Service) model.Needs { return s.Dependencies.Install },
		func(s model.Service) model.Needs { return s.Dependencies.Runtime },
	} {
		next := func(name string) []string {
			needs := stage(services[name])
			var to []string
			for _, n := range slices.Concat(needs.Requires, needs.Uses) {
				found := slices.DeleteFunc(slices.Clone(providers[n]), func(p string) bool { return p == name })
				if _, isService := services[n]; isService && len(found) == 0 && n != name {
					found = []string{n}
				}
				to = append(to, found...)
			}
			return to
		}
		if c := circle(names, next); c != nil {
			return c
		}
	}
	return nil
}

// circle finds a circle in a graph by depth-first search, without recursion:
// a chain of services may be long. It starts with the least name in it.
func circle(names []string, next func(string) []string) []string {
	const (
		open = 1
		done = 2
	)
	state := map[string]int{}
	type frame struct {
		name string
		to   []string
	}
	for _, start := range names {
		if state[start] != 0 {
			continue
		}
		stack := []frame{{start, next(start)}}
		state[start] = open
		for len(stack) > 0 {
			top := &stack[len(stack)-1]
			if len(top.to) == 0 {
				state[top.name] = done
				stack = stack[:len(stack)-1]
				continue
			}
			to := top.to[0]
			top.to = top.to[1:]
			switch state[to] {
			case 0:
				state[to] = open
				stack = append(stack, frame{to, next(to)})
			case open:
				i := slices.IndexFunc(stack, func(f frame) bool { return f.name == to })
				var c []string
				for _, f := range stack[i:] {
					c = append(c, f.name)
				}
				least := slices.Index(c, slices.Min(c))
				c = slices.Concat(c[least:], c[:least])
				return append(c, c[0])
			}
		}
	}
	return nil
}

// arrows writes a circle as one reads it: "a → b → a".
func arrows(circle []string) string { return strings.Join(circle, " → ") }
