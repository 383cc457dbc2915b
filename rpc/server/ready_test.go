package server_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/coopr/coopr/rpc/api"
)

// ready asks an agent without a token whether it can serve.
func (w *world) ready(status int, reasons ...string) {
	w.t.Helper()
	var r api.Readiness
	w.must(status, "", "GET", "/v1/readyz", "").into(w.t, &r)
	if r.Ready != (status == http.StatusOK) || !slices.Equal(r.Reasons, reasons) {
		w.t.Errorf("%+v, not %q", r, reasons)
	}
}

// An agent that cannot serve reports why, and lives all the same.
func TestReady(t *testing.T) {
	leader, voter := pair(t)
	worker := stateless(t, leader)
	for _, w := range []*world{leader, voter, worker} {
		w.ready(200)
	}
	voter.Follow("", true, nil)
	worker.Follow("", false, nil)
	for _, w := range []*world{voter, worker} {
		w.ready(503, "no leader can be reached")
		w.must(200, "", "GET", "/v1/healthz", "")
	}
	leader.Follow(leader.url, true, nil)
	leader.ready(503, "the duties of the leader do not run yet")
}
