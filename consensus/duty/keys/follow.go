package keys

import (
	"context"
	"sync"
	"time"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/roster"
	pb "github.com/coopr/coopr/rpc/proto"
)

// heard is what an agent has reported in a session.
type heard struct {
	agent string
	// gossip is the version of the keys of gossip that it uses, cas that of the CAs under which it has its certificates.
	gossip, cas uint64
}

// Followers has what the agents have reported that have a session with the leader. It is safe for concurrent use.
type Followers struct {
	mu       sync.Mutex
	sessions map[string]heard
}

// Hear notes which versions of the keys of gossip and of the CAs an agent uses.
func (f *Followers) Hear(session, agent string, gossip, cas uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sessions == nil {
		f.sessions = map[string]heard{}
	}
	f.sessions[session] = heard{agent, gossip, cas}
}

// Leave forgets a session that has ended.
func (f *Followers) Leave(session string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.sessions, session)
}

// behind returns the agents that are alive and do not use a version, or a later one. An agent that is away asks when it comes back, and
// nobody waits for it.
func (f *Followers) behind(v *state.View, of func(heard) uint64, version uint64) (ids []string) {
	follow := map[string]bool{}
	f.mu.Lock()
	for _, h := range f.sessions {
		if of(h) >= version {
			follow[h.agent] = true
		}
	}
	f.mu.Unlock()
	for _, id := range v.RemovedAgents() {
		follow[id] = true
	}
	for _, a := range v.Agents() {
		if a.Alive && !follow[a.ID] {
			ids = append(ids, a.ID)
		}
	}
	return ids
}

// follow carries on with a rotation that all agents follow. Each phase begins when all agents that are alive use the version of the one
// before, which is the index of the entry with which it began. next returns what the next phase brings.
func (c *Controller) follow(ctx context.Context, kind string, of func(heard) uint64,
	next func(*state.View, roster.Rotation) (*pb.Rotate, error)) error {
	for {
		v := c.cfg.Machine.View()
		r, ok := v.Rotation(kind)
		if !ok || r.Phase == roster.RotationDone {
			return nil
		}
		var behind []string
		if r.Phase != roster.RotationBegun {
			behind = c.Followers.behind(v, of, r.Index)
		}
		// The clock of the leader before may be ahead of this one.
		if since := time.Now().UnixMilli() - r.Since; len(behind) > 0 && since >= 0 && since < rotateEvery.Milliseconds() {
			return nil // they are about to report
		}
		p := &pb.Rotate{}
		if len(behind) == 0 && r.Phase != roster.RotationRetire {
			var err error
			if p, err = next(v, r); err != nil {
				return err
			}
		}
		if err := c.move(ctx, r, p, behind); err != nil || len(behind) > 0 {
			return err
		}
	}
}
