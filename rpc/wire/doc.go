// Package wire connects agents. It has a small network interface, with which tests run a whole mesh
// on simulated conns, and a multiplexer that serves Raft, gRPC and forwarded HTTP on one port.
//
// The port uses mutual TLS, except on loopback in dev mode. The first byte after the handshake names
// the protocol of the conn: 'R' Raft, 'G' gRPC, 'H' forwarded HTTP, 'J' requests to join. All further bytes belong to that
// protocol.
//
//	net := wire.TCP(tlsConfigs)
//	mux, err := wire.NewMux(wire.MuxConfig{Network: net, Addr: "10.0.0.5:55055", Logger: log})
//	transport := wire.NewRaftTransport(mux, addrOf, log)
//	go grpcServer.Serve(mux.GRPC())
//	err = mux.Run(ctx)
//
// Package testing/doubles/fabric has the simulated network for tests.
package wire
