// Package worker takes leases from the leader, has them carried out by
// plugins, and reports what became of them, whatever happens to either side.
//
// A lease is written to the journal before a plugin is called and its result
// after; the entry goes when the leader has confirmed the commit. A session
// that breaks is opened again with whoever leads, and begins with all that the
// worker holds. A worker that cannot reach a leader stops before its leases can
// end (docs/architecture.md, "A task").
package worker
