// Package metrics collects what GET /v1/metrics shows of an agent: its process, its part in Raft, its worker and its
// machine, and, on the leader, the state of the mesh. Values are read when somebody asks for them. docs/metrics.md lists
// all families.
package metrics
