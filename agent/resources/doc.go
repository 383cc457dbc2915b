// Package resources keeps the contents of plugin resources on an agent's disk, each
// under the checksum of what is in it, and lays out before a plugin those that its task
// was planned with.
//
// A content is on the disk whole or not at all. Whatever is read is compared with its
// checksum first: what the disk has spoilt is dropped and fetched anew from another agent.
package resources
