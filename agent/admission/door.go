package admission

import (
	"context"
	"crypto/ed25519"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coopr/coopr/agent/member"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/identity"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Door answers agents that have no valid certificate. Only voters open it for them.
type Door struct {
	pb.UnimplementedDoorServer
	ID         string // this agent's
	Supervisor *member.Supervisor
	Locator    *member.Locator
	Ring       Ring
	Lifetime   time.Duration // of certificates
	// Leader returns a client of the leader's door.
	Leader func(ctx context.Context, addr string) (pb.DoorClient, func(), error)
	// Gossip returns the keys of gossip that this agent has.
	Gossip func() identity.Ring
	// Places returns peer addresses of voters, and gossip addresses of agents.
	Places func() (peers, seeds []string)
	Logger *slog.Logger
	Clock  func() time.Time

	asking chan struct{} // requests that are passed on to the leader, at most so many

	mu sync.Mutex
	// renewed are the keys that this voter has signed and no leader has recorded yet, by agent.
	renewed map[string]signed
}

// signed is a key that a voter has certified.
type signed struct {
	key    string
	issued int64
}

// maxAsking bounds the requests of newcomers that a voter passes on at a time: they must not keep it from the leader.
const maxAsking = 16

// maxRequest bounds a certificate request in bytes, maxAPINames the names in it.
const (
	maxRequest  = 4096
	maxAPINames = 32
)

// leaderTimeout is how long a voter waits for the leader before it renews by itself.
const leaderTimeout = 2 * time.Second

var _ pb.DoorServer = (*Door)(nil)

// Join admits an agent that has a join token.
func (d *Door) Join(ctx context.Context, r *pb.JoinRequest) (*pb.Admission, error) {
	if len(r.Csr) > maxRequest || len(r.ApiCsr) > maxRequest || len(r.Names) > maxAPINames {
		return nil, status.Error(codes.InvalidArgument, "the request is too large")
	}
	public, err := requestedKey(r.Csr, r.ApiCsr)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if !identity.IsID(r.Agent) {
		return nil, status.Errorf(codes.InvalidArgument, "%q is not an agent id", r.Agent)
	}
	m, _, leads := d.Supervisor.Leader()
	if !leads {
		return d.ask(ctx, r.Forwarded, func(ctx context.Context, c pb.DoorClient) (*pb.Admission, error) {
			r.Forwarded = true
			return c.Join(ctx, r)
		})
	}
	v := m.Machine.View()
	mesh := v.MeshIdentity()
	if mesh == nil {
		return nil, status.Error(codes.Unavailable, "the mesh is not founded yet, or its agents share a secret")
	}
	hash := identity.HashJoinSecret(r.Secret)
	if err := known(v, r, hash, identity.KeyID(public)); err != nil { // strangers write no log
		d.Logger.Warn("an agent was not admitted to the mesh", "id", r.Agent, "token", r.Token, "error", err)
		return nil, status.Error(codes.PermissionDenied, err.Error())
	}
	if _, err := authority(d.Ring, mesh.Mesh, mesh.CAs[0], mesh.SealedCA); err != nil {
		return nil, status.Error(codes.Unavailable, err.Error()) // before the token is used
	}
	answers, err := m.Propose(ctx, &pb.Command{Actor: "agent " + r.Agent, Change: &pb.Command_AdmitAgent{AdmitAgent: &pb.AdmitAgent{
		Token: r.Token, Hash: hash, Agent: r.Agent, Key: identity.KeyID(public),
	}}})
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	if err := answers[0].Err; err != nil {
		d.Logger.Warn("an agent was not admitted to the mesh", "id", r.Agent, "token", r.Token, "error", err)
		return nil, status.Error(codes.PermissionDenied, err.Error())
	}
	who, ok := m.Machine.View().Identity(r.Agent)
	if !ok {
		return nil, status.Error(codes.Unavailable, "the agent's record is missing")
	}
	out, err := issue(d.Ring, mesh, member.Bundle(v), who, r.Csr, r.ApiCsr, r.Names, d.Clock(), d.Lifetime)
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	out.Gossip = d.Gossip().Keys[0]
	d.Logger.Info("an agent was admitted to the mesh", "id", r.Agent, "kind", who.Role, "token", r.Token)
	return d.answer(out), nil
}

// requestedKey returns the public key of an agent's request, if its request for the API is good, too.
func requestedKey(csr, api []byte) (ed25519.PublicKey, error) {
	if _, err := identity.RequestedAPIKey(api); err != nil {
		return nil, err
	}
	return identity.RequestedKey(csr)
}

// known returns an error unless a token in the state admits the agent, or has admitted it with the same key.
func known(v *state.View, r *pb.JoinRequest, hash []byte, key string) error {
	now := time.Now().UnixMilli()
	if who, ok := v.Identity(r.Agent); ok && who.Token == r.Token && who.Removed == 0 && who.Newest() == key {
		return nil
	}
	for _, t := range v.JoinTokens() {
		switch {
		case t.ID != r.Token || subtle.ConstantTimeCompare(t.Hash, hash) != 1:
		case t.Expires <= now:
			return fmt.Errorf("join token %s has ended: make another", t.ID)
		case t.Uses <= 0:
			return fmt.Errorf("join token %s has been used up: make another", t.ID)
		default:
			return nil
		}
	}
	return errors.New("the mesh does not know this join token: it was revoked, or belongs to another mesh")
}

// Renew signs new certificates for an agent of the mesh. The leader does it, or this voter while there is none.
func (d *Door) Renew(ctx context.Context, r *pb.RenewRequest) (*pb.Admission, error) {
	if max(len(r.Csr), len(r.ApiCsr), len(r.Certificate)) > maxRequest || len(r.Names) > maxAPINames {
		return nil, status.Error(codes.InvalidArgument, "the request is too large")
	}
	_, _, leads := d.Supervisor.Leader()
	if !leads {
		wait, cancel := context.WithTimeout(ctx, leaderTimeout)
		defer cancel()
		out, err := d.ask(wait, r.Forwarded, func(ctx context.Context, c pb.DoorClient) (*pb.Admission, error) {
			r.Forwarded = true
			return c.Renew(ctx, r)
		})
		if err == nil || final(err) {
			return out, err
		}
	}
	out, err := d.renew(r)
	if err != nil {
		return nil, err
	}
	d.flush(ctx, d.recordKeys)
	return d.answer(out), nil
}

// renew signs new certificates by this voter's own state.
func (d *Door) renew(r *pb.RenewRequest) (*identity.Admission, error) {
	m := d.Supervisor.Member()
	if m == nil {
		return nil, status.Error(codes.Unavailable, "this agent holds no replicated state")
	}
	v := m.Machine.View()
	mesh := v.MeshIdentity()
	if mesh == nil {
		return nil, status.Error(codes.Unavailable, "this agent does not know the mesh's identity yet")
	}
	renewal := identity.Renewal{Certificate: r.Certificate, Request: r.Csr, Signature: r.Signature}
	// A bridge serves agents that were away while the CA was replaced.
	asker, err := renewal.Verify(slices.Concat(mesh.CAs, member.Replaced(mesh)), d.Clock())
	if err != nil {
		return nil, status.Error(codes.PermissionDenied, err.Error())
	}
	public, err := requestedKey(r.Csr, r.ApiCsr)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	next := identity.KeyID(public)
	switch who, ok := v.Identity(asker.ID); {
	case !ok || who.Removed != 0:
		return nil, status.Errorf(codes.PermissionDenied, "agent %s was removed from the mesh", asker.ID)
	case !who.Renews(asker.Key, asker.Issued.UnixMilli(), next):
		d.Logger.Warn("an agent asked for a certificate with a key that it has replaced: somebody has a copy of its data directory",
			"id", asker.ID)
		return nil, status.Errorf(codes.PermissionDenied, "agent %s has renewed its certificate with another key since: this is a copy of "+
			"its data directory, or an old one. Delete data_dir, and it joins as a new agent with a token", asker.ID)
	default:
		out, err := issue(d.Ring, mesh, member.Bundle(v), who, r.Csr, r.ApiCsr, r.Names, d.Clock(), d.Lifetime)
		if err != nil {
			return nil, status.Error(codes.Unavailable, err.Error())
		}
		if who.Newest() != next {
			// The key follows the one on record, also if the clock of the voter that signed that was ahead.
			d.note(map[string]signed{asker.ID: {next, max(d.Clock().UnixMilli(), who.Issued+1)}})
		}
		return out, nil
	}
}

// recordKeys records keys that voters have signed. Leader only.
func (d *Door) recordKeys(ctx context.Context, keys *pb.RecordKeys) error {
	m, _, leads := d.Supervisor.Leader()
	if !leads {
		return problem.NoLeader
	}
	answers, err := m.Propose(ctx, &pb.Command{Actor: "coopr", Change: &pb.Command_RecordKeys{RecordKeys: keys}})
	if err != nil {
		return err
	}
	return answers[0].Err
}

// flush records the keys that this voter has signed. They stay if that fails.
func (d *Door) flush(ctx context.Context, record func(context.Context, *pb.RecordKeys) error) {
	d.mu.Lock()
	keys := d.renewed
	d.renewed = nil
	d.mu.Unlock()
	if len(keys) == 0 {
		return
	}
	r := &pb.RecordKeys{Keys: map[string]string{}, Issued: map[string]int64{}}
	for agent, s := range keys {
		r.Keys[agent], r.Issued[agent] = s.key, s.issued
	}
	if record(ctx, r) != nil {
		d.note(keys)
	}
}

// note remembers keys that this voter has signed, unless it knows newer ones.
func (d *Door) note(keys map[string]signed) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.renewed == nil {
		d.renewed = map[string]signed{}
	}
	for agent, s := range keys {
		if d.renewed[agent].issued <= s.issued {
			d.renewed[agent] = s
		}
	}
}

