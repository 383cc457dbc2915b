package service

import (
	"context"

	"github.com/coopr/coopr/agent/member"
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/api"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Supervisor provides this agent's Raft member; *member.Supervisor implements it.
type Supervisor interface {
	// Member returns the member, or nil while this agent has none.
	Member() *member.Member
	// Leader returns the member and the leader's duties; ok is false unless this agent
	// leads and its duties run.
	Leader() (m *member.Member, l *member.Leadership, ok bool)
}

// voter returns this agent's copy of the state.
func voter(s Supervisor) (*member.Member, error) {
	if m := s.Member(); m != nil {
		return m, nil
	}
	return nil, problem.NoLeader
}

// leader returns this agent's copy of the state and the duties, if this agent leads.
func leader(s Supervisor) (*member.Member, *member.Leadership, error) {
	if m, l, ok := s.Leader(); ok {
		return m, l, nil
	}
	return nil, nil, problem.NoLeader
}

// propose commits one command of a caller.
func propose(ctx context.Context, s Supervisor, who model.Caller, c *pb.Command) (state.Answer, error) {
	m, _, err := leader(s)
	if err != nil {
		return state.Answer{}, err
	}
	c.KeepAnswer = true
	answers, err := m.Propose(ctx, logformat.By(who, c))
	if err != nil {
		return state.Answer{}, err
	}
	return answers[0], answers[0].Err
}

// write commits one command of a caller and returns the API's report of it.
func write(ctx context.Context, s Supervisor, who model.Caller, c *pb.Command) (api.Written, error) {
	a, err := propose(ctx, s, who, c)
	if err != nil {
		return api.Written{}, err
	}
	return written(a), nil
}

func written(a state.Answer) api.Written {
	w := api.Written{Index: a.Index, Repeated: a.Repeated}
	if a.Effect != nil {
		w.Effect = *a.Effect
	}
	return w
}
