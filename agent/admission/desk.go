package admission

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/coopr/coopr/agent/member"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/identity"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/wire"
)

// Mesh is this agent's part in gossip; *mesh.Mesh implements it.
type Mesh interface {
	member.Mesh
	// SetKeys replaces the keys of gossip: the first one encrypts, and all decrypt.
	SetKeys(keys [][]byte) error
}

// Config configures a Desk.
type Config struct {
	ID         string // this agent's
	Store      *identity.Store
	Ring       Ring
	Lifetime   time.Duration // of certificates
	Names      []string      // host names and addresses of this agent's API
	Gossip     string        // this agent's gossip address
	Network    wire.Network
	Supervisor *member.Supervisor
	Locator    *member.Locator
	Mesh       Mesh
	Registry   *member.Registry
	Peers      member.Peers
	// Hang closes the connections of removed agents.
	Hang   func(over func(identity.Peer) bool)
	Logger *slog.Logger
	// Clock is that by which this agent signs certificates; nil means time.Now.
	Clock func() time.Time
}

// Desk admits agents to the mesh, and keeps the certificates of this one.
type Desk struct {
	cfg     Config
	door    *Door
	renewer *Renewer
	gossip  gossip
}

// New returns the desk of an agent. It is nil for an agent without a membership: in dev mode, or in a mesh whose agents share a
// secret.
func New(cfg Config) *Desk {
	if cfg.Store == nil {
		return nil
	}
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	d := &Desk{cfg: cfg, gossip: gossip{store: cfg.Store, mesh: cfg.Mesh, logger: cfg.Logger}}
	cfg.Registry.Refuse(cfg.Store.Membership().Removed) // before anybody is heard
	d.door = &Door{
		ID: cfg.ID, asking: make(chan struct{}, maxAsking),
		Supervisor: cfg.Supervisor, Locator: cfg.Locator, Ring: cfg.Ring, Lifetime: cfg.Lifetime, Places: d.places, Logger: cfg.Logger,
		Clock:  cfg.Clock,
		Gossip: func() identity.Ring { return cfg.Store.Membership().GossipRing() },
		Leader: func(_ context.Context, addr string) (pb.DoorClient, func(), error) {
			return Dial(cfg.Network, cfg.Store.DoorConfig(), addr)
		},
	}
	d.renewer = &Renewer{
		Store: cfg.Store, Door: d.door, Names: cfg.Names, Network: cfg.Network, Voters: d.voters, Record: d.record,
		due: make(chan struct{}, 1), Renewed: d.renewed, Logger: cfg.Logger,
	}
	return d
}

// Run answers agents at a listener and renews this agent's certificates, until ctx ends.
func (d *Desk) Run(ctx context.Context, l net.Listener) error {
	if d == nil {
		<-ctx.Done()
		return nil
	}
	server := grpc.NewServer(grpc.Creds(wire.Credentials()), grpc.MaxRecvMsgSize(64<<10), grpc.ConnectionTimeout(askTimeout),
		grpc.MaxConcurrentStreams(8),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: askTimeout, MaxConnectionAge: 3 * askTimeout}))
	pb.RegisterDoorServer(server, d.door)
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	var g errgroup.Group
	g.Go(func() error {
		if err := server.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) && !errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("serve agents that join: %w", err)
		}
		return nil
	})
	g.Go(func() error { return d.renewer.Run(ctx) })
	return g.Wait()
}

// Update brings what this agent keeps of the mesh up to date with the state, and refuses agents that were removed.
func (d *Desk) Update(removed []string) {
	if d == nil {
		return
	}
	m := d.cfg.Store.Membership()
	next := *m
	next.Removed = union(m.Removed, removed)
	ring := d.cfg.Registry.Gossip()
	if err := next.Follow(ring); err != nil {
		d.cfg.Logger.Error("this agent did not take the keys of gossip from the leader", "error", err)
		ring = identity.Ring{}
	}
	bundle := d.cfg.Registry.Bundle()
	if own := d.cfg.Supervisor.Member(); own != nil {
		v := own.Machine.View()
		if mesh := v.MeshIdentity(); mesh != nil && mesh.Mesh == m.Mesh {
			if _, err := authority(d.cfg.Ring, mesh.Mesh, mesh.CAs[0], mesh.SealedCA); err == nil {
				next.Birth = nil // what the state has can be opened
			}
			if b := member.Bundle(v); b.Version >= max(m.CAVersion, bundle.Version) { // a state from a snapshot may be older
				if bundle = b; m.Role == identity.Voter {
					next.SealedCA = mesh.SealedCA
				}
			}
		}
	}
	next.Trust(bundle)
	next.Peers = slices.Sorted(slices.Values(d.voters()))
	var addrs []string
	for _, id := range next.Removed {
		if addr, err := member.PeerAddr(d.cfg.Mesh, id); err == nil {
			addrs = append(addrs, addr)
		}
	}
	if same(m, &next) {
		return
	}
	err := d.cfg.Store.Change(func(m *identity.Membership) {
		m.Removed, m.Birth, m.SealedCA, m.Peers = next.Removed, next.Birth, next.SealedCA, next.Peers
		m.Trust(bundle)
		_ = m.Follow(ring) // it was checked
	})
	if err != nil {
		d.cfg.Logger.Error("this agent could not write its identity", "error", err)
	}
	d.renewed()
	d.renewer.notify()
	for _, addr := range addrs {
		d.cfg.Peers.Drop(addr)
	}
}