// answer completes an admission with places, for its message.
func (d *Door) answer(a *identity.Admission) *pb.Admission {
	peers, seeds := d.Places()
	return &pb.Admission{
		Mesh: a.Mesh, Role: string(a.Role), Zone: a.Zone, Api: a.API, Certificate: a.Certificates.Agent, ApiCertificate: a.Certificates.API,
		Cas: a.CAs, Gossip: a.Gossip, Peers: peers, Seeds: seeds, SealedCa: a.SealedCA, Ring: gossipRing(d.Gossip()),
		Browser: a.Certificates.Browser, Bundle: &pb.CABundle{Version: a.CAVersion, Cas: a.CAs, Bridges: a.Bridges},
	}
}

// ask passes a request on to the leader's door, once.
func (d *Door) ask(ctx context.Context, forwarded bool, call func(context.Context, pb.DoorClient) (*pb.Admission, error)) (
	*pb.Admission, error) {
	if m := d.Supervisor.Member(); m == nil || m.Machine.View().MeshIdentity() == nil {
		return nil, status.Error(codes.Unavailable, "this agent holds no state of the mesh: ask a voter")
	}
	if forwarded {
		return nil, status.Error(codes.Unavailable, "this agent does not lead any more: try again in a moment")
	}
	select {
	case d.asking <- struct{}{}:
		defer func() { <-d.asking }()
	default:
		return nil, status.Error(codes.Unavailable, "too many agents join at a time: try again in a moment")
	}
	id, addr, err := d.Locator.Leader(ctx)
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	if id == d.ID {
		return nil, status.Error(codes.Unavailable, "this agent has just been elected: try again in a moment")
	}
	c, hang, err := d.Leader(ctx, addr)
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	defer hang()
	return call(ctx, c)
}

// final reports whether a voter's answer will not be another one at another time.
func final(err error) bool {
	switch status.Code(err) {
	case codes.PermissionDenied, codes.InvalidArgument, codes.Unimplemented:
		return true
	}
	return errors.Is(err, identity.ErrNotOfThisMesh)
}
