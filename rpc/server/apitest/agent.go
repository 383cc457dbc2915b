package apitest

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coopr/coopr/agent/member"
	"github.com/coopr/coopr/agent/mesh"
	"github.com/coopr/coopr/agent/service"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/server/rest"
)

// Agent is one agent of a test mesh; Services returns it as the services of an API.
type Agent struct {
	*Store
	name string
	// leads and voter decide which requests the agent can serve.
	leads, voter atomic.Bool
	mu           sync.Mutex
	leader       string // address of the leader's API
	replica      string // address of the API of another agent with a copy of the state
	transport    http.RoundTripper
	failures     []error // of the next writes, in order
	joined, left []string
	resources    *service.Resources
	WrongClocks  []*pb.ClockOffset // that the leader has told the agent of
}

// NewAgent returns an agent that leads.
func NewAgent(s *Store, name string) *Agent {
	a := &Agent{Store: s, name: name, transport: http.DefaultTransport}
	a.resources = &service.Resources{Supervisor: supervisor{a}, Blobs: contents{}}
	a.leads.Store(true)
	a.voter.Store(true)
	return a
}

// Follow makes the agent a follower of the leader whose API is at url. With "" it knows no leader.
// It forwards requests through transport.
func (a *Agent) Follow(url string, voter bool, transport http.RoundTripper) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.leader, a.transport = strings.TrimPrefix(url, "http://"), transport
	a.leads.Store(false)
	a.voter.Store(voter)
}

// Replica lets the agent find another one with a copy of the state, whose API is at url.
func (a *Agent) Replica(url string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.replica = strings.TrimPrefix(url, "http://")
}

// Lead makes the agent the leader.
func (a *Agent) Lead() { a.leads.Store(true) }

// View returns the present state. With another after than 0 it waits until the state is newer or ctx ends.
func (a *Agent) View(ctx context.Context, c api.Consistency, after uint64) (rest.View, error) {
	return a.Services().State.View(ctx, c, after)
}

// Joined returns the arguments of all calls of Join and of Leave.
func (a *Agent) Joined() (joined, left []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.joined, a.left
}

// supervisor provides the store's Raft member to an agent that is a voter.
type supervisor struct{ *Agent }

// Member returns the member, or nil if the agent is no voter.
func (s supervisor) Member() *member.Member {
	if s.leads.Load() || s.voter.Load() {
		return s.member
	}
	return nil
}

// Leader returns the member, and the duties if the agent leads.
func (s supervisor) Leader() (*member.Member, *member.Leadership, bool) {
	return s.Member(), s.lead.Load(), s.leads.Load() && s.ready()
}

// HandOver does nothing, because there is no other voter.
func (supervisor) HandOver() {}

// locator finds the leader that the test names.
type locator struct{ *Agent }

// AwaitLeader returns the address of the leader. It does not wait.
func (l locator) AwaitLeader(context.Context) (id, addr string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leader == "" {
		return "", "", member.ErrNoLeader
	}
	return "id-leader", l.leader, nil
}

// Group returns the Raft group of the store. Without an address of the leader, none is known.
func (l locator) Group(context.Context) member.GroupStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := member.GroupStatus{Servers: l.member.Group.Servers()}
	if l.replica != "" {
		out.Replicas = []string{l.replica}
	}
	if l.leader != "" || l.leads.Load() {
		out.LeaderID, _ = l.member.Group.Leader()
	}
	return out
}

// WhileReached returns a context that ends with ctx.
func (locator) WhileReached(ctx context.Context, _ string, _ time.Time) (_ context.Context, answered, cancel func()) {
	ctx, cancel = context.WithCancel(ctx)
	return ctx, func() {}, cancel
}

// RoundTrip sends a request to the leader.
func (l locator) RoundTrip(r *http.Request) (*http.Response, error) {
	l.mu.Lock()
	transport := l.transport
	l.mu.Unlock()
	return transport.RoundTrip(r)
}

// gossip is a view of the mesh in which the agent is alone.
type gossip struct{ *Agent }

// Members returns the agent.
func (g gossip) Members() []mesh.Member {
	return []mesh.Member{{
		ID: id(g.name), Self: mesh.Self{Name: g.name, RPCAddr: peerAddr, APIAddr: apiAddr, Build: "test", Eligible: true},
		Status: mesh.StatusAlive, Gossip: mesh.StatusAlive,
	}}
}

// Member returns the agent if it has this id. The agent a, which has the store, is dead for others that know no leader.
func (g gossip) Member(is string) (mesh.Member, bool) {
	switch is {
	case id(g.name):
		return g.Members()[0], true
	case id("a"):
		g.mu.Lock()
		defer g.mu.Unlock()
		m := mesh.Member{ID: is, Self: mesh.Self{Name: "a"}, Status: mesh.StatusAlive, Gossip: mesh.StatusAlive}
		if g.leader == "" {
			m.Status, m.Gossip, m.Since = mesh.StatusFailed, mesh.StatusFailed, time.UnixMilli(Epoch)
		}
		return m, true
	}
	return mesh.Member{}, false
}

// Join records the addresses, which Joined returns.
func (g gossip) Join(_ context.Context, addrs []string) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.joined = append(g.joined, addrs...)
	return len(addrs), nil
}

// Remove records the agent, which Joined returns.
func (g gossip) Remove(_ context.Context, agent string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left = append(g.left, agent)
	return nil
}

// idle is a worker without tasks.
type idle struct{ agent *Agent }

// Busy returns 0.
func (idle) Busy() int { return 0 }

// Session returns the session of the agent.
func (idle) Session() string { return worker }

// InTouch reports false, so that the agent looks for a leader.
func (idle) InTouch() bool { return false }

// Clocks returns what the agent was given.
func (i idle) Clocks() []*pb.ClockOffset { return i.agent.WrongClocks }

// ReportIncident does nothing.
func (idle) ReportIncident(*pb.Incident) {}

// Last returns the last removal of logs.
func (idle) Last() model.LogSweep {
	return model.LogSweep{At: Epoch, Removed: 3, Files: 12, Bytes: 49_152}
}

// retention is how long an agent keeps what has ended.
var retention = model.Retention{Clusters: 7 * 86_400_000, ClusterCount: 2000, Operations: 30 * 86_400_000, Requests: 86_400_000,
	Logs: 30 * 86_400_000, LogSize: 1 << 30}
