package blobs

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coopr/coopr/agent/member"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/wire"
)

const (
	// transferTimeout bounds the transfer of one blob, from however many agents.
	transferTimeout = 10 * time.Minute
	// findTimeout bounds the search for the leader before a transfer.
	findTimeout = 3 * time.Second
)

// fetch copies a blob from another agent: from the agent named first unless that is
// "", then from the leader, then from any. Concurrent fetches of one blob share a
// single transfer.
func (c *Cache) fetch(ctx context.Context, sum string, size int64, first string) error {
	tenant, key := tenantOf(ctx), sum
	if c.worker() {
		key += "\x00" + tenant // the ticket of one tenant is of no use to another
	}
	done := c.flight.DoChan(key, func() (any, error) {
		if err := c.start(); err != nil {
			return nil, err
		}
		defer c.wg.Done()
		ctx, cancel := context.WithTimeout(c.ctx, transferTimeout)
		defer cancel()
		ticket, err := c.ticket(ctx, tenant)
		if err != nil {
			return nil, err
		}
		return nil, c.fetchFrom(ctx, c.sources(ctx, first), &pb.BlobRequest{Sha256: sum, Tenant: tenant, Ticket: ticket}, size)
	})
	select {
	case r := <-done:
		return r.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// sources returns the agents to ask for a blob, the most likely ones first.
func (c *Cache) sources(ctx context.Context, first string) []string {
	ids := []string{first}
	find, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	if id, _, err := c.cfg.Locator.Leader(find); err == nil {
		ids = append(ids, id)
	}
	members := c.cfg.Mesh.Members()
	for _, i := range rand.Perm(len(members)) {
		if m := members[i]; m.Alive() && m.Eligible {
			ids = append(ids, m.ID)
		}
	}
	for _, m := range members { // not in the Raft group, but a task there may have used the blob
		if m.Alive() && !m.Eligible {
			ids = append(ids, m.ID)
		}
	}
	seen := map[string]bool{"": true, c.cfg.ID: true}
	return slices.DeleteFunc(ids, func(id string) bool { was := seen[id]; seen[id] = true; return was })
}

func (c *Cache) fetchFrom(ctx context.Context, ids []string, r *pb.BlobRequest, size int64) error {
	sum, asked := r.Sha256, 0
	var errs error
	for _, id := range ids {
		err := c.copyFrom(ctx, id, r, size)
		if err == nil {
			return nil
		}
		asked++
		c.tickets.refused(r.Tenant, err)
		if status.Code(err) != codes.NotFound {
			errs = errors.Join(errs, fmt.Errorf("agent %s: %w", c.agentName(id), err))
		}
	}
	if errs != nil {
		return fmt.Errorf("its content (SHA-256 %s) is not on this agent and could not be copied from any of %d others: %w", sum, asked, errs)
	}
	return fmt.Errorf("its content (SHA-256 %s) is on none of the %d agents that can be reached: bring back an agent that has it, or upload "+
		"the same content again", sum, asked+1)
}

// copyFrom copies a blob from one agent.
func (c *Cache) copyFrom(ctx context.Context, id string, r *pb.BlobRequest, size int64) error {
	addr, err := member.PeerAddr(c.cfg.Mesh, id)
	if err != nil {
		return err
	}
	client, err := c.cfg.Peers.Client(wire.Target{Addr: addr, ID: id}.String())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := client.Blob(ctx, r)
	if err != nil {
		return err
	}
	_, _, err = c.store.Put(&pieces{stream: stream}, size, r.Sha256)
	return err
}

// pieces reads a blob that arrives in pieces.
type pieces struct {
	stream grpc.ServerStreamingClient[pb.BlobPiece]
	rest   []byte
}

// Read implements io.Reader.
func (p *pieces) Read(b []byte) (int, error) {
	for len(p.rest) == 0 {
		m, err := p.stream.Recv()
		if err != nil {
			return 0, err // io.EOF at the end
		}
		p.rest = m.Data
	}
	n := copy(b, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// agentName returns an agent's name, or its id if the name is unknown.
func (c *Cache) agentName(id string) string {
	if m, ok := c.cfg.Mesh.Member(id); ok && m.Name != "" {
		return m.Name
	}
	return id
}

// Replicate returns once a blob of this agent is on the disks of a majority of the
// voters. The other voters copy it in the background.
func (c *Cache) Replicate(ctx context.Context, m *member.Member, sum string, size int64) error {
	voters := 0
	var others []string
	for _, v := range m.Group.Servers() {
		if v.Voter {
			voters++
			if v.ID != c.cfg.ID {
				others = append(others, v.ID)
			}
		}
	}
	own := voters - len(others) // 1 if this agent is a voter
	need := max(voters/2+1-own, 0)
	answers := make(chan error, len(others))
	for _, id := range others {
		if err := c.start(); err != nil {
			return err
		}
		go func() {
			defer c.wg.Done()
			ctx, cancel := context.WithTimeout(c.ctx, transferTimeout)
			defer cancel()
			answers <- c.askToHold(ctx, id, sum, size)
		}()
	}
	var errs error
	for got, left := 0, len(others); got < need; left-- {
		if left < need-got {
			return fmt.Errorf("the content is on the disks of %d of %d voters, but %d are needed: %w", got+own, voters, voters/2+1, errs)
		}
		select {
		case err := <-answers:
			if err == nil {
				got++
			} else {
				errs = errors.Join(errs, err)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// askToHold asks an agent to put a blob on its disk.
func (c *Cache) askToHold(ctx context.Context, id, sum string, size int64) error {
	addr, err := member.PeerAddr(c.cfg.Mesh, id)
	if err == nil {
		var client pb.PeerClient
		if client, err = c.cfg.Peers.Client(wire.Target{Addr: addr, ID: id}.String()); err == nil {
			_, err = client.Hold(ctx, &pb.HoldRequest{Sha256: sum, Size: size, From: c.cfg.ID})
		}
	}
	if err != nil {
		return fmt.Errorf("agent %s: %w", c.agentName(id), err)
	}
	return nil
}
