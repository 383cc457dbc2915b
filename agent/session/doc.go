// Package session connects workers to the leader. Each agent keeps one session with
// the leader, in which it receives tasks, health checks and orders for sites, and
// reports results.
package session
