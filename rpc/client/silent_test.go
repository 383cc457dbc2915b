package client_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/rpc/client"
)

// hosts is a transport that answers for agents. It never answers for those that are true.
type hosts map[string]bool

func (h hosts) RoundTrip(r *http.Request) (*http.Response, error) {
	if h[r.URL.Hostname()] {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	body := `[{"name":"` + r.URL.Hostname() + `"}]`
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

// TestSilentHost checks that the client sends a request to the next agent if the first does not
// answer in time, and returns an error if none does. A read that waits gets more time.
func TestSilentHost(t *testing.T) {
	for name, tt := range map[string]struct {
		silent hosts
		read   client.Read
		from   string // the agent that answers
		within time.Duration
	}{
		"the first":       {hosts{"a": true}, client.Read{}, "b", time.Second},
		"while it waits":  {hosts{"a": true}, client.Read{After: 1, Wait: 20 * time.Second}, "b", 21 * time.Second},
		"by its own time": {hosts{"a": true}, client.Read{After: 1}, "b", 61 * time.Second},
		"all":             {hosts{"a": true, "b": true}, client.Read{}, "", 31 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, err := client.New(client.Config{Addresses: []string{"a", "b"}, Transport: tt.silent})
				if err != nil {
					t.Fatal(err)
				}
				begun := time.Now()
				list, _, err := c.Agents(t.Context(), tt.read)
				switch {
				case tt.from == "" && (err == nil || !strings.Contains(err.Error(), "no answer within 30s")):
					t.Errorf("the error is %v", err)
				case tt.from != "" && (err != nil || len(list) != 1 || list[0].Name != tt.from):
					t.Errorf("%v answered, %v", list, err)
				}
				if took := time.Since(begun); took > tt.within {
					t.Errorf("after %v", took)
				}
			})
		})
	}
}

// busy is a transport whose agents take five seconds for each answer. It counts the requests that were not
// cancelled before their answer.
type busy struct{ answered, asked atomic.Int32 }

func (b *busy) RoundTrip(r *http.Request) (*http.Response, error) {
	b.asked.Add(1)
	select {
	case <-time.After(5 * time.Second):
	case <-r.Context().Done():
		return nil, context.Cause(r.Context())
	}
	b.answered.Add(1)
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("[]")), Request: r}, nil
}

// TestBusyHosts checks that agents which are slow get the time that they need, and that a write that the mesh might
// carry out twice goes to one agent only.
func TestBusyHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		agents := &busy{}
		c, err := client.New(client.Config{Addresses: []string{"a", "b"}, Transport: agents})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := c.Agents(t.Context(), client.Read{}); err != nil || agents.answered.Load() != 1 {
			t.Errorf("%d of %d requests were answered: %v", agents.answered.Load(), agents.asked.Load(), err)
		}
		agents.asked.Store(0)
		agents.answered.Store(0)
		if err := c.Leave(t.Context(), "x", false); err != nil || agents.asked.Load() != 1 {
			t.Errorf("a write was sent %d times: %v", agents.asked.Load(), err)
		}
	})
}
