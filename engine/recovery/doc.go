// Package recovery decides what is done for the nodes and services of a cluster
// that fail: what is restarted in place, what is made anew elsewhere, what
// waits and for what (docs/spec/plans.md §7, §8; docs/decisions/023-recovery.md).
package recovery
