package apitest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server"
)

// Agent is one agent of a test mesh; Services returns it as the services of an API.
type Agent struct {
	*Store
	name string
	// leads and voter decide which requests the agent can serve.
	leads, voter atomic.Bool
	mu           sync.Mutex
	leader       string // URL of the leader's API
	transport    http.RoundTripper
	failures     []error // of the next writes, in order
	joined, left []string
	removed      []string
}

// NewAgent returns an agent that leads.
func NewAgent(s *Store, name string) *Agent {
	a := &Agent{Store: s, name: name, transport: http.DefaultTransport}
	a.leads.Store(true)
	a.voter.Store(true)
	return a
}

// Follow makes the agent a follower of the leader whose API is at url. With "" it
// knows no leader. It forwards requests through transport.
func (a *Agent) Follow(url string, voter bool, transport http.RoundTripper) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.leader, a.transport = url, transport
	a.leads.Store(false)
	a.voter.Store(voter)
}

// Lead makes the agent the leader.
func (a *Agent) Lead() { a.leads.Store(true) }

// Fail makes the next writes fail with these errors. A write that fails with
// problem.UnknownOutcome is carried out nevertheless.
func (a *Agent) Fail(errs ...error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failures = append(a.failures, errs...)
}

// write is like Store.change, and fails as requested with Fail.
func (a *Agent) write(who model.Caller, fn func(*state) ([]model.Event, error)) (api.Written, error) {
	err := a.failure()
	if err != nil && !errors.Is(err, problem.UnknownOutcome) {
		return api.Written{}, err
	}
	w, werr := a.change(who, fn)
	if werr != nil {
		return w, werr
	}
	return w, err
}

func (a *Agent) failure() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.failures) == 0 {
		return nil
	}
	err := a.failures[0]
	a.failures = a.failures[1:]
	return err
}

// Serves reports whether the agent leads, or is a voter and stale state is good enough.
func (a *Agent) Serves(stale bool) bool { return a.leads.Load() || stale && a.voter.Load() }

// RoundTripToLeader sends a request to the leader's API.
func (a *Agent) RoundTripToLeader(ctx context.Context, method, uri string, header map[string][]string, body io.Reader) (int,
	map[string][]string, io.ReadCloser, error) {
	a.mu.Lock()
	leader, transport := a.leader, a.transport
	a.mu.Unlock()
	if leader == "" {
		return 0, nil, nil, problem.NoLeader
	}
	req, err := http.NewRequestWithContext(ctx, method, leader+uri, body)
	if err != nil {
		return 0, nil, nil, err
	}
	req.Header = header
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return 0, nil, nil, err
	}
	return resp.StatusCode, resp.Header, resp.Body, nil
}

// Authenticate returns the caller of a token in the store.
func (a *Agent) Authenticate(_ context.Context, token string) (model.Caller, error) {
	a.Store.mu.Lock()
	defer a.Store.mu.Unlock()
	t, ok := a.now.Tokens[a.secrets[token]]
	if !ok {
		return model.Caller{}, problem.New(problem.Unauthorized, "the token is nobody's")
	}
	return model.Caller{Tenant: t.Tenant, Actor: t.Actor, Role: t.Role}, nil
}

// View returns the present state. With another after than 0 it waits until the state is newer or ctx ends.
func (a *Agent) View(ctx context.Context, _ api.Consistency, after uint64) (server.View, error) {
	for {
		a.Store.mu.Lock()
		now, wake := a.now, a.wake
		a.Store.mu.Unlock()
		if now.Index > after || after == 0 {
			return view{now}, nil
		}
		select {
		case <-ctx.Done():
			return view{now}, nil
		case <-wake:
		}
	}
}

// PutDefinitions writes all definitions, or none.
func (a *Agent) PutDefinitions(_ context.Context, who model.Caller, defs []model.StoredDefinition, createOnly bool) (api.Written, error) {
	var warnings model.Faults
	w, err := a.write(who, func(st *state) ([]model.Event, error) {
		var events []model.Event
		for _, d := range defs {
			key := defKey(who.Tenant, d.Kind, d.Name)
			versions := st.Defs[key]
			if createOnly && len(versions) > 0 {
				return nil, problem.New(problem.Conflict, "%s/%s exists: PUT writes a new version of it", d.Kind, d.Name)
			}
			d.Version, d.Index = len(versions)+1, st.Index
			st.Defs[key] = append(slices.Clone(versions), d)
			events = append(events, model.Event{Type: "definition.changed", Subject: string(d.Kind) + "/" + d.Name})
			if bytes.Contains(d.Body, []byte(`"icon":"old"`)) {
				warnings = append(warnings, &model.Fault{Subject: string(d.Kind) + "/" + d.Name, Path: "icon", Message: "is old"})
			}
		}
		return events, nil
	})
	w.Warnings = warnings
	return w, err
}

