package server_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/apitest"
)

// pair is a leader and a follower with the same store.
func pair(t *testing.T) (leader, follower *world) {
	t.Helper()
	leader = newWorld(t)
	leader.template()
	b := apitest.NewAgent(leader.Store, "b")
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	b.Follow(leader.url, true, transport)
	return leader, serve(t, b, nil)
}

func TestForwarding(t *testing.T) {
	leader, w := pair(t)
	id, op := w.cluster("shop1", "2")
	leader.Report(op+"/0", model.TaskLeased, "")
	a := w.must(200, apitest.User, "GET", "/v1/clusters/"+id, "")
	if a.header.Get("Coopr-Index") == "" || len(a.header.Values("Coopr-Index")) != 1 {
		t.Errorf("%v", a.header)
	}
	// Problem documents are forwarded unchanged.
	w.must(404, apitest.User, "GET", "/v1/clusters/nothing", "").problem(t)
	w.must(401, "guess", "GET", "/v1/clusters", "").problem(t)
	w.must(400, apitest.User, "POST", "/v1/clusters", "{").problem(t)
	// The follower itself answers local routes and stale reads.
	var st api.AgentStatus
	w.must(200, apitest.User, "GET", "/v1/status", "").into(t, &st)
	if st.Name != "b" {
		t.Errorf("status of %s", st.Name)
	}
	leader.must(200, apitest.User, "GET", "/v1/clusters", "")
	before := strings.Count(leader.log.String(), "\n")
	w.must(200, apitest.User, "GET", "/v1/clusters?consistency=stale", "")
	if after := strings.Count(leader.log.String(), "\n"); after != before {
		t.Error("a stale read went to the leader")
	}
	if !strings.Contains(w.log.String(), "forwarded=true") {
		t.Error("the log does not tell that requests were passed on")
	}
	// A blocking read waits at the leader.
	got := make(chan answer)
	go func() {
		got <- w.ask(apitest.User, "GET", "/v1/operations/"+op+"?wait=10m&index="+a.header.Get("Coopr-Index"), "")
	}()
	leader.Report(op+"/0", model.TaskSucceeded, "")
	if a := <-got; !strings.Contains(a.body, `"done":1`) {
		t.Errorf("%s", a.body)
	}
}

func TestForwardedStreams(t *testing.T) {
	leader, w := pair(t)
	_, op := w.cluster("shop1", "1")
	open := func(token, path string) (*bufio.Reader, func()) {
		t.Helper()
		ctx, cancel := context.WithCancel(context.Background())
		req, _ := http.NewRequestWithContext(ctx, "GET", w.url+path, nil)
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := w.http.Do(req)
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("%v %v", err, resp)
		}
		return bufio.NewReader(resp.Body), func() { cancel(); resp.Body.Close() }
	}
	events, stop := open(apitest.User, "/v1/events")
	defer stop()
	if line, err := events.ReadString('\n'); err != nil || line != ": here\n" {
		t.Fatalf("%q %v", line, err)
	}
	leader.Log(op+"/0", "first\n")
	log, stopLog := open(apitest.User, "/v1/tasks/"+op+"%2F0/log?follow=true")
	defer stopLog()
	for _, text := range []string{"first\n", "second\n", "third\n"} {
		if text != "first\n" {
			leader.Log(op+"/0", text)
		}
		// Each piece arrives before the log ends.
		if line, err := log.ReadString('\n'); err != nil || line != text {
			t.Fatalf("%q %v", line, err)
		}
	}
	leader.Report(op+"/0", model.TaskSucceeded, "")
	if rest, err := io.ReadAll(log); err != nil || len(rest) != 0 {
		t.Errorf("%q %v", rest, err)
	}
	for {
		line, err := events.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(line, "data:") && strings.Contains(line, `"task":"`+op+`/0"`) {
			break
		}
	}
	// An upload that is too large to be kept is forwarded, too.
	leader.limit(`"maxDocumentBytes":4194304`)
	noise := make([]byte, 3<<19)
	rand.NewChaCha8([32]byte{}).Read(noise)
	leader.must(200, apitest.Admin, "PUT", "/v1/services/big", `{"name":"big","description":"`+hex.EncodeToString(noise)+`"}`)
	snapshot := leader.must(200, apitest.Super, "GET", "/v1/operator/snapshot", "").body
	if len(snapshot) < 1<<20 {
		t.Errorf("the snapshot has only %d bytes", len(snapshot))
	}
	if a := w.send(context.Background(), apitest.Super, "POST", "/v1/operator/snapshot?unsigned=true", io.MultiReader(strings.NewReader(snapshot)),
		"Content-Type: application/octet-stream"); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestNobodyForwardsForEver(t *testing.T) {
	// Each of two followers regards the other as the leader.
	a := newAgent(t)
	b := apitest.NewAgent(a.Store, "b")
	wa, wb := serve(t, a, nil), serve(t, b, nil)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	a.Follow(wb.url, true, transport)
	b.Follow(wa.url, true, transport)
	for _, method := range []string{"GET", "POST"} {
		body := ""
		if method == "POST" {
			body = `{"name":"x","clusterTemplate":"shop","numMachines":1}`
		}
		ans := wa.must(503, apitest.User, method, "/v1/clusters", body)
		if p := ans.problem(t); p.Type != api.ProblemNoLeader || ans.header.Get("Retry-After") == "" {
			t.Errorf("%+v %v", p, ans.header)
		}
	}
}

