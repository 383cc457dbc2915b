// Package nodes measures the overhead of Coopr over SSH: in one run Coopr, a bare SSH client and
// Ansible in turn execute three actions on each machine. Run it with "make bench-ssh";
// docs/benchmarks.md has the results.
package nodes