// DeleteDefinition deletes one version of a definition; version 0 means all.
func (a *Agent) DeleteDefinition(_ context.Context, who model.Caller, kind model.Kind, name string, version int) (api.Written, error) {
	return a.write(who, func(st *state) ([]model.Event, error) {
		key := defKey(who.Tenant, kind, name)
		left := slices.DeleteFunc(slices.Clone(st.Defs[key]), func(d model.StoredDefinition) bool { return version == 0 || d.Version == version })
		if len(left) == len(st.Defs[key]) {
			return nil, problem.New(problem.NotFound, "there is no %s/%s", kind, name)
		}
		st.Defs[key] = left
		if len(left) == 0 {
			delete(st.Defs, key)
		}
		return []model.Event{{Type: "definition.changed", Subject: string(kind) + "/" + name, Status: "deleted"}}, nil
	})
}

// PutTenant writes a tenant.
func (a *Agent) PutTenant(_ context.Context, who model.Caller, t model.Tenant, createOnly bool) (api.Written, error) {
	return a.write(who, func(st *state) ([]model.Event, error) {
		if _, ok := st.Tenants[t.Name]; ok && createOnly {
			return nil, problem.New(problem.Conflict, "tenant %s exists", t.Name)
		}
		st.Tenants[t.Name] = t
		return []model.Event{{Type: "tenant.changed", Subject: t.Name}}, nil
	})
}

// DeleteTenant deletes a tenant without clusters.
func (a *Agent) DeleteTenant(_ context.Context, who model.Caller, name string) (api.Written, error) {
	return a.write(who, func(st *state) ([]model.Event, error) {
		if _, ok := st.Tenants[name]; !ok {
			return nil, problem.New(problem.NotFound, "there is no tenant %s", name)
		}
		for _, c := range st.Clusters {
			if c.Tenant == name && c.Status != model.ClusterTerminated {
				return nil, problem.New(problem.Conflict, "tenant %s has clusters: delete them first", name)
			}
		}
		delete(st.Tenants, name)
		return nil, nil
	})
}

// CreateToken issues a token.
func (a *Agent) CreateToken(_ context.Context, who model.Caller, t model.Token) (string, api.Written, error) {
	secret := ""
	w, err := a.write(who, func(st *state) ([]model.Event, error) {
		t.ID, t.Created = fmt.Sprintf("t%d", len(st.Tokens)+1), a.clock
		st.Tokens[t.ID] = t
		secret = "secret-of-" + t.ID
		a.secrets[secret] = t.ID
		return nil, nil
	})
	return secret, w, err
}

// DeleteToken revokes a token.
func (a *Agent) DeleteToken(_ context.Context, who model.Caller, id string) (api.Written, error) {
	return a.write(who, func(st *state) ([]model.Event, error) {
		delete(st.Tokens, id)
		return nil, nil
	})
}

// Members returns this agent as the only member.
func (a *Agent) Members() []api.Member {
	busy := 1
	return []api.Member{{ID: "id-" + a.name, Name: a.name, Status: "alive", PeerAddr: "127.0.0.1:55055", APIAddr: "127.0.0.1:55054",
		Build: "test", Voter: a.voter.Load(), Leader: a.leads.Load(), Eligible: true, Slots: 4, Busy: &busy}}
}

// Status returns the status of the agent.
func (a *Agent) Status() api.AgentStatus {
	return api.AgentStatus{ID: "id-" + a.name, Name: a.name, Build: "test", Leader: "id-a", LeaderReady: true, IsLeader: a.leads.Load(),
		Voter: a.voter.Load(), Applied: a.Index(), Members: 1, Alive: 1, Slots: 4, Busy: 1}
}

// Join records the addresses, which Joined returns.
func (a *Agent) Join(_ context.Context, addrs []string) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.joined = append(a.joined, addrs...)
	return len(addrs), nil
}

// Leave records the agent, which Joined returns.
func (a *Agent) Leave(_ context.Context, agent string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.left = append(a.left, agent)
	return nil
}

// Joined returns the arguments of all calls of Join and of Leave.
func (a *Agent) Joined() (joined, left []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.joined, a.left
}

// RaftPeers returns this agent as the only member of the Raft group.
func (a *Agent) RaftPeers(context.Context) ([]api.RaftPeer, error) {
	return []api.RaftPeer{{ID: "id-" + a.name, Name: a.name, Addr: "127.0.0.1:55055", Voter: true, Leader: a.leads.Load(), Healthy: true}}, nil
}

// RaftTransfer fails, because there is no other voter.
func (a *Agent) RaftTransfer(_ context.Context, to string) error {
	if to != "" {
		return problem.New(problem.NotFound, "there is no voter %s", to)
	}
	return problem.New(problem.Conflict, "there is no other voter")
}

// RaftRemove records the id and changes nothing else.
func (a *Agent) RaftRemove(_ context.Context, id string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.removed = append(a.removed, id)
	return nil
}

// SnapshotSave writes the state to w.
func (a *Agent) SnapshotSave(_ context.Context, w io.Writer) error {
	data, err := a.save()
	if err != nil {
		return err
	}
	_, err = w.Write(data)
	return err
}

// SnapshotRestore replaces the state by a saved one.
func (a *Agent) SnapshotRestore(_ context.Context, r io.Reader) error {
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	return a.restore(data)
}
