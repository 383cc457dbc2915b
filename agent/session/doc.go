// Package session joins workers to the leader: each agent keeps one session with
// the leader, in which it takes tasks, health checks and orders for sites, and
// reports results.
package session
