package server_test

import (
	"context"
	"reflect"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/apitest"
	"github.com/coopr/coopr/rpc/server/rest"
)

func TestRepeatedRequests(t *testing.T) {
	w := newWorld(t)
	w.template()
	body := `{"name":"once","clusterTemplate":"shop","numMachines":2}`
	first := w.must(202, apitest.User, "POST", "/v1/clusters", body, "Coopr-Request-Id: r1")
	again := w.must(202, apitest.User, "POST", "/v1/clusters", body, "Coopr-Request-Id: r1")
	var begun, found api.StartedBody
	first.into(t, &begun)
	again.into(t, &found)
	if begun.Operation.CreatedAt == 0 || !reflect.DeepEqual(begun.Operation, found.Operation) ||
		begun.Cluster.CreatedAt == 0 || !reflect.DeepEqual(begun.Cluster, found.Cluster) {
		t.Errorf("%s\n%s", first.body, again.body)
	}
	if first.header.Get("Coopr-Index") != again.header.Get("Coopr-Index") {
		t.Errorf("%s\n%s", first.body, again.body)
	}
	if first.header.Get("Coopr-Repeated") != "" || again.header.Get("Coopr-Repeated") != "true" ||
		again.header.Get("Coopr-Request-Id") != "r1" {
		t.Errorf("%v %v", first.header, again.header)
	}
	// The same request id of another actor is another request.
	body = strings.Replace(body, "once", "other", 1)
	other := w.must(202, apitest.Other, "POST", "/v1/clusters", body, "Coopr-Request-Id: r1")
	if other.body == first.body {
		t.Error("two actors share a request id")
	}
	one := w.must(200, apitest.Admin, "PUT", "/v1/services/s", `{"name":"s"}`, "Coopr-Request-Id: r2")
	two := w.must(200, apitest.Admin, "PUT", "/v1/services/s", `{"name":"s"}`, "Coopr-Request-Id: r2")
	if one.body != two.body || two.header.Get("Coopr-Repeated") != "true" {
		t.Errorf("%s %s", one.body, two.body)
	}
	// The write is carried out, but its outcome is unknown. The repetition with the same
	// id finds it, so the client receives no error.
	w.Fail(problem.New(problem.UnknownOutcome, "lost the leader"))
	kept := w.must(200, apitest.Admin, "PUT", "/v1/services/s", `{"name":"s","label":"x"}`, "Coopr-Request-Id: r3")
	if kept.header.Get("Coopr-Repeated") != "true" {
		t.Error("it was not repeated")
	}
	w.must(200, apitest.Admin, "PUT", "/v1/services/s", `{"name":"s","label":"x"}`, "Coopr-Request-Id: r3")
	var all []model.Service
	w.must(200, apitest.Admin, "GET", "/v1/services/s/versions", "").into(t, &all)
	if len(all) != 2 {
		t.Errorf("%d versions, not 2", len(all))
	}
}

// TestLateCopies: once a repeated request was refused, its first copy changes nothing when it arrives. testing/chaos saw a secret
// vanish so.
func TestLateCopies(t *testing.T) {
	w := newWorld(t)
	const id, retry = "Coopr-Request-Id: drop", "Coopr-Retry: true"
	drop := func(status int, headers ...string) {
		w.must(status, apitest.Admin, "DELETE", "/v1/secrets/s", "", headers...)
	}
	put := func() { w.must(200, apitest.Admin, "PUT", "/v1/secrets/s", `{"value":"hidden"}`) }
	drop(404, id, retry)
	put()
	drop(404, id)        // the first copy, which was on a slow wire
	drop(404, id, retry) // and another one
	drop(200)            // it is still there

	// Without the header, a refusal is not remembered: there is no other copy.
	drop(404, id+"3")
	put()
	drop(200, id+"3")

	// Nothing is remembered of a caller without the right.
	index := w.Index()
	w.must(403, apitest.Guest, "DELETE", "/v1/secrets/s", "", id+"4", retry)
	if w.Index() != index {
		t.Error("a caller without rights has written to the log")
	}

	// The agent itself repeats a request whose outcome it does not know.
	w.Fail(problem.New(problem.UnknownOutcome, "%w", apitest.ErrLost))
	create := func(status int) {
		w.must(status, apitest.User, "POST", "/v1/clusters", `{"name":"late","clusterTemplate":"shop","numMachines":2}`, id)
	}
	create(422)
	w.template()
	create(422)
}

// overtaken has a copy of a request arrive after the request was refused, and before that is remembered.
type overtaken struct {
	rest.State
	arrive func()
}

func (o *overtaken) RefuseCopies(ctx context.Context, who model.Caller, code problem.Code) (bool, error) {
	o.arrive()
	return o.State.RefuseCopies(ctx, who, code)
}

func TestCopyOvertakesARefusal(t *testing.T) {
	o := &overtaken{}
	w := serve(t, newAgent(t), func(s *rest.Services) { o.State, s.State = s.State, o })
	const path, id = "/v1/secrets/s", "Coopr-Request-Id: drop"
	o.arrive = func() {
		for _, a := range []answer{
			w.ask(apitest.Admin, "PUT", path, `{"value":"hidden"}`),
			w.ask(apitest.Admin, "DELETE", path, "", id),
		} {
			if a.status != 200 {
				t.Errorf("%d: %s", a.status, a.body)
			}
		}
	}
	if a := w.must(200, apitest.Admin, "DELETE", path, "", id, "Coopr-Retry: true"); a.header.Get("Coopr-Repeated") != "true" {
		t.Error("the request counts as the first one")
	}
}