func TestForwardingWaitsForALeader(t *testing.T) {
	leader := newWorld(t)
	leader.template()
	b := apitest.NewAgent(leader.Store, "b")
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	b.Follow("", false, transport)
	w := serve(t, b, nil)
	w.must(503, apitest.User, "GET", "/v1/clusters", "")
	w.must(503, apitest.User, "GET", "/v1/clusters?consistency=stale", "")
	got := make(chan answer, 2)
	ask := func(name string) {
		got <- w.ask(apitest.User, "POST", "/v1/clusters", `{"name":"`+name+`","clusterTemplate":"shop","numMachines":1}`)
	}
	// A leader appears.
	go ask("x")
	time.AfterFunc(50*time.Millisecond, func() { b.Follow(leader.url, false, transport) })
	if a := <-got; a.status != 202 {
		t.Errorf("%d %s", a.status, a.body)
	}
	// The agent itself becomes the leader.
	b.Follow("", false, transport)
	go ask("y")
	time.AfterFunc(50*time.Millisecond, b.Lead)
	if a := <-got; a.status != 202 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// TestHold: a request says how long it waits for a leader.
func TestHold(t *testing.T) {
	leader := newWorld(t)
	leader.template()
	b := apitest.NewAgent(leader.Store, "b")
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	b.Follow("", false, transport)
	w := serve(t, b, nil)
	body := `{"name":"x","clusterTemplate":"shop","numMachines":1}`
	got := make(chan answer, 1)
	go func() { got <- w.ask(apitest.User, "POST", "/v1/clusters", body, "Coopr-Hold: 30s") }()
	// Other requests do not wait as long, and their answer contains advice.
	p := w.must(503, apitest.User, "GET", "/v1/clusters", "").problem(t)
	if p.Type != api.ProblemNoLeader || !strings.Contains(p.Detail, "ask another agent") {
		t.Errorf("%+v", p)
	}
	w.must(503, apitest.User, "GET", "/v1/clusters", "", "Coopr-Hold: 0s")
	w.must(400, apitest.User, "GET", "/v1/clusters", "", "Coopr-Hold: soon").problem(t)
	b.Follow(leader.url, false, transport)
	if a := <-got; a.status != 202 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// breaking is a transport that loses answers after the request was served.
type breaking struct {
	http.RoundTripper
	left atomic.Int32
}

func (b *breaking) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(r)
	if err == nil && b.left.Add(-1) >= 0 {
		resp.Body.Close()
		return nil, errors.New("connection reset")
	}
	return resp, err
}

func TestLostAnswersAreUnknownOutcomes(t *testing.T) {
	leader := newWorld(t)
	leader.template()
	b := apitest.NewAgent(leader.Store, "b")
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	lossy := &breaking{RoundTripper: transport}
	b.Follow(leader.url, true, lossy)
	w := serve(t, b, nil)
	lossy.left.Store(1)
	w.must(200, apitest.User, "GET", "/v1/clusters", "") // the follower repeats the request
	lossy.left.Store(1)
	body := `{"name":"x","clusterTemplate":"shop","numMachines":1}`
	// A write that is carried out once is repeated, with or without a request id of the client.
	first := w.must(202, apitest.User, "POST", "/v1/clusters", body)
	if first.header.Get("Coopr-Repeated") != "true" || first.header.Get("Coopr-Request-Id") == "" {
		t.Errorf("it was not done once: %v", first.header)
	}
	lossy.left.Store(1 << 20)
	body = `{"name":"y","clusterTemplate":"shop","numMachines":1}`
	a := w.must(503, apitest.User, "POST", "/v1/clusters", body, "Coopr-Request-Id: r")
	if p := a.problem(t); p.Type != api.ProblemUnknownOutcome {
		t.Errorf("%+v", p)
	}
	lossy.left.Store(0)
	again := w.must(202, apitest.User, "POST", "/v1/clusters", body, "Coopr-Request-Id: r")
	if again.header.Get("Coopr-Repeated") != "true" {
		t.Error("it was done twice")
	}
	// A request for a secret, which is shown only once, is not repeated.
	lossy.left.Store(1)
	a = w.must(503, apitest.Admin, "POST", "/v1/tokens", `{"actor":"x"}`)
	if p := a.problem(t); p.Type != api.ProblemUnknownOutcome {
		t.Errorf("%+v", p)
	}
	// A follower also refuses a body that is too large.
	if a := w.send(context.Background(), apitest.Admin, "POST", "/v1/import", bytes.NewReader(make([]byte, 17<<20))); a.status != 413 {
		t.Errorf("%d %s", a.status, a.body)
	}
}
