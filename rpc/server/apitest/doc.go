// Package apitest is a simulated mesh for tests of the API and its clients. Any
// number of agents share a store in memory, which numbers its changes and sends
// events about them. There is no Raft and there are no plugins: the test reports the
// results of tasks and the events of runs. The tables about runs are those of real
// meshes.
package apitest
