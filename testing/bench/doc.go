// Package bench measures whole meshes: three agents in one process, each with its own log on disk,
// real sockets, a real plugin process. Run it with "make bench"; docs/benchmarks.md has the results
// and the machine.
package bench
