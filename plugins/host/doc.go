// Package host is the agent's side of plugins: it finds them, reads their descriptors, runs them as
// supervised processes and passes tasks to them.
//
// One process serves all tasks of one version of a plugin, over one stream. The first task starts
// it. It is closed when idle, restarted with back-off when it dies, and never outlives the agent:
// the kernel signals it, its standard input ends, and the next start of the agent kills survivors.
// A task given to Execute always returns: when the process dies or has to be killed, its tasks end
// with OUTCOME_UNKNOWN, or with OUTCOME_NOTHING_DONE if they had not been sent.
//
// Plugins of protocol "exec" use one process per task instead (exec.go).
package host
