// Package executor carries out leased tasks with the plugins of this agent, and
// serves the machines that those plugins list to the leader.
package executor
