// Package service implements the routes of the API, with one small type for each noun. A type
// reads this agent's copy of the replicated state, commits commands while the agent leads, and
// calls the leader's duties. rpc/server declares the interfaces that these types implement.
package service
