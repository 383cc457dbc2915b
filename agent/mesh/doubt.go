package mesh

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/serf/serf"
)

// doubtTries is how often a doubter probes an agent that answers but still counts as failed.
const doubtTries = 3

// doubter probes agents that gossip has declared failed. In a mesh of hundreds of agents, every piece of news misses a few
// of them. An agent that received a suspicion but not its refutation would consider the suspect dead for minutes. So in a
// large mesh, a failure is probed before it counts.
type doubter struct {
	m    *Mesh
	meet sync.Mutex // one exchange at a time
}

// ask probes an agent and marks it as failed in the view if it does not answer. An agent that answers normally refutes the
// suspicion by gossip. If the refutation does not arrive, the suspicion is sent to the suspect, which can refute it (SWIM).
func (d *doubter) ask(ctx context.Context, g *generation, id string) {
	for range doubtTries {
		if !d.m.Answers(ctx, id) {
			break
		}
		select {
		case <-time.After(jitter(meetTime)):
		case <-ctx.Done():
			return
		}
		if sm, ok := g.member(id); !ok || sm.Status != serf.StatusFailed {
			return
		}
		d.tell(id)
	}
	if ctx.Err() != nil || d.m.now() != g { // a new generation probes by itself
		return
	}
	if sm, ok := g.member(id); ok && sm.Status == serf.StatusFailed && d.m.apply(serf.EventMemberFailed, sm) {
		d.m.view.notify()
	}
}

// tell exchanges the membership with a suspect, so that the suspect learns of the suspicion and can refute it.
func (d *doubter) tell(id string) {
	member, _ := d.m.view.member(id)
	addr, err := netip.ParseAddrPort(member.Addr)
	if err == nil {
		d.meet.Lock()
		err = d.m.contact(addr)
		d.meet.Unlock()
	}
	if err != nil {
		d.m.log.Debug("a suspect could not be informed that it counts as failed", "agent", id, "error", err)
	}
}

// member returns an agent as a generation knows it.
func (g *generation) member(id string) (serf.Member, bool) {
	for _, sm := range g.serf.Members() {
		if sm.Name == id {
			return sm, true
		}
	}
	return serf.Member{}, false
}
