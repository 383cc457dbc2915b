// Package peer is RPC between agents: gRPC over the peer port.
package peer
