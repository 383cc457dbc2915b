package member

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/coopr/coopr/consensus/raftgroup"
)

var (
	// ErrNoLeader is returned when no leader is found.
	ErrNoLeader = errors.New("the mesh has no leader that can be reached")
	// ErrMoved is the cause of a context that ended because another agent leads.
	ErrMoved = errors.New("another agent is the leader now")
)

const (
	// locateInterval is how often AwaitLeader tries again without a notification.
	locateInterval = 100 * time.Millisecond
	// watchInterval is how often an agent outside the Raft group checks whether
	// gossip still reports the leader alive. A member of the group is notified of
	// changes, so it checks only ten times less often.
	watchInterval = 500 * time.Millisecond
)

// Locator finds the leader of the mesh, from whatever this agent knows: its Raft
// member, gossip, or the answers of other agents. It is safe for concurrent use.
type Locator struct {
	id         string
	supervisor *Supervisor
	mesh       Mesh
	peers      Peers
}

// NewLocator returns the Locator of the agent that s belongs to.
func NewLocator(s *Supervisor) *Locator {
	return &Locator{id: s.cfg.ID, supervisor: s, mesh: s.cfg.Mesh, peers: s.cfg.Peers}
}

// Leader returns the id and the peer address of the leader, which may be this
// agent. It asks other agents if this one is not a member of the Raft group.
func (l *Locator) Leader(ctx context.Context) (id, addr string, err error) {
	if g := l.group(); g != nil {
		if id, addr := g.Leader(); id != "" {
			return id, l.current(id, addr), nil
		}
	}
	members := l.mesh.Members()
	for _, i := range rand.Perm(len(members)) {
		m := members[i]
		if m.ID == l.id || !m.Alive() || !m.Eligible {
			continue
		}
		st, err := askStatus(ctx, l.peers, m.RPCAddr, "")
		if ctx.Err() != nil {
			return "", "", ctx.Err()
		}
		if err == nil && st.LeaderId != "" && !l.supervisor.foreign(st.Mesh) {
			return st.LeaderId, l.current(st.LeaderId, st.LeaderAddr), nil
		}
	}
	return "", "", ErrNoLeader
}

// group returns the Raft group that this agent is a member of, or nil.
func (l *Locator) group() *raftgroup.Group {
	if m := l.supervisor.Member(); m != nil && m.Group.Member() {
		return m.Group
	}
	return nil
}

// current returns the address that the mesh has for an agent now, or addr.
func (l *Locator) current(id, addr string) string {
	if now, err := PeerAddr(l.mesh, id); err == nil {
		return now
	}
	return addr
}

// AwaitLeader is like Leader, but it waits until there is a leader or ctx ends.
func (l *Locator) AwaitLeader(ctx context.Context) (id, addr string, err error) {
	for {
		var changed <-chan struct{}
		if m := l.supervisor.Member(); m != nil {
			changed = m.Group.LeaderChanged()
		}
		if id, addr, err = l.Leader(ctx); err == nil {
			return id, addr, nil
		}
		select {
		case <-ctx.Done():
			return "", "", fmt.Errorf("%w: %w", ErrNoLeader, ctx.Err())
		case <-changed:
		case <-time.After(locateInterval):
		}
	}
}

// WhileLeads returns a context that ends, with the cause ErrMoved, when agent id
// no longer leads as far as this agent can tell. A frozen leader closes no
// connection: without this context, a caller that waits for its answer would
// wait for as long as the leader is frozen.
func (l *Locator) WhileLeads(ctx context.Context, id string) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		timer := time.NewTimer(watchInterval)
		defer timer.Stop()
		for {
			var changed <-chan struct{}
			again := watchInterval
			if m := l.supervisor.Member(); m != nil {
				changed = m.Group.LeaderChanged()
				if m.Group.Member() {
					again *= 10 // it may be removed from the group without a change of leader
				}
			}
			timer.Reset(again)
			if l.deposed(id) {
				cancel(ErrMoved)
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-changed:
			case <-timer.C:
			}
		}
	}()
	return ctx, func() { cancel(nil) }
}

// deposed reports whether another agent than id is known to lead. An agent
// outside the Raft group reports whether id is known to be dead.
func (l *Locator) deposed(id string) bool {
	if g := l.group(); g != nil {
		now, _ := g.Leader()
		return now != "" && now != id
	}
	m, ok := l.mesh.Member(id)
	return ok && !m.Alive()
}
