package wire

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coopr/coopr/internal/hclogbridge"
)

// Raft returns the peer port as Raft's stream layer: it accepts conns that start with the Raft byte,
// and starts the conns that it dials with that byte. The library closes the layer together with its
// transport, sometimes late, so each later call returns a new layer for a restarted Raft member.
func (m *Mux) Raft() raft.StreamLayer {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.raftTaken && !m.closed {
		m.raft = newSubListener(m.life, m.advertise)
	}
	m.raftTaken = true
	return raftLayer{subListener: m.raft, mux: m}
}

type raftLayer struct {
	*subListener
	mux *Mux
}

func (l raftLayer) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	// A dial to a silent host must end with the mux and not only at its time-out.
	stop := context.AfterFunc(l.mux.life, cancel)
	defer stop()
	t := parseTarget(string(address))
	t.Voter = true
	return l.mux.dial(ctx, t.String(), ProtocolRaft)
}

// RaftTransport is hashicorp/raft's network transport. Members tell each other their addresses, without the rest of the Target
// by which they are dialled.
type RaftTransport struct{ *raft.NetworkTransport }

// EncodePeer returns an agent's address as messages carry it.
func (t RaftTransport) EncodePeer(id raft.ServerID, addr raft.ServerAddress) []byte {
	return []byte(AddrOf(string(t.NetworkTransport.EncodePeer(id, addr))))
}

// DecodePeer returns the address in a message. Agents of older versions send a whole Target.
func (RaftTransport) DecodePeer(peer []byte) raft.ServerAddress {
	return raft.ServerAddress(AddrOf(string(peer)))
}

// NewRaftTransport returns hashicorp/raft's network transport over the peer port. addrOf returns an
// agent's present address, which the mesh knows: a voter with a new address is found without a change
// of Raft's configuration. If addrOf fails, the address in the configuration is used. Close the
// transport before the mux.
func NewRaftTransport(m *Mux, addrOf func(id string) (string, error), logger *slog.Logger) RaftTransport {
	config := &raft.NetworkTransportConfig{
		Stream:  m.Raft(),
		MaxPool: 3,
		Timeout: 4 * time.Second,
		Logger:  hclogbridge.NewLeveled(logger, quieter).Named("raft-transport"),
		// Both ends are of this module, so only the new format is in use.
		MsgpackUseNewTimeFormat: true,
	}
	if addrOf != nil {
		config.ServerAddressProvider = addressProvider(addrOf)
	}
	return RaftTransport{raft.NewNetworkTransportWithConfig(config)}
}

// quieter lowers the level of the transport's info messages to debug: the agent itself logs
// elections and connections for operators.
func quieter(l slog.Level, _ string) slog.Level {
	if l == slog.LevelInfo {
		return slog.LevelDebug
	}
	return l
}

type addressProvider func(id string) (string, error)

func (f addressProvider) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	addr, err := f(string(id))
	return raft.ServerAddress(Leader(addr, string(id)).String()), err
}
