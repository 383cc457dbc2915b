package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/coopr/coopr/agent/member"
	"github.com/coopr/coopr/agent/mesh"
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/plugins/host"
	"github.com/coopr/coopr/rpc/api"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/server/rest"
)

// Gossip is this agent's part in gossip; *mesh.Mesh implements it.
type Gossip interface {
	Members() []mesh.Member
	Member(id string) (mesh.Member, bool)
	Join(ctx context.Context, addrs []string) (int, error)
	// Remove forgets a dead agent.
	Remove(ctx context.Context, id string) error
}

// Worker carries out this agent's tasks; *worker.Worker implements it.
type Worker interface {
	// Busy returns the number of tasks that run.
	Busy() int
	// Session returns the id of the session with the leader, or "".
	Session() string
	// Clocks returns the clocks of agents that differ from the others.
	Clocks() []*pb.ClockOffset
	// InTouch reports whether the leader has answered lately.
	InTouch() bool
	// ReportIncident reports to the leader that this agent has answered a request that belongs in the audit log.
	ReportIncident(i *pb.Incident)
}

// Logs keeps the output of this agent's tasks; *worker.Logs implements it.
type Logs interface {
	// Last returns what the latest sweep removed.
	Last() model.LogSweep
}

// Mesh is this agent's view of the mesh.
type Mesh struct {
	ID    string        // of this agent
	Name  func() string // of this agent; a reload may change it
	Build string        // version of this agent's binary
	Slots int           // how many tasks this agent runs at once

	Supervisor Supervisor
	Gossip     Gossip
	Worker     Worker
	// Registry returns the agents on record.
	Registry func() []model.Agent
	// Retention is how long this agent keeps what has ended.
	Retention model.Retention
	Logs      Logs
	// Departure takes this agent out of the mesh.
	Departure *Departure
	// Plugins runs this agent's plugins. It is nil in simulations.
	Plugins *host.Host
	// Router forwards the removal of an agent to the leader.
	Router *Router
}

// Members returns the agents that this agent knows of. Only the leader knows the numbers of
// tasks that other agents run.
func (m *Mesh) Members() []api.Member {
	voters := map[string]bool{}
	leader := ""
	if r := m.Supervisor.Member(); r != nil && r.Group.Member() {
		for _, s := range r.Group.Servers() {
			voters[s.ID] = s.Voter
		}
		leader, _ = r.Group.Leader()
	}
	var busy map[string]int
	if _, l, ok := m.Supervisor.Leader(); ok {
		busy = l.Dispatcher.Live()
	}
	slots := map[string]int{}
	for _, a := range m.Registry() {
		slots[a.ID] = a.Slots
	}
	var out []api.Member
	for _, x := range m.Gossip.Members() {
		var tasks *int
		if n, ok := busy[x.ID]; ok {
			tasks = &n
		} else if x.ID == m.ID {
			n := m.Worker.Busy()
			tasks = &n
		}
		out = append(out, api.Member{
			ID: x.ID, Name: x.Name, Status: x.Status.String(), PeerAddr: x.RPCAddr, APIAddr: x.APIAddr, Build: x.Build, Zone: x.Zone,
			Voter: voters[x.ID], Leader: x.ID == leader, Eligible: x.Eligible, Slots: slots[x.ID], Busy: tasks,
		})
	}
	return out
}

// Status returns the status of this agent, and what it knows of the mesh. An agent without a copy of the state may ask
// others for a second.
func (m *Mesh) Status(ctx context.Context) api.AgentStatus {
	out := api.AgentStatus{ID: m.ID, Name: m.Name(), Build: m.Build, Slots: m.Slots, Busy: m.Worker.Busy(), Session: m.Worker.Session(),
		Retention: api.Retention{Retention: m.Retention, LogSweep: m.Logs.Last()}}
	if m.Plugins != nil {
		out.Isolation = isolation(m.Plugins.Isolation())
	}
	for _, x := range m.Gossip.Members() {
		out.Members++
		if x.Alive() {
			out.Alive++
		}
	}
	for _, c := range m.Worker.Clocks() {
		out.Clocks = append(out.Clocks, api.ClockOffset{ID: c.Agent, Name: c.Name, Ahead: c.AheadMs})
	}
	g := m.Router.Locator.Group(ctx)
	out.Leader, out.LeaderReady = g.LeaderID, g.LeaderID != "" // other agents do not know about the leader's duties
	if x, ok := m.Gossip.Member(g.LeaderID); ok {
		out.Leader = x.Name
	}
	out.Quorum = m.quorum(g)
	out.Missing = m.missing(out.Quorum)
	r := m.Supervisor.Member()
	if r == nil {
		return out
	}
	st := r.Group.Stats()
	out.Mesh = r.Machine.View().Mesh()
	out.IsLeader, out.Applied, out.Term = r.Group.IsLeader() && g.LeaderID == m.ID, st.AppliedIndex, st.Term
	if _, lead, ready := m.Supervisor.Leader(); ready {
		last := lead.Janitor.Last()
		out.Retention.StateSweep = &last
	} else if out.IsLeader {
		out.LeaderReady = false
	}
	for _, s := range g.Servers {
		out.Voter = out.Voter || (s.ID == m.ID && s.Voter)
	}
	return out
}

