package service

import (
	"context"
	"slices"

	"github.com/coopr/coopr/agent/member"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/hostexec"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/wire"
)

// nodeUse is the use of a node itself: a command on it, or a connection to one of its ports.
type nodeUse struct {
	member  *member.Member
	lead    *member.Leadership
	view    *state.View
	node    *model.Node
	cluster *model.Cluster
}

// useNode finds a node of the caller's tenant. It fails while the mesh touches no machine. Only the leader can.
func useNode(s Supervisor, who model.Caller, node string) (u nodeUse, err error) {
	if u.member, u.lead, err = leader(s); err != nil {
		return u, err
	}
	u.view = u.member.Machine.View()
	found := false
	if u.node, found = u.view.Node(who.Tenant, node); found {
		u.cluster, found = u.view.Cluster(who.Tenant, u.node.Cluster)
	}
	switch {
	case !found:
		return u, problem.New(problem.NotFound, "there is no node %q", node)
	case u.view.Hold() != nil:
		return u, problem.New(problem.Conflict, "the mesh was restored and is held, so that it touches no machine: "+
			"coopr operator resume ends that")
	}
	return u, nil
}

// programs returns what the cluster runs on control hosts. A program on the node is not code that an automator interprets there.
func (u nodeUse) programs() []hostexec.Use {
	return slices.DeleteFunc(hostexec.Cluster(u.cluster), func(x hostexec.Use) bool { return x.Interpreter != "" })
}

// agent returns an agent that reaches the node.
func (u nodeUse) agent(ctx context.Context) (model.Agent, error) {
	id := u.lead.Watcher.Reaches(ctx, member.CommandPlugin, u.node.AgentMachine(), u.node.ID)
	agents := u.view.Agents()
	if at := slices.IndexFunc(agents, func(a model.Agent) bool { return a.ID == id }); at >= 0 {
		return agents[at], nil
	}
	where := ""
	if u.node.AgentMachine() != "" {
		where = ", and to be on the machine of the node"
	}
	return model.Agent{}, problem.New(problem.Busy, "no agent that reaches node %s is there: it needs the plugin %s%s", u.node.ID,
		member.CommandPlugin, where)
}

// target returns the address of an agent for other agents.
func target(a model.Agent) string { return wire.Target{Addr: a.PeerAddr, ID: a.ID}.String() }

// noteIncident writes an incident to the audit log.
func noteIncident(ctx context.Context, s Supervisor, who model.Caller, i model.Incident) (state.Answer, error) {
	return propose(ctx, s, who, &pb.Command{Change: &pb.Command_NoteIncidents{NoteIncidents: &pb.NoteIncidents{
		Incidents: []*pb.Incident{{Type: i.Type, Tenant: i.Tenant, Actor: i.Actor, Action: i.Action, Object: i.Object, Source: i.Source,
			Agent: i.Agent, Request: i.Request}},
	}}})
}
