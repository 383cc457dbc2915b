// Package model defines the domain: tenants, definitions (providers, hardware types, image
// types, services, cluster templates, partial templates), clusters, nodes, operations, tasks
// and their actions. The rules for valid definitions are in the package rules.
//
// JSON keys of definitions are Coopr's own, so that its files load unchanged
// (docs/spec/coopr.md section 3). Nothing here does I/O or reads a clock.
package model
