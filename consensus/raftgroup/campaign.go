package raftgroup

import (
	"fmt"

	"github.com/hashicorp/raft"
)

// Campaign makes this member stand for election now, not after a silence of up
// to two heartbeat time-outs. It is for who knows that nobody can be leading:
// the one that has just started a group, or its only voter. Where it fails, the
// silence does the same a little later.
//
// The library has no such call; a leader that hands over sends this message.
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
