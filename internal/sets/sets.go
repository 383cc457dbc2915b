// Package sets treats lists of names as sets.
package sets

import "slices"

// Unique returns the names of a list in their order, without duplicates.
func Unique(names []string) []string {
	var out []string
	seen := make(map[string]bool, len(names))
	for _, n := range names {
		if !seen[n] {
			seen[n] = true
			out = append(out, n)
		}
	}
	return out
}

// Contains reports whether a list has all of the names.
func Contains(list, names []string) bool {
	return !slices.ContainsFunc(names, func(n string) bool { return !slices.Contains(list, n) })
}

// Equal reports whether two lists have the same names.
func Equal(a, b []string) bool { return slices.Equal(sorted(a), sorted(b)) }

func sorted(names []string) []string { return slices.Compact(slices.Sorted(slices.Values(names))) }
