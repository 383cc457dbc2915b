// Package mesh is the mesh in a box: many whole agents in one process, over a
// simulated network, simulated disks and a simulated cloud, in the simulated
// time of testing/synctest. Agents crash, freeze and come back with the data that they had
// stored. Their calls to the cloud are recorded and compared with the promises of the
// architecture (docs/architecture.md, "A task").
//
// A seed chooses the size of the mesh, the network's quality and the faults.
// The Go scheduler and the libraries' own randomness stay outside of it: a seed
// that failed fails again most of the time, not always.
package mesh
