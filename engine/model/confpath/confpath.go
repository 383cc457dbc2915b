// Package confpath finds values in a cluster's configuration by their paths:
// "shop.web.port".
package confpath

import "strings"

// Lookup returns a path's value. Keys may have dots in them ("fs.defaultFS"): the longest key
// that leads to a value counts.
func Lookup(config map[string]any, path string) (any, bool) {
	return lookup(config, strings.Split(path, "."))
}

func lookup(v any, path []string) (any, bool) {
	if len(path) == 0 {
		return v, true
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, false
	}
	for n := len(path); n > 0; n-- {
		if child, ok := m[strings.Join(path[:n], ".")]; ok {
			if found, ok := lookup(child, path[n:]); ok {
				return found, true
			}
		}
	}
	return nil, false
}
