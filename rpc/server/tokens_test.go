package server_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server"
	"github.com/coopr/coopr/rpc/server/apitest"
)

// issue issues a token.
func (w *world) issue(by, path, body string) (t api.IssuedToken) {
	w.t.Helper()
	w.must(201, by, "POST", path, body).into(w.t, &t)
	return t
}

// kinds returns the leader of a mesh, a follower, and an agent without a copy of the state. They forward requests to a port for agents.
func kinds(t *testing.T) map[string]*world {
	leader := newWorld(t)
	peers := httptest.NewUnstartedServer(leader.handler)
	peers.Config = server.NewAgentServer(leader.handler, func(net.Conn) bool { return true })
	peers.Start()
	t.Cleanup(peers.Close)
	out := map[string]*world{"leader": leader}
	for name, voter := range map[string]bool{"follower": true, "worker": false} {
		a := apitest.NewAgent(leader.Store, name)
		transport := &http.Transport{}
		t.Cleanup(transport.CloseIdleConnections)
		a.Follow(peers.URL, voter, transport)
		out[name] = serve(t, a, nil)
	}
	return out
}

// A token with source ranges is unknown from any other address, at every kind of agent, whatever the client says of itself.
func TestTokenFromElsewhere(t *testing.T) {
	all := kinds(t)
	bound := all["leader"].issue(apitest.Super, "/v1/tokens", `{"actor":"ops","role":"superadmin","sources":["127.0.0.2","10.0.0.0/8"]}`)
	if got := strings.Join(bound.Sources, " "); got != "127.0.0.2/32 10.0.0.0/8" {
		t.Errorf("sources %s", got)
	}
	unknown := all["leader"].must(401, "guess", "GET", "/v1/self", "").problem(t)
	for name, w := range all {
		inside := w.from("127.0.0.2")
		for _, path := range []string{"/v1/self", "/v1/tokens", "/v1/status", "/v1/tokens?consistency=stale", "/v1/tokens?index=1", "/v1/metrics"} {
			inside.must(200, bound.Secret, "GET", path, "")
			w.must(401, bound.Secret, "GET", path, "")
			w.from("127.0.0.3").must(401, bound.Secret, "GET", path, "")
			for _, lie := range []string{api.HeaderClient + ": 127.0.0.2", "X-Forwarded-For: 127.0.0.2", "Forwarded: for=127.0.0.2", "X-Real-Ip: 127.0.0.2"} {
				w.must(401, bound.Secret, "GET", path, "", lie)
			}
			if a := w.ask(bound.Secret, "GET", path, "", api.HeaderClient+": 127.0.0.2", api.HeaderForwarded+": leader"); a.status != 401 && a.status != 503 {
				t.Errorf("%s: a request that says that it was forwarded: %d", name, a.status)
			}
		}
		if p := w.must(401, bound.Secret, "GET", "/v1/self", "").problem(t); p.Detail != unknown.Detail || p.Type != unknown.Type {
			t.Errorf("%s: %s, and for an unknown token %s", name, p.Detail, unknown.Detail)
		}
		w.must(401, bound.Secret, "POST", "/v1/tenants", `{"name":"x"}`)
		w.must(401, bound.Secret, "POST", "/v1/leave", `{"agent":"nobody"}`)
		w.must(401, bound.Secret, "GET", "/v1/events", "")
		// A stream goes on, also after the token was checked again.
		r := inside.events(bound.Secret, "?tenant=acme")
		all["leader"].issue(apitest.Admin, "/v1/tokens", `{"actor":"ci"}`)
		if typ, _ := r.next(); typ == "problem" {
			t.Errorf("%s: the stream ended", name)
		}
		r.close()
	}
	req := httptest.NewRequestWithContext(context.Background(), "GET", "/v1/self", nil)
	req.RemoteAddr = "@" // of a unix socket
	req.Header.Set("Authorization", "Bearer "+bound.Secret)
	rec := httptest.NewRecorder()
	all["leader"].handler.ServeHTTP(rec, req)
	if rec.Code != http.StatusUnauthorized {
		t.Errorf("from an address that is not known: %d", rec.Code)
	}
}

// A token that is made with a token has no wider source ranges.
func TestTokensAreBoundByTheirMakers(t *testing.T) {
	w := newWorld(t)
	maker := w.issue(apitest.Admin, "/v1/tokens", `{"actor":"zoe","role":"admin","sources":["127.0.0.0/8"]}`)
	for path, actor := range map[string]string{"/v1/self/tokens": "", "/v1/tokens": `"actor":"ci",`} {
		same := w.issue(maker.Secret, path, `{`+actor+`"description":"d"}`)
		if !slices.Equal(same.Sources, maker.Sources) {
			t.Errorf("%s: %v", path, same.Sources)
		}
		part := w.issue(maker.Secret, path, `{`+actor+`"sources":["127.0.0.2","127.0.0.2/32"]}`)
		if got := strings.Join(part.Sources, " "); got != "127.0.0.2/32" {
			t.Errorf("%s: %v", path, got)
		}
		w.must(401, part.Secret, "GET", "/v1/self", "")
		w.from("127.0.0.2").must(200, part.Secret, "GET", "/v1/self", "")
		for sources, fault := range map[string]string{
			`"10.0.0.0/8"`: "sources[0]", `"127.0.0.1","0.0.0.0/0"`: "sources[1]", `"::1"`: "sources[0]", `"localhost"`: "sources[0]", `"127.0.0.1/8"`: "sources[0]",
			strings.Repeat(`"127.0.0.1",`, model.MaxSources) + `"127.0.0.1"`: "sources",
		} {
			p := w.must(422, maker.Secret, "POST", path, `{`+actor+`"sources":[`+sources+`]}`).problem(t)
			if len(p.Errors) != 1 || p.Errors[0].Path != fault {
				t.Errorf("%s %s: %+v", path, sources, p.Errors)
			}
		}
	}
}

// The list of tokens has the hour of their last use, also that of sessions, and not before the leader has written it.
func TestTokenLastUse(t *testing.T) {
	w := newWorld(t)
	w.user(apitest.Admin, `{"name":"ann","password":"`+password+`"}`)
	s := w.login("ann", password)
	own := w.issue(s.Secret, "/v1/self/tokens", `{}`)
	list := func(by, path string) map[string]int64 {
		t.Helper()
		var all []model.Token
		w.must(200, by, "GET", path, "").into(t, &all)
		out := map[string]int64{}
		for _, k := range all {
			out[k.ID] = k.Used
		}
		return out
	}
	w.RecordUses()
	got := list(apitest.Admin, "/v1/tokens")
	if got[s.ID] == 0 || got[s.ID] != model.Hour(got[s.ID]) || got["t2"] == 0 || got["t5"] != 0 || got[own.ID] != 0 {
		t.Errorf("%v", got)
	}
	index := w.Index()
	list(apitest.Admin, "/v1/tokens")
	list(s.Secret, "/v1/self/tokens")
	w.RecordUses()
	if w.Index() != index {
		t.Error("a use in the same hour was written again")
	}
	w.must(401, "guess", "GET", "/v1/self", "")
	w.must(200, own.Secret, "GET", "/v1/self", "")
	if list(own.Secret, "/v1/self/tokens")[own.ID] != 0 || w.Index() != index {
		t.Error("a request has written its use")
	}
	w.RecordUses()
	if got := list(own.Secret, "/v1/self/tokens"); got[own.ID] == 0 || w.Index() != index+1 {
		t.Errorf("%v", got)
	}
}
