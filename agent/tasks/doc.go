// Package tasks builds what the leader asks of agents: the tasks of plans and
// of run programs, and health checks.
package tasks
