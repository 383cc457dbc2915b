package member

import (
	"context"
	"time"

	"github.com/coopr/coopr/consensus/raftgroup"
)

// GroupStatus is what an agent knows of the Raft group: from its own member, or else from a survey of other agents.
type GroupStatus struct {
	// LeaderID is the leader, or "" if none is known.
	LeaderID string
	// Servers are the members of the group. If no member answers, they are the voters that this agent knew last.
	Servers []raftgroup.Server
	// Replicas are the peer addresses of members that have answered. An agent that is a member itself asks nobody.
	Replicas []string
}

// surveyFresh is how long the result of a survey is used again: everybody may ask an agent whether it is ready.
const surveyFresh = time.Second

// Group returns what this agent knows of the Raft group. An agent that is no member asks others, for a second at most.
func (l *Locator) Group(ctx context.Context) GroupStatus {
	if g := l.group(); g != nil {
		out := GroupStatus{Servers: g.Servers()}
		out.LeaderID, _ = g.Leader()
		return out
	}
	l.mu.Lock()
	s, voters := l.last, l.voters
	l.mu.Unlock()
	if s == nil || time.Since(s.ended) > surveyFresh {
		var err error
		if s, err = l.ask(ctx); err != nil {
			return GroupStatus{}
		}
	}
	out := GroupStatus{Replicas: s.replicas}
	if s.best != nil {
		out.LeaderID = s.best.LeaderId
	}
	if s.group != nil {
		for _, x := range s.group.Servers {
			out.Servers = append(out.Servers, raftgroup.Server{ID: x.Id, Addr: x.Addr, Voter: x.Voter})
		}
	} else { // as an earlier survey found them
		for _, id := range voters {
			out.Servers = append(out.Servers, raftgroup.Server{ID: id, Voter: true})
		}
	}
	return out
}
