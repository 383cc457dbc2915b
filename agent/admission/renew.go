package admission

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/coopr/coopr/rpc/identity"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/wire"
)

// Renewer renews the certificates of this agent.
type Renewer struct {
	Store   *identity.Store
	Door    *Door // of this agent
	Names   []string
	Network wire.Network
	// Voters returns peer addresses of agents that may be voters.
	Voters func() []string
	// due has a value when the certificates may have to be renewed before their time.
	due chan struct{}
	// Renewed is called after each renewal.
	Renewed func()
	// Record passes keys to the leader.
	Record func(ctx context.Context, keys *pb.RecordKeys) error
	Logger *slog.Logger
}

const (
	// checkInterval is how often the time of the renewal is compared with the clock, which may jump.
	checkInterval = time.Minute
	// maxPause is the longest time between two tries after a refusal, which is not likely to change.
	maxPause = time.Hour
)

// Run renews the certificates when about two thirds of their life are over or the mesh has another CA, until ctx ends. Agents that were
// started together do not renew together.
func (r *Renewer) Run(ctx context.Context) error {
	early := rand.N(identity.Lifetime / 10)
	asked := false // for a certificate of the API as this build wants it; a voter of an older build may not sign it
	var next time.Time
	pause := checkInterval
	for {
		due := !time.Now().Before(r.Store.RenewAt(early)) || !asked && !r.served() || r.Store.Outdated()
		if due && !time.Now().Before(next) {
			switch err := r.renew(ctx); {
			case err == nil:
				asked, pause = true, checkInterval
			case ctx.Err() == nil:
				if errors.Is(err, context.DeadlineExceeded) { // nobody has answered, which may change at any time
					pause = checkInterval
				}
				next = time.Now().Add(pause)
				pause = min(2*pause, maxPause)
				r.Logger.Error("this agent's certificate was not renewed", "expires", r.Store.Expires(), "again_in", time.Until(next), "error", err)
			}
		}
		r.Door.flush(ctx, r.Record)
		switch written, err := r.Store.Retry(); {
		case err != nil:
			r.Logger.Debug("this agent still cannot write its identity", "error", err)
		case written:
			r.Logger.Info("this agent has written its identity")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.due:
		case <-time.After(min(checkInterval, max(time.Until(r.Store.RenewAt(early)), time.Second))):
		}
	}
}

// served reports whether the API's certificate has the names of the API and suits browsers. Workers do not name their API themselves.
func (r *Renewer) served() bool {
	return r.Store.ForBrowsers() && (r.Store.Membership().Role != identity.Voter || r.Store.Names(r.Names))
}

// notify has Run check whether the certificates have to be renewed.
func (r *Renewer) notify() {
	select {
	case r.due <- struct{}{}:
	default:
	}
}

// renew gets new certificates: from this agent itself if it is a voter, or from another voter.
func (r *Renewer) renew(ctx context.Context) error {
	own, err := r.Store.Renewal()
	if err != nil {
		return err
	}
	request := &pb.RenewRequest{Certificate: own.Certificate, Csr: own.Request, Signature: own.Signature, Names: r.Names,
		ApiCsr: own.API}
	a, err := r.Door.renew(request)
	if err == nil {
		err = r.install(a)
	}
	if err != nil { // a voter that was away may sign with a CA that others do not trust any more
		wait, cancel := context.WithTimeout(ctx, checkInterval)
		defer cancel()
		_, err = first(wait, r.Voters, r.Logger, func(ctx context.Context, addr string) (*pb.Admission, error) {
			c, hang, err := Dial(r.Network, r.Store.DoorConfig(), addr)
			if err != nil {
				return nil, err
			}
			defer hang()
			answer, err := c.Renew(ctx, request)
			if err != nil {
				return nil, err
			}
			return answer, r.install(admission(answer))
		})
	}
	return err
}

// install takes the certificates of an answer. An answer that is refused changes nothing, and another voter may have a better one.
func (r *Renewer) install(a *identity.Admission) error {
	err := r.Store.Renewed(a)
	if err != nil && !errors.Is(err, identity.ErrUnwritten) {
		return err
	}
	if err != nil {
		r.Logger.Error("the new certificate is in use, and this agent could not write it", "error", err)
	}
	r.Renewed()
	return nil
}

// SignSelf renews the certificate of a voter that starts when two thirds of its life are over, before it knows the state: the mesh
// may have been off for long. The other voters find the new key newer than their records. It does nothing for others.
func SignSelf(k *identity.Store, ring Ring, id string, names []string, lifetime time.Duration) error {
	m := k.Membership()
	if m.Role != identity.Voter || len(m.SealedCA) == 0 || time.Now().Before(k.RenewAt(0)) {
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
	certs, err := ca.Issue(identity.Subject{Mesh: m.Mesh, Role: m.Role, ID: id, Names: names}, own.Request, own.API, time.Now(), lifetime)
	if err != nil {
		return err
	}
	return k.Renewed(&identity.Admission{Mesh: m.Mesh, Role: m.Role, Zone: m.Zone, API: m.API, Certificates: certs})
}
