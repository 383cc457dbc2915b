package admission

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/coopr/coopr/rpc/identity"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/wire"
)

// Renewer renews the certificates of this agent.
type Renewer struct {
	ID      string
	Store   *identity.Store
	Door    *Door // of this agent
	Names   []string
	Network wire.Network
	// Voters returns peer addresses of agents that may be voters.
	Voters func() []string
	// Record passes keys to the leader.
	Record func(ctx context.Context, keys map[string]string) error
	Logger *slog.Logger
}

// checkInterval is how often the time of the renewal is compared with the clock, which may jump.
const checkInterval = time.Minute

// Run renews the certificates when two thirds of their life are over, until ctx ends.
func (r *Renewer) Run(ctx context.Context) error {
	named := r.Store.Membership().Role != identity.Voter // other roles do not name their API themselves
	for {
		if due := !time.Now().Before(r.Store.RenewAt()); due || !named && !r.Store.Names(r.Names) {
			named = true // once
			if err := r.renew(ctx); err != nil && ctx.Err() == nil {
				r.Logger.Error("this agent's certificate was not renewed", "expires", r.Store.Expires(), "error", err)
			}
		}
		if keys := r.Door.Flush(ctx); len(keys) > 0 && r.Record(ctx, keys) != nil {
			r.Door.Return(keys)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(min(checkInterval, max(time.Until(r.Store.RenewAt()), time.Second))):
		}
	}
}

// renew gets new certificates: from this agent itself if it is a voter, or from another voter.
func (r *Renewer) renew(ctx context.Context) error {
	own, err := r.Store.Renewal()
	if err != nil {
		return err
	}
	request := &pb.RenewRequest{Certificate: own.Certificate, Csr: own.Request, Signature: own.Signature, Names: r.Names}
	if a, err := r.Door.renew(request); err == nil {
		return r.Store.Renewed(a)
	}
	ctx, cancel := context.WithTimeout(ctx, checkInterval)
	defer cancel()
	answer, err := first(ctx, r.Voters, r.Logger, func(ctx context.Context, addr string) (*pb.Admission, error) {
		c, hang, err := Dial(r.Network, r.Store.DoorConfig(), addr)
		if err != nil {
			return nil, err
		}
		defer hang()
		return c.Renew(ctx, request)
	})
	if err != nil {
		return err
	}
	return r.Store.Renewed(admission(answer))
}

// SignSelf renews the certificate of a voter that starts after its end, before it knows the state: the mesh may have been off for
// long. It does nothing for others.
func SignSelf(k *identity.Store, ring Ring, id string, names []string, lifetime time.Duration) error {
	m := k.Membership()
	if m.Role != identity.Voter || len(m.SealedCA) == 0 || time.Now().Before(k.RenewAt()) {
		return nil
	}
	ca, err := authority(ring, m.Mesh, m.CAs[0], m.SealedCA)
	if err != nil {
		return fmt.Errorf("renew the certificate of this voter: %w", err)
	}
	own, err := k.Renewal()
	if err != nil {
		return err
	}
	certs, err := ca.Issue(identity.Subject{
		Mesh: m.Mesh, Role: m.Role, ID: id, Names: append(identity.LoopbackNames(), names...),
	}, own.Request, time.Now(), lifetime)
	if err != nil {
		return err
	}
	return k.Renewed(&identity.Admission{Mesh: m.Mesh, Role: m.Role, Zone: m.Zone, API: m.API, Certificates: certs, CAs: m.CAs})
}
