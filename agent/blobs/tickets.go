package blobs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/rpc/identity"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/wire"
)

const (
	ticketLife = 10 * time.Minute
	// ticketUse is how long a worker shows a ticket before it asks for another one. The rest of the ticket's life is
	// for transfers from several agents, and for clocks that differ.
	ticketUse = 5 * time.Minute
	// ticketLast is how long the worker shows it where no leader gives it another one.
	ticketLast    = 9 * time.Minute
	ticketTries   = 5
	ticketPause   = time.Second
	ticketPurpose = "ticket for plugin resources"
	expirySize    = 8 // bytes at the beginning of a ticket
)

// Ring makes and checks authentication codes, and encrypts blobs; *keyring.Ring implements it.
type Ring interface {
	Set() keyring.Set
	// Begun reports whether contents may be encrypted with the active key.
	Begun() bool
	Seal(aad, plaintext []byte) ([]byte, error)
	Open(aad, sealed []byte) ([]byte, error)
	MAC(purpose string, data []byte) ([]byte, error)
	Verify(purpose string, data, mac []byte) error
}

// ticketData returns what the code of a ticket is made from.
func ticketData(agent, tenant string, expiry []byte) []byte {
	return keyring.Bind(agent, tenant, string(expiry))
}

// newTicket returns a ticket with which an agent may read a tenant's plugin resources.
func newTicket(ring Ring, agent, tenant string, now time.Time) ([]byte, error) {
	expiry := binary.BigEndian.AppendUint64(nil, uint64(now.Add(ticketLife).UnixMilli()))
	mac, err := ring.MAC(ticketPurpose, ticketData(agent, tenant, expiry))
	return append(expiry, mac...), err
}

// admit returns an error if the agent that makes a call may not read a tenant's plugin resources: it is a worker
// without a valid ticket.
func admit(ctx context.Context, ring Ring, tenant string, ticket []byte, now time.Time) error {
	if !needsTicket(ctx) {
		return nil
	}
	agent, _ := wire.CallerID(ctx)
	refused := func(why string) error {
		return status.Errorf(codes.PermissionDenied, "worker %s may not read plugin resources of tenant %q: %s", agent, tenant, why)
	}
	if len(ticket) < expirySize {
		return refused("it shows no ticket of the leader")
	}
	expiry := ticket[:expirySize]
	err := ring.Verify(ticketPurpose, ticketData(agent, tenant, expiry), ticket[expirySize:])
	switch {
	case errors.Is(err, keyring.ErrNoKey):
		return status.Errorf(codes.NotFound, "this agent cannot check the ticket: %v", err)
	case err != nil:
		return refused("its ticket is not the leader's ticket for this agent and tenant")
	case now.UnixMilli() >= int64(binary.BigEndian.Uint64(expiry)):
		return refused("its ticket has expired")
	}
	return nil
}

// needsTicket reports whether the agent that makes a call is a worker. Agents of a mesh that share a secret, and those
// of dev mode, have no role or that of a voter.
func needsTicket(ctx context.Context) bool {
	role, known := wire.CallerRole(ctx)
	return known && role != identity.Voter
}

// Ticket returns a ticket for a tenant to a worker that has work of the tenant.
func (s Server) Ticket(ctx context.Context, r *pb.TicketRequest) (*pb.TicketResponse, error) {
	if !needsTicket(ctx) {
		return &pb.TicketResponse{}, nil
	}
	m, l, err := s.Cache.cfg.Supervisor.AwaitReady(ctx)
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	agent, _ := wire.CallerID(ctx)
	if !l.Works(ctx, m.Machine.View(), agent, r.Tenant) {
		return nil, status.Errorf(codes.PermissionDenied, "worker %s has no work of tenant %q", agent, r.Tenant)
	}
	t, err := newTicket(s.Cache.cfg.Ring, agent, r.Tenant, time.Now())
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	return &pb.TicketResponse{Ticket: t}, nil
}

