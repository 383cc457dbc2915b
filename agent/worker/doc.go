// Package worker takes leases from the leader, has plugins carry them out, and reports the
// results, even if the leader or the agent fails meanwhile.
//
// A lease is written to the journal before its plugin is called, and the result after. The
// entry is removed when the leader has confirmed the commit. If a session breaks, the worker
// opens another one with the present leader, and begins it with everything that it holds. A
// worker that cannot reach a leader stops before its leases can end (docs/architecture.md,
// "A task").
//
// Health checks, the fence and the sweeps of logs run on the shared work queue (package loop).
// The session does not: it pumps a stream, and its send blocks while the leader does not keep up.
// Its messages have an order, which keys would lose.
package worker
