// Package identity manages the identity of an agent: the mesh secret and the keys that are derived
// from it, the agent's own certificate, its persistent id, and the lock on its data directory.
//
// A mesh has one secret of 32 random bytes, printed as a join token. Every agent derives the same
// CA, gossip key and root API token from it (docs/decisions/003-mesh-identity.md has the reasons).
// Every agent issues itself a certificate for its id. The certificate is valid for three days and
// is renewed while it is used.
package identity
