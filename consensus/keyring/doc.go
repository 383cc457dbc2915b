// Package keyring holds the keys of a mesh, and encrypts with them.
//
// A mesh has numbered mesh keys, one of which is active. Each voter has all of them in a keyring outside its
// data directory; the log, snapshots and backups never have one. The mesh keys encrypt data keys, one for each
// tenant and one for the mesh itself, and these encrypt values. Encrypted data keys and values are rows of the
// state, so a copy of the state is worth nothing without a keyring.
//
// The keyring is a file that only its owner can read. Of some kinds it is encrypted itself, with a local key of the host (Of).
//
// Everything is encrypted with AES-256-GCM. What is encrypted is bound to additional data, such as the place
// where it belongs, and cannot be moved to another one.
package keyring
