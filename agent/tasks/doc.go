// Package tasks builds the tasks that the leader sends to agents: those of plans and
// of run programs, and health checks.
package tasks
