// Package model holds the words of the field: tenants, definitions (providers,
// hardware types, image types, services, cluster templates, partial
// templates), clusters, nodes, operations and the actions of tasks, with the
// rules that say when one of them is well formed.
//
// JSON keys of definitions are Coopr's own, so that its files load unchanged
// (docs/spec/coopr.md section 3). Nothing here does I/O or reads a clock.
package model
