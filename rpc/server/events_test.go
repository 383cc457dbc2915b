package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server"
	"github.com/coopr/coopr/rpc/server/apitest"
	"github.com/coopr/coopr/rpc/server/rest"
)

// reader reads server-sent events.
type reader struct {
	t     testing.TB
	r     *bufio.Reader
	close func()
	id    string
	resp  *http.Response
}

func (w *world) events(token, query string, headers ...string) *reader {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	req, _ := http.NewRequestWithContext(ctx, "GET", w.url+"/v1/events"+query, nil)
	req.Header.Set("Authorization", "Bearer "+token)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := w.http.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	if resp.StatusCode != 200 {
		w.t.Fatalf("status %d", resp.StatusCode)
	}
	r := &reader{t: w.t, r: bufio.NewReader(resp.Body), resp: resp, close: func() { cancel(); resp.Body.Close() }}
	w.t.Cleanup(r.close)
	return r
}

// next returns the next event's type and data. It skips comments and records ids.
func (r *reader) next() (typ, data string) {
	r.t.Helper()
	for {
		line, err := r.r.ReadString('\n')
		if err != nil {
			r.t.Fatalf("the stream ended: %v", err)
		}
		line = strings.TrimSuffix(line, "\n")
		switch name, value, _ := strings.Cut(line, ": "); name {
		case "id":
			r.id = value
		case "event":
			typ = value
		case "data":
			data = value
		case "":
			if data != "" {
				return typ, data
			}
		}
	}
}

func (r *reader) event() model.Event {
	r.t.Helper()
	typ, data := r.next()
	var e model.Event
	if err := json.Unmarshal([]byte(data), &e); err != nil || e.Type != typ {
		r.t.Fatalf("%s %s: %v", typ, data, err)
	}
	return e
}

func TestEvents(t *testing.T) {
	w := newWorld(t)
	w.must(200, apitest.Admin, "POST", "/v1/import", parts)
	r := w.events(apitest.Admin, "")
	if got := r.resp.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("%s", got)
	}
	w.must(200, apitest.Admin, "PUT", "/v1/clustertemplates/shop", shop)
	if e := r.event(); e.Type != "definition.changed" || e.Subject != "clustertemplates/shop" || e.Actor != "alice" {
		t.Errorf("%+v", e)
	}
	place := r.id
	r.close()

	// A reader that reconnects receives the events that it missed.
	id, op := w.cluster("shop1", "1")
	w.Report(op+"/0", model.TaskSucceeded, "fine")
	r = w.events(apitest.Admin, "", "Last-Event-ID: "+place)
	var types []string
	for range 4 {
		types = append(types, r.event().Type)
	}
	if fmt.Sprint(types) != "[operation.changed task.changed node.changed task.changed]" {
		t.Errorf("%v", types)
	}
	r.close()

	// Of two events of one index only the second has an id.
	r = w.events(apitest.Admin, "?index="+place)
	r.event()
	leased := r.event().Index
	if e := r.event(); r.id != fmt.Sprint(leased) {
		t.Errorf("place %s between two events of index %d", r.id, e.Index)
	}
	if e := r.event(); r.id != fmt.Sprint(e.Index) {
		t.Errorf("place %s after index %d", r.id, e.Index)
	}
	r.close()

	// Filters.
	for query, want := range map[string]string{"type=task.*": "task.changed", "type=operation.changed": "operation.changed", "cluster=" + id: "operation.changed", "operation=" + op: "operation.changed", "type=node.changed,task.changed": "task.changed"} {
		r = w.events(apitest.Admin, "?index="+place+"&"+query)
		if e := r.event(); e.Type != want {
			t.Errorf("%s: %+v", query, e)
		}
		r.close()
	}
}

// TestBeatOfAnUndecidedStream: the sign of life of a stream comes from a goroutine of its own. It must not come before the stream is
// permitted, however long that takes: the panic of a stream without a decision would end the agent. The race detector sees it.
func TestBeatOfAnUndecidedStream(t *testing.T) {
	h, err := server.New(server.Config{
		Services: newAgent(t).Services(), Logger: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(), Name: "test", Heartbeat: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(h)
	defer s.Close()
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, "GET", s.URL+"/v1/events?index=1", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+apitest.Admin)
		resp, err := s.Client().Do(req)
		if err != nil || resp.StatusCode != 200 {
			t.Fatal(resp, err)
		}
		if _, err := resp.Body.Read(make([]byte, 1)); err != nil {
			t.Error(err)
		}
		cancel()
		resp.Body.Close()
	}
}

func TestEventsThatAreNotForTheReader(t *testing.T) {
	w := newWorld(t)
	w.template()
	other, owner, elsewhere, all := w.events(
		apitest.Other,
		"",
	), w.events(
		apitest.User,
		"",
	), w.events(
		apitest.Super,
		"",
	), w.events(
		apitest.Super,
		"?tenant=*",
	)
	_, op := w.cluster("shop1", "1") // bob's
	w.must(200, apitest.Admin, "PUT", "/v1/services/s", `{"name":"s"}`)
	w.must(200, apitest.Super, "PUT", "/v1/services/mine", `{"name":"mine"}`)
	if e := owner.event(); e.Type != "operation.changed" {
		t.Errorf("%+v", e)
	}
	if e := all.event(); e.Type != "operation.changed" || e.Tenant != "acme" {
		t.Errorf("%+v", e)
	}
	if e := other.event(); e.Subject != "services/s" {
		t.Errorf("%+v", e)
	}
	if e := elsewhere.event(); e.Subject != "services/mine" {
		t.Errorf("%+v", e)
	}
	// The heartbeat sends the index of events that the reader may not see.
	w.Report(op+"/0", model.TaskLeased, "")
	at := w.Index()
	eventually(t, "the place passes", func() bool {
		line, err := other.r.ReadString('\n')
		return err == nil && line == fmt.Sprintf("id: %d\n", at)
	})
}

