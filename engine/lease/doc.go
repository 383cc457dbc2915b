// Package lease has the rules of sessions, leases and fences (docs/decisions/004-leases.md) as functions
// on small values. The replicated state, the dispatcher and the worker call them where they decide.
package lease
