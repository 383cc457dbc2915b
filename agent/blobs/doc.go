// Package blobs keeps the contents of plugin resources on an agent's disk, each
// named by the checksum of the clear content and encrypted, and lays out for a plugin the resources that its task was
// planned with.
//
// A blob is on the disk complete or not at all. Every read first compares the blob
// with its checksum: a blob that the disk has damaged is dropped and fetched again
// from another agent. A worker shows a ticket for that, which the leader makes for a tenant of which it has work.
package blobs
