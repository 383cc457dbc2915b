package wire

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coopr/coopr/internal/hclogbridge"
)

// Raft is the peer port as Raft's stream layer: conns that opened with the Raft byte, and dials that open with it. The
// library closes the layer with its transport, sometimes late; a Raft member that begins anew gets one of its own.
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
	// A dial to a silent host must not outlive the agent by its time-out.
	stop := context.AfterFunc(l.mux.life, cancel)
	defer stop()
	return l.mux.dial(ctx, string(address), ProtocolRaft)
}

// NewRaftTransport is hashicorp/raft's network transport over the peer port. addrOf says where an agent is now (from
// the mesh): a voter that moved is found without a change of Raft's configuration; where it fails, the address in the
// configuration is used. Close the transport before the mux.
func NewRaftTransport(m *Mux, addrOf func(id string) (string, error), logger *slog.Logger) *raft.NetworkTransport {
	config := &raft.NetworkTransportConfig{
		Stream:  m.Raft(),
		MaxPool: 3,
		Timeout: 10 * time.Second,
		Logger:  hclogbridge.NewLeveled(logger, quieter).Named("raft-transport"),
		// Both ends are of this module: the new format is the only one spoken.
		MsgpackUseNewTimeFormat: true,
	}
	if addrOf != nil {
		config.ServerAddressProvider = addressProvider(addrOf)
	}
	return raft.NewNetworkTransportWithConfig(config)
}

// quieter lowers the level of what Raft's transport reports for information: an
// operator has the agent's own messages about elections and connections.
func quieter(l slog.Level, _ string) slog.Level {
	if l == slog.LevelInfo {
		return slog.LevelDebug
	}
	return l
}

type addressProvider func(id string) (string, error)

func (f addressProvider) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	addr, err := f(string(id))
	return raft.ServerAddress(addr), err
}