// renewed has gossip and connections follow what the agent keeps of the mesh: a renewal may have brought keys of gossip and CAs, too.
func (d *Desk) renewed() {
	d.gossip.use()
	d.cfg.Hang(func(p identity.Peer) bool {
		return slices.Contains(d.cfg.Store.Membership().Removed, p.ID) || !d.cfg.Store.Trusts(p)
	})
}

// union returns two lists of ids as one. An agent that was removed stays so, whatever an older state says.
func union(a, b []string) []string {
	out := slices.Concat(a, b)
	slices.Sort(out)
	return slices.Compact(out)
}

func same(a, b *identity.Membership) bool {
	return slices.Equal(a.Removed, b.Removed) && (a.Birth == nil) == (b.Birth == nil) && slices.EqualFunc(a.CAs, b.CAs, bytes.Equal) &&
		bytes.Equal(a.SealedCA, b.SealedCA) && slices.Equal(a.Peers, b.Peers) &&
		slices.EqualFunc(a.Bridges, b.Bridges, bytes.Equal) && a.CAVersion == b.CAVersion &&
		a.GossipRing().Version == b.GossipRing().Version
}

// Server serves voters that have signed certificates without a leader, and agents that come back.
type Server struct{ Desk *Desk }

// RecordKeys records the keys of such certificates. Leader only.
func (s Server) RecordKeys(ctx context.Context, r *pb.RecordKeys) (*pb.RecordKeysResponse, error) {
	if s.Desk == nil {
		return nil, status.Error(codes.FailedPrecondition, "the agents of this mesh sign their certificates themselves")
	}
	if err := s.Desk.door.recordKeys(ctx, r); err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return &pb.RecordKeysResponse{}, nil
}

// record passes keys on to the leader.
func (d *Desk) record(ctx context.Context, keys *pb.RecordKeys) error {
	if _, _, leads := d.cfg.Supervisor.Leader(); leads {
		return d.door.recordKeys(ctx, keys)
	}
	ctx, cancel := context.WithTimeout(ctx, leaderTimeout)
	defer cancel()
	id, addr, err := d.cfg.Locator.Leader(ctx)
	if err != nil {
		return err
	}
	c, err := d.cfg.Peers.Client(wire.Leader(addr, id).String())
	if err != nil {
		return err
	}
	_, err = c.RecordKeys(ctx, keys)
	return err
}

// voters returns peer addresses of voters, in random order. Gossip has no say in who is one.
func (d *Desk) voters() []string {
	var out []string
	if m := d.cfg.Supervisor.Member(); m != nil && m.Group.Member() {
		for _, s := range m.Group.Servers() {
			if s.ID != d.cfg.ID {
				addr, err := member.PeerAddr(d.cfg.Mesh, s.ID)
				if err != nil {
					addr = s.Addr
				}
				out = append(out, addr)
			}
		}
	} else {
		for _, a := range d.cfg.Registry.Agents() {
			if a.Eligible && a.Alive && a.ID != d.cfg.ID && a.PeerAddr != "" {
				out = append(out, a.PeerAddr)
			}
		}
	}
	if len(out) == 0 {
		out = slices.Clone(d.cfg.Store.Membership().Peers)
	}
	rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// Peers returns peer addresses of voters, for join tokens.
func (d *Desk) Peers() []string {
	if d == nil {
		return nil
	}
	peers, _ := d.places()
	return peers[:min(len(peers), 5)] // a token is copied by hand
}

// ServesOthers reports whether the agent at the other end of a conn may serve the API to clients on other machines.
func (d *Desk) ServesOthers(conn net.Conn) bool {
	if d == nil {
		return true
	}
	p, err := identity.PeerOf(conn)
	if err != nil || p.Role == identity.Voter {
		return err == nil
	}
	m := d.cfg.Supervisor.Member()
	if m == nil {
		return false
	}
	who, ok := m.Machine.View().Identity(p.ID)
	return ok && who.API
}

// maxPlaces bounds the addresses that a newcomer receives.
const maxPlaces = 32

// places returns the peer addresses of voters, as the Raft group has them, and the gossip addresses of agents.
func (d *Desk) places() (peers, addresses []string) {
	m := d.cfg.Supervisor.Member()
	if m == nil {
		return nil, nil
	}
	for _, s := range m.Group.Servers() {
		peers = append(peers, s.Addr)
	}
	return peers, seeds(d.cfg.Gossip, m.Machine.View().Agents())
}

// seeds returns the gossip addresses of some agents that are alive. This agent's own comes first: a mesh that has just begun has no record
// of any agent yet, and a newcomer without an address would stay alone for good.
func seeds(own string, agents []model.Agent) []string {
	out := []string{own}
	for _, a := range agents {
		if a.Alive && a.GossipAddr != "" && a.GossipAddr != own && len(out) < maxPlaces {
			out = append(out, a.GossipAddr)
		}
	}
	return out
}
