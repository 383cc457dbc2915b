// Package identity is who an agent is and how it proves it: the mesh secret and what is derived from it, the agent's
// own certificate, its persistent id, and the lock on its data directory.
//
// A mesh has one secret of 32 random bytes, printed as a join token. From it every agent derives the same CA, gossip key
// and root API token (docs/decisions/003-mesh-identity.md tells why, and what would change it), and issues itself a
// certificate for its id that lives three days and is renewed while it is used.
package identity
