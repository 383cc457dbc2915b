package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/coopr/coopr/agent/member"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/wire"
)

// Locator finds the leader; *member.Locator implements it.
type Locator interface {
	AwaitLeader(ctx context.Context) (id, addr string, err error)
	WhileReached(ctx context.Context, id string, from time.Time) (_ context.Context, answered, cancel func())
	// Group returns what this agent knows of the Raft group.
	Group(ctx context.Context) member.GroupStatus
}

// ErrNotSent is returned by a transport that did not send a request, because it could not
// connect.
var ErrNotSent = errors.New("the agent cannot be reached")

// Router decides whether this agent answers a request, and forwards requests to the leader.
type Router struct {
	ID         string // of this agent
	Supervisor Supervisor
	Locator    Locator
	// Transport sends requests to the peer addresses of agents. Its error wraps
	// ErrNotSent if it did not send the request.
	Transport http.RoundTripper
}

// Serves reports whether this agent can answer a request. The leader can, once its duties
// run. A voter can if stale state is good enough, unless its state was found to be wrong.
func (r *Router) Serves(stale bool) bool {
	if _, _, ok := r.Supervisor.Leader(); ok {
		return true
	}
	m := r.Supervisor.Member()
	return stale && m != nil && m.Group.Member() && m.Trusted()
}

// RoundTripToLeader sends a request to the leader's API. It waits for a leader until the given time. From
// then on it gives the request up when this agent has lost the leader. It fails with problem.NoLeader if
// the request was not sent. After any other error the leader may have carried it out.
func (r *Router) RoundTripToLeader(ctx context.Context, until time.Time, method, uri string, header map[string][]string,
	body io.Reader) (int, map[string][]string, io.ReadCloser, error) {
	locate, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	id, addr, err := r.Locator.AwaitLeader(locate)
	if err != nil {
		return 0, nil, nil, problem.Wrap(problem.NoLeader, err)
	}
	if id == r.ID {
		// This agent has just been elected, and its duties may not run yet.
		return 0, nil, nil, problem.New(problem.NoLeader, "this agent is becoming the leader")
	}
	whileReached, answered, cancelRequest := r.Locator.WhileReached(ctx, id, until)
	req, err := request(wire.To(whileReached, wire.Leader(addr, id)), method, addr, uri, header, body)
	if err != nil {
		cancelRequest()
		return 0, nil, nil, err
	}
	res, err := r.Transport.RoundTrip(req)
	if err != nil {
		cause := context.Cause(whileReached)
		cancelRequest()
		switch {
		case ctx.Err() != nil:
			return 0, nil, nil, ctx.Err()
		case errors.Is(err, ErrNotSent):
			return 0, nil, nil, problem.New(problem.NoLeader, "agent %s at %s: %w", id, addr, err)
		case errors.Is(cause, member.ErrMoved), errors.Is(cause, member.ErrLost):
			err = cause
		}
		return 0, nil, nil, fmt.Errorf("agent %s at %s: %w", id, addr, err)
	}
	answered()
	return res.StatusCode, res.Header, &forwardedBody{res.Body, cancelRequest}, nil
}

// RoundTripToReplica sends a stale read to other agents that have a copy of the state, one after the other, until one
// answers it.
func (r *Router) RoundTripToReplica(ctx context.Context, method, uri string, header map[string][]string) (
	int, map[string][]string, io.ReadCloser, error) {
	for _, addr := range r.Locator.Group(ctx).Replicas {
		req, err := request(ctx, method, addr, uri, header, http.NoBody)
		if err != nil {
			return 0, nil, nil, err
		}
		res, err := r.Transport.RoundTrip(req)
		if err != nil {
			continue
		}
		if res.Header.Get(api.HeaderNotLeader) == "" { // else it does not trust its copy
			return res.StatusCode, res.Header, res.Body, nil
		}
		_ = res.Body.Close()
	}
	return 0, nil, nil, problem.New(problem.NoLeader, "no agent with a copy of the state answers")
}

// request returns a request to an agent. It has its own copy of the headers: a transport may still read them when it has given the
// request up, and the caller changes them for the next try.
func request(ctx context.Context, method, addr, uri string, header http.Header, body io.Reader) (*http.Request, error) {
	to, err := url.ParseRequestURI(uri)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://agent", body)
	if err != nil {
		return nil, err
	}
	to.Scheme, to.Host = "http", addr
	req.URL, req.Host, req.Header = to, addr, header.Clone()
	return req, nil
}

// forwardedBody is the body of a leader's answer. Reading it fails once another agent leads.
type forwardedBody struct {
	io.ReadCloser
	cancel context.CancelFunc
}

// Close ends the request.
func (b *forwardedBody) Close() error {
	b.cancel()
	return b.ReadCloser.Close()
}