// view returns the state by which requests of workers are checked.
func (s Server) view() (*state.View, error) {
	m := s.Cache.groupMember()
	if m == nil {
		return nil, status.Error(codes.NotFound, "this agent has no state by which it could check a worker's request")
	}
	return m.Machine.View(), nil
}

// admitBlob returns an error if the agent that makes a call may not read a content.
func (s Server) admitBlob(ctx context.Context, r *pb.BlobRequest) error {
	if !needsTicket(ctx) {
		return nil
	}
	v, err := s.view()
	if err != nil {
		return err
	}
	if err := admit(ctx, s.Cache.cfg.Ring, r.Tenant, r.Ticket, time.Now()); err != nil {
		return err
	}
	if !v.HasBlob(r.Tenant, r.Sha256) {
		return status.Errorf(codes.NotFound, "tenant %q has no such plugin resource here", r.Tenant)
	}
	return nil
}

// tickets are those that this agent has, by tenant.
type tickets struct {
	mu   sync.Mutex
	held map[string]ticket
}

// ticket is a ticket and the time at which the agent asked for it.
type ticket struct {
	text  []byte
	asked time.Time
}

func newTickets() *tickets { return &tickets{held: map[string]ticket{}} }

func (t *tickets) get(tenant string) (ticket, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	x, ok := t.held[tenant]
	return x, ok
}

func (t *tickets) put(tenant string, x ticket) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.held[tenant] = x
}

// refused forgets a ticket if an agent has refused it with err, or may not have been able to check it because the key was rotated
// since, so that the next attempt has a new one.
func (t *tickets) refused(tenant string, err error) {
	if c := status.Code(err); c == codes.PermissionDenied || c == codes.NotFound {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.held, tenant)
	}
}

// ticket returns a ticket for a tenant's resources, from the leader or the one that it gave a few minutes ago. It is nil
// for an agent that needs none, and if the leader's version knows no tickets.
func (c *Cache) ticket(ctx context.Context, tenant string) ([]byte, error) {
	if !c.worker() {
		return nil, nil
	}
	known, ok := c.tickets.get(tenant)
	if ok && time.Since(known.asked) < ticketUse {
		return known.text, nil
	}
	fresh, err := c.askTicket(ctx, tenant)
	if err != nil {
		if ok && time.Since(known.asked) < ticketLast {
			return known.text, nil
		}
		return nil, fmt.Errorf("ask the leader for a ticket for plugin resources: %w", err)
	}
	return fresh, nil
}

// askTicket asks the leader for a ticket. It asks a few times, as the leader may change, and a new one first learns of the
// work that is under way.
func (c *Cache) askTicket(ctx context.Context, tenant string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, leaderWithin)
	defer cancel()
	for try := 1; ; try++ {
		asked := time.Now()
		r, err := c.askOnce(ctx, tenant)
		switch code := status.Code(err); {
		case err == nil:
			c.tickets.put(tenant, ticket{r.Ticket, asked})
			return r.Ticket, nil
		case code == codes.Unimplemented:
			return nil, nil
		case try == ticketTries || code != codes.Unavailable && code != codes.PermissionDenied:
			return nil, err
		}
		select {
		case <-time.After(ticketPause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (c *Cache) askOnce(ctx context.Context, tenant string) (*pb.TicketResponse, error) {
	leader, err := c.leader(ctx)
	if err != nil {
		return nil, err
	}
	return leader.Ticket(ctx, &pb.TicketRequest{Tenant: tenant})
}

type tenantKey struct{}

// forTenant returns a context for fetching contents of a tenant.
func forTenant(ctx context.Context, tenant string) context.Context {
	return context.WithValue(ctx, tenantKey{}, tenant)
}

// tenantOf returns the tenant of forTenant, or "".
func tenantOf(ctx context.Context) string {
	tenant, _ := ctx.Value(tenantKey{}).(string)
	return tenant
}
