// Package client is the Go client of the HTTP API of a mesh.
//
// A Client knows the addresses of several agents and needs only one that answers. It repeats
// requests that fail because an agent cannot be reached, or because there is no leader at the
// moment. It repeats writes too: each write carries a request id, so that the mesh carries it out
// only once.
package client