func TestEventsThatAreGone(t *testing.T) {
	w := newWorld(t)
	w.template()
	w.cluster("shop1", "1")
	// A snapshot that is restored has no events.
	saved := w.must(200, apitest.Super, "GET", "/v1/operator/snapshot", "")
	w.must(200, apitest.Super, "POST", "/v1/operator/snapshot?unsigned=true", saved.body, "Content-Type: application/octet-stream")
	r := w.events(apitest.Admin, "?index=11")
	typ, data := r.next()
	var p api.Problem
	if err := json.Unmarshal([]byte(data), &p); err != nil || typ != "problem" || p.Type != api.ProblemConflict {
		t.Errorf("%s %s %v", typ, data, err)
	}
	if _, err := r.r.ReadString('\n'); err == nil {
		t.Error("the stream goes on")
	}
}

func TestNothingOutlivesItsToken(t *testing.T) {
	leader, follower := pair(t)
	_, op := leader.cluster("shop1", "1")
	leader.Log(op+"/0", "first\n")
	for name, w := range map[string]*world{"leader": leader, "follower": follower} {
		var token api.IssuedToken
		w.must(201, apitest.Admin, "POST", "/v1/tokens", `{"actor":"`+name+`","role":"read"}`).into(t, &token)
		stream := w.events(token.Secret, "?type=none.*")
		logs := map[string]*http.Response{}
		for _, follow := range []string{"true", "1"} {
			req, _ := http.NewRequest(http.MethodGet, w.url+"/v1/tasks/"+op+"%2F0/log?follow="+follow, nil)
			req.Header.Set("Authorization", "Bearer "+token.Secret)
			resp, err := w.http.Do(req)
			if err != nil || resp.StatusCode != 200 {
				t.Fatalf("%v %v", resp, err)
			}
			defer resp.Body.Close()
			logs[follow] = resp
		}
		w.must(200, apitest.Admin, "DELETE", "/v1/tokens/"+token.ID, "")
		if typ, data := stream.next(); typ != "problem" || !strings.Contains(data, "revoked") {
			t.Errorf("%s: %s %s", name, typ, data)
		}
		for follow, resp := range logs {
			if text, err := io.ReadAll(resp.Body); err == nil || string(text) != "first\n" {
				t.Errorf("%s, follow=%s: %q, %v", name, follow, text, err)
			}
		}
	}
}

// TestFollowedLogsFollowPolicies checks that a followed log ends when a policy does not permit to read it any more.
func TestFollowedLogsFollowPolicies(t *testing.T) {
	w := newWorld(t)
	w.template()
	_, op := w.cluster("web", "1")
	w.Log(op+"/0", "first\n")
	w.must(200, apitest.Admin, "PUT", "/v1/policies/open", policy("open",
		`permit (principal == User::"carol", action == Action::"read", resource in Tenant::"acme");`))
	req, _ := http.NewRequest(http.MethodGet, w.url+"/v1/tasks/"+op+"%2F0/log?follow=true", nil)
	req.Header.Set("Authorization", "Bearer "+apitest.Other)
	resp, err := w.http.Do(req)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("%v %v", resp, err)
	}
	defer resp.Body.Close()
	w.must(200, apitest.Admin, "DELETE", "/v1/policies/open", "")
	if text, err := io.ReadAll(resp.Body); err == nil || string(text) != "first\n" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestBlockingReadsEndWithTheirToken(t *testing.T) {
	a := newAgent(t)
	b := &slow{begun: make(chan struct{}), ended: make(chan struct{})}
	w := serve(t, a, func(s *rest.Services) { b.State, s.State = s.State, b })
	got := make(chan answer, 1)
	go func() { got <- w.ask(apitest.User, "GET", "/v1/clusters?wait=10m&index="+fmt.Sprint(w.Index()), "") }()
	<-b.begun
	w.must(200, apitest.Admin, "DELETE", "/v1/tokens/t3", "")
	if a := <-got; a.status != 401 || !strings.Contains(a.body, "revoked") {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestStreamsEndWithTokensOfOtherTenants(t *testing.T) {
	w := newWorld(t)
	var token api.IssuedToken
	w.must(201, apitest.Super, "POST", "/v1/tokens", `{"actor":"ops","role":"superadmin"}`).into(t, &token)
	// The revocation is not an event of the stream's tenant, so only the clock ends the stream.
	stream := w.events(token.Secret, "?tenant=acme")
	w.must(200, apitest.Super, "DELETE", "/v1/tokens/"+token.ID, "")
	if typ, data := stream.next(); typ != "problem" || !strings.Contains(data, "revoked") {
		t.Errorf("%s %s", typ, data)
	}
}
