package raftgroup

import (
	"fmt"

	"github.com/hashicorp/raft"
)

// Campaign makes this member stand for election now instead of after a silence of up to two heartbeat
// time-outs. A caller uses it when it knows that no other member can be leading: after it has started
// a group, or on the only voter. If Campaign fails, the member stands for election after the usual
// silence.
//
// The library has no such call, so Campaign sends the member the message with which a leader transfers
// its leadership.
func (g *Group) Campaign() error {
	local := g.trans.LocalAddr()
	req := &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{
		ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(g.cfg.ID), Addr: g.trans.EncodePeer(raft.ServerID(g.cfg.ID), local),
	}}
	if err := g.trans.TimeoutNow(raft.ServerID(g.cfg.ID), local, req, &raft.TimeoutNowResponse{}); err != nil {
		return fmt.Errorf("stand for election: %w", err)
	}
	return nil
}
