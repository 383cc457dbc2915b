// Package recovery decides what to do about failing nodes and services of a cluster: which
// services are restarted in place, which nodes are replaced, and which wait, and for what
// (docs/spec/plans.md §7, §8; docs/decisions/023-recovery.md).
package recovery
