// Package hosts is the provider "hosts": nodes are existing machines from an inventory in the
// provider's fields. A machine is handed out when a node is created and taken back when the node is
// deleted. Then an operator's script resets it; if the script fails, the machine is set aside
// (docs/plugins/hosts.md).
//
// The owner of a machine is recorded on the machine itself, in a claim: a small file that is
// created atomically. So agents need no shared state, and the claim on a machine is always the
// truth.
package hosts
