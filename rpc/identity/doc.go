// Package identity manages what an agent is known by: its id, its key and certificates, the join token with which it got them,
// and the lock on its data directory.
//
// A mesh has a CA, whose key voters have. An agent joins with a token and gets certificates that name the mesh, the agent's role
// and its id, last a day and are renewed (docs/decisions/070-identity.md has the reasons).
//
// In an older mesh, all agents share a secret of 32 bytes, from which each derives the same CA, key of gossip and root token. Each
// issues certificates to itself (docs/decisions/003-mesh-identity.md).
package identity
