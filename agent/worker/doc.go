// Package worker takes leases from the leader, has plugins carry them out, and reports the
// results, even if the leader or the agent fails meanwhile.
//
// A lease is written to the journal before its plugin is called, and the result after. The
// entry is removed when the leader has confirmed the commit. If a session breaks, the worker
// opens another one with the present leader, and begins it with everything that it holds. A
// worker that cannot reach a leader stops before its leases can end (docs/architecture.md,
// "A task").
//
// Health checks run on the shared work queue (package loop). The session is a stream pump
// with a heartbeat, and the fence one deadline: neither has keys to reconcile.
package worker
