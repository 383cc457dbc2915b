// Package session connects workers to the leader. Each agent keeps one session with
// the leader, in which it receives tasks, health checks and orders for sites, and
// reports results.
//
// The sender of a session is no work queue (package loop): its send blocks while the agent does
// not keep up, and messages have an order, which keys would lose.
package session
