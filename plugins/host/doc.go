// Package host is the agent's side of plugins: it finds them, knows what they
// offer, runs them as supervised processes and carries tasks to them.
//
// One process serves all tasks of one version of a plugin, over one stream.
// It is started by the first task, closed when idle, restarted with back-off
// when it dies, and never outlives the agent: the kernel signals it, its
// standard input ends, and what still survives is reaped at the next start.
// A task given to Execute always comes back: when the process dies or must be
// killed, its tasks end with OUTCOME_UNKNOWN, or with OUTCOME_NOTHING_DONE when
// they had not been sent.
//
// Plugins of protocol "exec" are a process per task instead (exec.go).
package host
