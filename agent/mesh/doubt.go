package mesh

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/serf/serf"
)

// In a mesh of hundreds, news that reach all but one in a thousand leave somebody out every time. One who heard that an
// agent is suspected, and not that it said it is alive, would have it dead for minutes. So a large mesh does not believe
// in a death before the agent was asked itself.

const doubtTries = 3

// doubter asks agents that gossip has given up.
type doubter struct {
	m    *Mesh
	meet sync.Mutex // one exchange at a time
}

// ask finds out whether an agent is there, and makes it failed in the view if it is not. One that answers should have
// said so to everybody by and by; if it has not been heard, it is told what is said about it, so that it contradicts.
func (d *doubter) ask(ctx context.Context, g *generation, id string) {
	for range doubtTries {
		if !d.m.Answers(ctx, id) {
			break
		}
		select {
		case <-time.After(jitter(settled)):
		case <-ctx.Done():
			return
		}
		if sm, ok := g.member(id); !ok || sm.Status != serf.StatusFailed {
			return
		}
		d.tell(id)
	}
	if ctx.Err() != nil || d.m.now() != g { // a new generation asks for itself
		return
	}
	if sm, ok := g.member(id); ok && sm.Status == serf.StatusFailed && d.m.apply(serf.EventMemberFailed, sm) {
		d.m.view.notify()
	}
}

func (d *doubter) tell(id string) {
	member, _ := d.m.view.member(id)
	addr, err := netip.ParseAddrPort(member.Addr)
	if err == nil {
		d.meet.Lock()
		err = d.m.contact(addr)
		d.meet.Unlock()
	}
	if err != nil {
		d.m.log.Debug("telling an agent that it is held for dead", "agent", id, "error", err)
	}
}

// member is an agent as a generation has it.
func (g *generation) member(id string) (serf.Member, bool) {
	for _, sm := range g.serf.Members() {
		if sm.Name == id {
			return sm, true
		}
	}
	return serf.Member{}, false
}
