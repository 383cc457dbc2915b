// Package apitest runs the services of an agent for tests of the API and its clients. The state
// is a real one: a Raft member with one vote and all its data in memory, with the controllers
// that the API asks. Any number of agents share it. There are no workers and no plugins: the test
// carries out the tasks, and reports the events of runs.
package apitest
