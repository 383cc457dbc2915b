// Package operation prepares what an operation does: from a request and the
// definitions to a layout, the cluster and nodes as they will be, and the plan;
// and what each task of it carries to its plugin.
//
// Nothing here does I/O: definitions come through model.Lookup, ids from the
// caller, and the result goes to the state as data (docs/architecture.md,
// "An operation").
package operation
