package service

import (
	"context"
	"time"

	"github.com/coopr/coopr/agent/member"
	"github.com/coopr/coopr/agent/mesh"
	"github.com/coopr/coopr/consensus/raftgroup/voters"
	"github.com/coopr/coopr/rpc/api"
)

// silenceLimit is the silence after which the leader counts a voter as missing although gossip has it alive: its Raft
// member may be down.
const silenceLimit = 10 * time.Second

// Quorum returns how many voters there are, and who of them is missing.
func (m *Mesh) Quorum(ctx context.Context) api.Quorum {
	return m.quorum(m.Router.Locator.Group(ctx))
}

func (m *Mesh) quorum(g member.GroupStatus) api.Quorum {
	var q api.Quorum
	names := map[string]string{}
	for _, a := range m.Registry() {
		names[a.ID] = a.Name
	}
	for _, s := range g.Servers {
		if !s.Voter {
			continue
		}
		q.Voters++
		if since, alive := m.seen(s.ID); !alive {
			x := api.MissingAgent{ID: s.ID, Name: names[s.ID]}
			if a, ok := m.Gossip.Member(s.ID); ok && a.Name != "" {
				x.Name = a.Name
			}
			if !since.IsZero() {
				x.Since = since.UnixMilli()
			}
			q.Missing = append(q.Missing, x)
		}
	}
	q.Alive = q.Voters - len(q.Missing)
	if q.Voters > 0 {
		q.Needed = q.Voters/2 + 1
		q.Margin = max(q.Alive-q.Needed, 0)
		q.Lost = q.Alive < q.Needed
	}
	q.Wanted = voters.Policy{}.Target(m.eligible())
	return q
}

// seen reports whether an agent answers, and if not, since when. The time is zero if this agent does not know it.
func (m *Mesh) seen(id string) (since time.Time, alive bool) {
	if id == m.ID {
		return time.Time{}, true
	}
	x, ok := m.Gossip.Member(id)
	switch {
	case !ok || !x.Alive():
		return x.Since, false
	case !x.Gossip.Alive(): // the record of an agent is no sign of life
		return time.Time{}, false
	}
	if r, _, ok := m.Supervisor.Leader(); ok {
		if silence := r.Silence(id); silence > silenceLimit {
			return time.Now().Add(-silence), false
		}
	}
	return time.Time{}, true
}

// eligible returns the number of agents that may vote, the dead ones included.
func (m *Mesh) eligible() int {
	n := 0
	for _, x := range m.Gossip.Members() {
		if x.Eligible && !x.Leaving && x.Status != mesh.StatusLeft {
			n++
		}
	}
	return n
}

// missing returns the agents that do not answer, without the voters.
func (m *Mesh) missing(q api.Quorum) (out []api.MissingAgent) {
	listed := map[string]bool{}
	for _, x := range q.Missing {
		listed[x.ID] = true
	}
	for _, x := range m.Gossip.Members() {
		if x.Status == mesh.StatusFailed && !listed[x.ID] {
			out = append(out, api.MissingAgent{ID: x.ID, Name: x.Name, Since: x.Since.UnixMilli()})
		}
	}
	return out
}
