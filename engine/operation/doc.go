// Package operation prepares operations. From a request and the definitions it derives the
// layout, the future records of the cluster and its nodes, the plan, and the input of each
// task for its plugin.
//
// Nothing here does I/O. Definitions come through model.Lookup, ids from the caller, and the
// result goes to the state as data (docs/architecture.md, "An operation").
package operation
