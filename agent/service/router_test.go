package service

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/coopr/coopr/agent/member"
	"github.com/coopr/coopr/rpc/api"
)

// one is a Locator that knows one other agent, which leads.
type one struct{}

func (one) AwaitLeader(context.Context) (id, addr string, err error) { return "b", "b.example:1", nil }

func (one) WhileReached(ctx context.Context, _ string, _ time.Time) (context.Context, func(), func()) {
	ctx, cancel := context.WithCancel(ctx)
	return ctx, func() {}, cancel
}

func (one) Group(context.Context) member.GroupStatus {
	return member.GroupStatus{Replicas: []string{"b.example:1"}}
}

// holder is a transport that gives up and keeps its request, as http.Transport may while it still writes it.
type holder struct{ kept *http.Request }

func (k *holder) RoundTrip(r *http.Request) (*http.Response, error) {
	k.kept = r
	return nil, errors.New("the connection broke")
}

// TestRequestsOwnTheirHeaders checks that a caller may change the headers of a request for its next try, although the transport may
// still read those of the last one.
func TestRequestsOwnTheirHeaders(t *testing.T) {
	for name, try := range map[string]func(*Router, http.Header) error{
		"leader": func(r *Router, h http.Header) error {
			_, _, _, err := r.RoundTripToLeader(t.Context(), time.Now().Add(time.Minute), http.MethodPut, "/v1/secrets/a", h, http.NoBody)
			return err
		},
		"replica": func(r *Router, h http.Header) error {
			_, _, _, err := r.RoundTripToReplica(t.Context(), http.MethodGet, "/v1/secrets/a", h)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := &holder{}
			header := http.Header{api.HeaderHold: {"2s"}}
			if err := try(&Router{ID: "a", Locator: one{}, Transport: k}, header); err == nil {
				t.Fatal("a broken connection is no error")
			}
			header.Set(api.HeaderHold, "1s")
			if got := k.kept.Header.Get(api.HeaderHold); got != "2s" {
				t.Errorf("the request that was given up has changed: %s is %s", api.HeaderHold, got)
			}
		})
	}
}
