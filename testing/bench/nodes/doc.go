// Package nodes measures what Coopr adds to work over SSH: machines get three
// actions each from us, from a bare SSH client, and from Ansible, in turns in one run.
// Run it with "make bench-ssh"; docs/benchmarks.md records what came out.
package nodes