// isolation returns the shape of the API.
func isolation(x host.Isolation) *api.Isolation {
	out := &api.Isolation{Grade: string(x.Grade), User: x.User, Warnings: x.Warnings}
	for _, b := range x.Breaches {
		out.Killed = append(out.Killed, api.KilledPlugin{Plugin: b.Plugin, Reason: b.Message, At: b.Last.UnixMilli(), Count: b.Count})
	}
	return out
}

// Join contacts the mesh at gossip addresses.
func (m *Mesh) Join(ctx context.Context, addrs []string) (int, error) {
	n, err := m.Gossip.Join(ctx, addrs)
	if err != nil && ctx.Err() == nil && !errors.Is(err, mesh.ErrStopped) {
		return n, problem.New(problem.Conflict, "no agent was reached: %w", err)
	}
	return n, err
}

// Leave removes another agent, which must be dead, or makes this agent leave the mesh. If another agent leads, it decides
// by what the caller authenticates with.
func (m *Mesh) Leave(ctx context.Context, who model.Caller, b rest.Bearer, what api.LeaveBody) (api.Left, error) {
	out := api.Left{Agent: what.Agent}
	what.Force = what.Force || what.Compromised
	agent := what.Agent
	if agent == "" || agent == m.ID || agent == m.Name() {
		if what.Force {
			return out, problem.New(problem.Conflict, "this agent removes others only: ask another one, and if this one leads, hand over with "+
				"coopr operator raft transfer before")
		}
		return out, m.Departure.Leave(ctx)
	}
	id, named := agent, 0
	for _, x := range m.Gossip.Members() {
		if x.Name == agent && x.ID != agent {
			if named++; named > 1 {
				return out, problem.New(problem.Conflict, "more than one agent has the name %s: use the id, as coopr members -o wide shows it", agent)
			}
		}
		if x.Name == agent || x.ID == agent {
			if id = x.ID; !what.Force && (x.Gossip.Alive() || x.Alive() && x.Gossip != mesh.StatusNone) {
				return out, problem.New(problem.Conflict, "agent %s is alive: run coopr leave against the agent's own address", agent)
			}
		}
	}
	r, _, ok := m.Supervisor.Leader()
	if !ok {
		out, err := m.forwardLeave(ctx, b, api.LeaveBody{Agent: id, Force: what.Force, Compromised: what.Compromised})
		out.Agent = what.Agent
		return out, err
	}
	if what.Compromised {
		if err := compromisable(r.Machine.View(), id, agent); err != nil {
			return out, err
		}
		var cancel context.CancelFunc // what has begun goes on if the caller hangs up
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), distrustTimeout)
		defer cancel()
	}
	if what.Force {
		if err := m.cutOff(ctx, r, who, id); err != nil {
			return out, err
		}
	}
	if what.Compromised {
		if err := revokeJoinTokens(ctx, r, who); err != nil {
			return out, err
		}
	}
	err := m.detach(ctx, r, id, agent)
	if what.Compromised {
		// It begins even if the agent's session goes on. The record is removed after it, as it has the name by which the command is repeated.
		// Little comes after it, as the rotation of the CA closes connections, such as those that wait for the answer.
		if err := replaceKeys(ctx, r, who, id); err != nil {
			return out, err
		}
		out.Exposed = exposed(r.Machine.View())
	}
	if err == nil {
		err = m.erase(ctx, r, who, id)
	}
	if what.Compromised && problem.CodeOf(err) == problem.NotFound { // the answer to an earlier request may be lost
		err = nil
	}
	return out, err
}

// detach removes an agent from the Raft group, where it must not vote, and waits until its session has ended.
func (m *Mesh) detach(ctx context.Context, r *member.Member, id, name string) error {
	for _, s := range r.Group.Servers() {
		// Only a member without a vote is removed here. The leader removes a voter once
		// another agent has its vote. The removal precedes the deletion of the record, so
		// that the command can be repeated if it fails.
		if s.ID == id && !s.Voter {
			if err := r.Group.Remove(ctx, id); err != nil {
				return err
			}
		}
	}
	return awaitSessionEnd(ctx, r.Machine, id, name)
}

