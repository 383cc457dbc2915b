// Package client talks to the HTTP API of a mesh (rpc/api) from Go.
//
// It knows several agents and needs one that answers. What fails on the way,
// or because there is no leader for a moment, it sends again, writes included:
// every write carries a request id, by which the mesh does it once.
package client
