package server_test

import (
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/apitest"
)

// Without a majority of the voters, a request that needs the leader is told which voters are missing, and a stale read is
// answered from a copy of the state.
func TestLostQuorum(t *testing.T) {
	_, voter := pair(t)
	voter.Follow("", true, nil)
	p := voter.must(503, apitest.User, "GET", "/v1/clusters", "").problem(t)
	if p.Type != api.ProblemNoLeader || p.Quorum == nil || !p.Quorum.Lost || len(p.Quorum.Missing) != 1 || p.Quorum.Missing[0].Name != "a" ||
		!strings.Contains(p.Detail, "1 of 1 voters are missing (a for ") {
		t.Errorf("%+v %+v", p, p.Quorum)
	}
	voter.must(503, apitest.Admin, "PUT", "/v1/services/s", `{"name":"s"}`).problem(t)
	a := voter.must(200, apitest.User, "GET", "/v1/clusters?consistency=stale", "")
	if a.header.Get(api.HeaderAge) == "" {
		t.Error("the answer does not say how old it is")
	}
	var st api.AgentStatus
	voter.must(200, apitest.User, "GET", "/v1/status", "").into(t, &st)
	if q := st.Quorum; st.Leader != "" || q.Voters != 1 || q.Alive != 0 || q.Needed != 1 || !q.Lost || q.Margin != 0 {
		t.Errorf("%+v", st)
	}
}

// An agent without a copy of the state has a voter answer stale reads. Callers whom it does not know are not told who is missing.
func TestLostQuorumWithoutState(t *testing.T) {
	leader, voter := pair(t)
	worker := stateless(t, leader)
	worker.Follow("", false, &http.Transport{DisableKeepAlives: true})
	voter.Follow("", true, nil)
	p := worker.must(503, apitest.User, "GET", "/v1/clusters", "").problem(t)
	if p.Quorum == nil || !reflect.DeepEqual(*p.Quorum, api.Quorum{Lost: true}) || strings.Contains(p.Detail, "(a") {
		t.Errorf("%+v %+v", p, p.Quorum)
	}
	p = worker.ask("", "POST", "/v1/login", "{}").problem(t)
	if p.Quorum == nil || !reflect.DeepEqual(*p.Quorum, api.Quorum{Lost: true}) {
		t.Errorf("a stranger hears %+v %+v", p, p.Quorum)
	}
	worker.must(503, apitest.Root, "GET", "/v1/clusters?consistency=stale", "").problem(t)
	worker.Replica(voter.url)
	a := worker.must(200, apitest.Root, "GET", "/v1/tenants?consistency=stale", "")
	if a.header.Get(api.HeaderAge) == "" || !strings.Contains(a.body, "acme") {
		t.Errorf("%v %s", a.header, a.body)
	}
	worker.must(503, apitest.Root, "GET", "/v1/tenants", "").problem(t)
}
