package admission

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coopr/coopr/agent/member"
	"github.com/coopr/coopr/rpc/identity"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/wire"
)

// gossip has gossip use the keys that the agent's membership has.
type gossip struct {
	store    *identity.Store
	mesh     Mesh
	logger   *slog.Logger
	mu       sync.Mutex
	followed atomic.Uint64 // the version of the keys in use
}

// use has gossip use the keys of the membership.
func (g *gossip) use() {
	g.mu.Lock()
	defer g.mu.Unlock()
	ring := g.store.Membership().GossipRing()
	if err := g.mesh.SetKeys(ring.Keys); err != nil {
		g.logger.Error("the keys of gossip could not be replaced", "error", err)
		return
	}
	if old := g.followed.Swap(ring.Version); old != ring.Version {
		g.logger.Info("gossip uses the keys of a rotation", "version", ring.Version, "keys", len(ring.Keys))
	}
}

// Followed returns the version of the keys that gossip uses, and that of the CAs if the first one of them has signed the agent's
// certificates.
func (d *Desk) Followed() (gossip, cas uint64) {
	if d == nil {
		return 0, 0
	}
	if cas = d.cfg.Store.Membership().CAVersion; d.cfg.Store.Outdated() {
		cas = 0
	}
	return d.gossip.followed.Load(), cas
}

// prepareTimeout bounds how long gossip waits for answers of voters before it starts.
const prepareTimeout = 2 * time.Second

// Prepare asks voters for the keys of gossip before it starts: they may have been replaced while this agent was away. If no voter
// answers, gossip starts with the keys that the agent has, and the leader sends it the others.
func (d *Desk) Prepare(ctx context.Context) {
	if d == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, prepareTimeout)
	defer cancel()
	var all errgroup.Group
	for _, addr := range d.voters() {
		all.Go(func() error {
			if err := d.fetchGossip(ctx, addr); err != nil {
				d.cfg.Logger.Debug("a voter did not answer with the keys of gossip", "addr", addr, "error", err)
			}
			return nil
		})
	}
	_ = all.Wait() // no function returns an error
	d.gossip.use()
	d.renewer.notify() // the answers may have shown that the mesh has another CA
}

// fetchGossip takes the keys of gossip from the voter at a peer address, if they are newer than those of this agent.
func (d *Desk) fetchGossip(ctx context.Context, addr string) error {
	c, err := d.cfg.Peers.Client(wire.Target{Addr: addr, Voter: true}.String())
	if err != nil {
		return err
	}
	answer, err := c.Gossip(ctx, &pb.GossipRequest{})
	if err != nil {
		return err
	}
	ring := *member.GossipRing(answer)
	next := *d.cfg.Store.Membership()
	if next.GossipRing().Version >= ring.Version {
		return nil
	}
	if err := next.Follow(ring); err != nil {
		return err
	}
	return d.cfg.Store.Change(func(m *identity.Membership) { _ = m.Follow(ring) }) // it was checked
}

// Gossip returns the keys of gossip. Connections of agents that were removed are refused before.
func (s Server) Gossip(context.Context, *pb.GossipRequest) (*pb.GossipRing, error) {
	if s.Desk == nil {
		return nil, status.Error(codes.FailedPrecondition, "the key of gossip of this mesh is not replaced: its agents share a secret")
	}
	return gossipRing(s.Desk.cfg.Store.Membership().GossipRing()), nil
}

func gossipRing(r identity.Ring) *pb.GossipRing {
	return &pb.GossipRing{Version: r.Version, Keys: r.Keys}
}
