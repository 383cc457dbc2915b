package server_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server"
	"github.com/coopr/coopr/rpc/server/apitest"
)

// A caller without a valid token is refused before anything of its body is read, also by an agent that
// passes requests on, with and without a copy of the state.
func TestStrangersBodyIsNotRead(t *testing.T) {
	leader, follower := pair(t)
	worker := stateless(t, leader)
	for name, w := range map[string]*world{"leader": leader, "follower": follower, "worker": worker} {
		for _, token := range []string{"", "Authorization: Bearer guess\r\n"} {
			conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(time.Minute))
			fmt.Fprintf(conn, "POST /v1/clusters HTTP/1.1\r\nHost: a\r\n%sContent-Type: application/json\r\nContent-Length: 900000\r\n\r\n", token)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatalf("%s: no answer without the body: %v", name, err)
			}
			if resp.StatusCode != http.StatusUnauthorized {
				t.Errorf("%s: status %d", name, resp.StatusCode)
			}
			resp.Body.Close()
		}
	}
}

// A caller without a valid token takes no place of a reader that waits, and does not hear that there is
// none.
func TestStrangersTakeNoPlace(t *testing.T) {
	leader, _ := pair(t)
	for _, voter := range []bool{true, false} {
		b := apitest.NewAgent(leader.Store, "b")
		transport := &http.Transport{}
		t.Cleanup(transport.CloseIdleConnections)
		b.Follow(leader.url, voter, transport)
		h, err := server.New(server.Config{Services: b.Services(), MaxWatches: 1})
		if err != nil {
			t.Fatal(err)
		}
		srv := httptest.NewServer(h)
		t.Cleanup(srv.Close)
		w := &world{Agent: b, t: t, url: srv.URL, http: srv.Client()}
		reader := w.events(apitest.Admin, "")
		w.must(401, "guess", "GET", "/v1/clusters?index=99&consistency=stale", "").problem(t)
		w.must(401, "guess", "GET", "/v1/clusters?index=99", "").problem(t)
		reader.close()
	}
}

// An agent without a copy of the state asks the leader whom a token belongs to, also for the routes that
// it answers itself. It remembers the answer, and does not take its ignorance for a fault of the caller.
func TestStatelessAgentKnowsCallers(t *testing.T) {
	leader, _ := pair(t)
	w := stateless(t, leader)
	var self api.Self
	w.must(200, apitest.User, "GET", "/v1/self", "").into(t, &self)
	var same api.Self
	leader.must(200, apitest.User, "GET", "/v1/self", "").into(t, &same)
	if !reflect.DeepEqual(self, same) || self.Actor == "" || self.Tenant == "" || self.Role == "" {
		t.Errorf("the worker says %+v, the leader %+v", self, same)
	}
	w.must(200, apitest.User, "GET", "/v1/members", "")
	w.must(401, "guess", "GET", "/v1/members", "").problem(t)
	w.Follow("", false, nil)
	w.must(200, apitest.User, "GET", "/v1/members", "")
	if p := w.must(503, apitest.Admin, "GET", "/v1/members", "").problem(t); p.Type != api.ProblemNoLeader {
		t.Errorf("%+v", p)
	}
}

// stateless returns an agent that has no copy of the leader's state, and passes requests on to it.
func stateless(t *testing.T, leader *world) *world {
	t.Helper()
	a := apitest.NewAgent(leader.Store, "worker")
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	a.Follow(leader.url, false, transport)
	return serve(t, a, nil)
}

// A request that was passed on once is not passed on again, and neither is the question whom its token
// belongs to.
func TestForwardedOnlyOnce(t *testing.T) {
	leader, _ := pair(t)
	w := stateless(t, leader)
	before := strings.Count(leader.log.String(), "\n")
	req, err := http.NewRequest("GET", w.url+"/v1/clusters", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer guess")
	req.Header.Set(api.HeaderForwarded, "another")
	resp, err := w.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get(api.HeaderNotLeader) == "" {
		t.Errorf("status %d, %v", resp.StatusCode, resp.Header)
	}
	if after := strings.Count(leader.log.String(), "\n"); after != before {
		t.Error("the leader was asked")
	}
}
