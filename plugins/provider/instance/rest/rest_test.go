package rest

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coopr/coopr/plugins/provider/instance"
)

// TestPatience checks that repeatable requests are repeated with their bodies, and that others are
// sent once.
func TestPatience(t *testing.T) {
	for name, x := range map[string]struct {
		method string
		status []int // statuses of the first answers; 0: the connection is closed
		sent   int
		kind   instance.Kind
	}{
		"throttled":              {"POST", []int{429, 429}, 3, -1},
		"throttled for ever":     {"POST", []int{429, 429, 429, 429}, 4, instance.Throttled},
		"a read that fails":      {"GET", []int{500, 0, 503}, 4, -1},
		"a write that fails":     {"POST", []int{500}, 1, instance.Unclear},
		"a write without answer": {"POST", []int{0}, 1, instance.Unclear},
		"refused":                {"GET", []int{403}, 1, instance.Credentials},
		"nothing there":          {"DELETE", []int{404}, 1, instance.NotFound},
	} {
		t.Run(name, func(t *testing.T) {
			var sent atomic.Int32
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				n := int(sent.Add(1))
				if b, _ := io.ReadAll(r.Body); r.Method == "POST" && string(b) != `{"a":1}` {
					t.Errorf("body %q", b)
				}
				if n > len(x.status) {
					_, _ = io.WriteString(w, `{"done":true}`)
					return
				}
				if x.status[n-1] == 0 {
					panic(http.ErrAbortHandler)
				}
				w.Header().Set("Retry-After", "0")
				w.WriteHeader(x.status[n-1])
			}))
			defer s.Close()
			next := &http.Transport{DisableKeepAlives: true}
			c := &Client{Base: s.URL, HTTP: &http.Client{Transport: &Patient{Next: next, Tries: 4, Pause: time.Millisecond}}}
			var in any
			if x.method == "POST" {
				in = json.RawMessage(`{"a":1}`)
			}
			var out struct{ Done bool }
			err := c.Do(context.Background(), x.method, "/x", in, &out)
			if x.kind < 0 && (err != nil || !out.Done) || x.kind >= 0 && instance.KindOf(err) != x.kind || int(sent.Load()) != x.sent {
				t.Errorf("%v, sent %d times", err, sent.Load())
			}
		})
	}
	now := time.Unix(1000, 0).UTC()
	for value, want := range map[string]time.Duration{"7": 7 * time.Second, now.Add(9 * time.Second).Format(http.TimeFormat): 9 * time.Second,
		"soon": 0} {
		if got := after(http.Header{"Retry-After": {value}}, now); got != want {
			t.Errorf("%s: %v", value, got)
		}
	}
	if got := after(http.Header{"Ratelimit-Reset": {"1005"}}, now); got != 5*time.Second {
		t.Error(got)
	}
}

// TestGuarded checks that a guard stops a request that goes to this machine, directly, by a name or
// by a redirect, and that it does so at once.
func TestGuarded(t *testing.T) {
	var sent atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent.Add(1)
		http.Redirect(w, r, "http://127.0.0.2:1/", http.StatusTemporaryRedirect)
	}))
	defer s.Close()
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	for name, x := range map[string]struct {
		base, allow string
		sent        int32
	}{
		"directly":   {base: s.URL},
		"by a name":  {base: "http://localhost:" + port},
		"redirected": {base: s.URL, allow: "127.0.0.1/32", sent: 1},
	} {
		sent.Store(0)
		g, err := instance.ParseGuard(x.allow)
		if err != nil {
			t.Fatal(err)
		}
		client := NewHTTP(g)
		client.Transport.(*Patient).Pause = 24 * time.Hour
		err = (&Client{Base: x.base, HTTP: client}).Do(t.Context(), "GET", "/x", nil, nil)
		client.Transport.(*Patient).Next.(*http.Transport).CloseIdleConnections()
		if instance.KindOf(err) != instance.Invalid || !strings.Contains(err.Error(), "providers.endpoints") || sent.Load() != x.sent {
			t.Errorf("%s: %v, %d requests were answered", name, err, sent.Load())
		}
	}
}

// TestNothingQuoted checks that errors quote nothing of an answer but the message of a cloud.
func TestNothingQuoted(t *testing.T) {
	for name, x := range map[string]struct {
		status int
		body   string
	}{
		"refused":  {403, "hunter2"},
		"no JSON":  {200, "hunter2"},
		"no match": {200, `{"done":7002}`},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(x.status)
			_, _ = io.WriteString(w, x.body)
		}))
		var out struct{ Done bool }
		err := (&Client{Base: s.URL, HTTP: s.Client()}).Do(t.Context(), "GET", "/x", nil, &out)
		s.Close()
		if err == nil || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "'h'") || strings.Contains(err.Error(), "7002") ||
			strings.Contains(err.Error(), "number") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