// erase removes an agent from the record and from gossip.
func (m *Mesh) erase(ctx context.Context, r *member.Member, who model.Caller, id string) error {
	answers, err := r.Propose(ctx, &pb.Command{
		Actor:  who.Actor,
		Source: who.From,
		Agent:  who.Agent,
		Change: &pb.Command_RemoveAgent{RemoveAgent: &pb.RemoveAgent{Id: id, WithTypes: true}},
	})
	if err == nil {
		err = answers[0].Err
	}
	if err == nil {
		_ = m.Gossip.Remove(ctx, id) // it fails if gossip does not know the agent
	}
	return err
}

// cutOff ends the certificates of an agent that may be alive: all others refuse it, and its session ends for want of a heartbeat. A
// voter leaves the Raft group before, as long as the others are a majority.
func (m *Mesh) cutOff(ctx context.Context, r *member.Member, who model.Caller, id string) error {
	i, ok := r.Machine.View().Identity(id)
	if !ok || i.Removed != 0 {
		return nil // the agents share a secret, or this is a repetition
	}
	voters, others, votes := 0, 0, false
	for _, s := range r.Group.Servers() {
		if !s.Voter {
			continue
		}
		voters++
		votes = votes || s.ID == id
		if x, ok := m.Gossip.Member(s.ID); s.ID != id && (s.ID == m.ID || ok && x.Alive()) {
			others++
		}
	}
	if votes {
		if others < (voters-1)/2+1 {
			return problem.New(problem.Conflict, "agent %s votes, and the other voters that answer are %d of %d: without it nothing could be "+
				"decided. Bring back or add a voter before", id, others, voters)
		}
		if err := r.Group.Remove(ctx, id); err != nil {
			return err
		}
	}
	answers, err := r.Propose(ctx, logformat.By(who, &pb.Command{
		Change: &pb.Command_RemoveAgent{RemoveAgent: &pb.RemoveAgent{Id: id, Revoke: true}},
	}))
	if err != nil {
		return err
	}
	return answers[0].Err
}

// sessionTimeout is how long the removal of an agent waits for the end of its session: longer than a leader waits
// for a silent agent.
const sessionTimeout = 15 * time.Second

// distrustTimeout bounds the removal of a compromised voter.
const distrustTimeout = time.Minute

// awaitSessionEnd waits until an agent has no session. An agent that others take for dead may still work on its leases,
// for as long as it may rely on them. The dispatcher ends the session when that time is over, or at once if the agent
// is leaving and holds no lease.
func awaitSessionEnd(ctx context.Context, machine *state.Machine, id, name string) error {
	wait, cancel := context.WithTimeout(ctx, sessionTimeout)
	defer cancel()
	for {
		v := machine.View()
		if n, ok := v.Agent(id); !ok || n.Session == "" {
			return nil
		}
		if wait.Err() != nil {
			if err := ctx.Err(); err != nil {
				return err
			}
			return problem.New(problem.Conflict, "agent %s has a session, so it is alive: run coopr leave against the agent's own address", name)
		}
		machine.WaitNewer(wait, v.Index())
	}
}

// findTimeout bounds the search for the leader that is to remove an agent.
const findTimeout = 5 * time.Second

// forwardLeave asks the leader to remove an agent. The server does not forward this route by
// itself, because a request without a name is about the agent that receives it.
func (m *Mesh) forwardLeave(ctx context.Context, b rest.Bearer, what api.LeaveBody) (out api.Left, err error) {
	body, err := json.Marshal(what)
	if err != nil {
		return out, err
	}
	header := b.Header()
	header.Set("Content-Type", "application/json")
	until := time.Now().Add(findTimeout)
	status, _, answer, err := m.Router.RoundTripToLeader(ctx, until, http.MethodPost, "/v1/leave", header, bytes.NewReader(body))
	if err != nil {
		return out, err
	}
	defer answer.Close()
	if status < http.StatusMultipleChoices {
		err := json.NewDecoder(io.LimitReader(answer, 16<<20)).Decode(&out)
		return out, err
	}
	p := &api.Problem{Status: status}
	if err := json.NewDecoder(io.LimitReader(answer, 1<<20)).Decode(p); err != nil {
		return out, fmt.Errorf("the leader's answer with status %d: %w", status, err)
	}
	return out, p
}

// AuditSinks returns how far the sinks of the audit log have come.
func (m *Mesh) AuditSinks(context.Context) ([]model.AuditSink, error) {
	_, l, err := leader(m.Supervisor)
	if err != nil {
		return nil, err
	}
	return l.Sinks.Report(), nil
}

// Note notes an incident for the audit log. An agent that does not lead, and has answered a stale read, reports it to the leader. It has
// asked the leader about tokens and passwords, so that the leader knows of those.
func (m *Mesh) Note(i model.Incident) {
	switch _, l, ok := m.Supervisor.Leader(); {
	case ok:
		l.Incidents.Note(i)
	case i.Type != model.IncidentTokenRefused && i.Type != model.IncidentLoginRefused:
		m.Worker.ReportIncident(logformat.EncodeIncident(&i))
	}
}
