// Package peer is agent to agent RPC: gRPC over the peer port.
package peer
