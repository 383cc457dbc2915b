package server_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/rpc/api"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/server/apitest"
)

// TestLeases prolongs leases within the rules of templates and policies, and ends them earlier.
func TestLeases(t *testing.T) {
	w := newWorld(t)
	w.template()
	w.must(200, apitest.Admin, "PUT", "/v1/clustertemplates/shop", strings.Replace(shop, `"links":`,
		`"administration":{"leaseduration":{"initial":"2h","max":"6h","step":"3h"}},"links":`, 1))
	_, op := w.cluster("web", "2")
	const path, hour = "/v1/clusters/web/lease", 3_600_000
	ask := func(status int, token, body string, headers ...string) (cl api.ClusterSummary, a answer) {
		t.Helper()
		a = w.must(status, token, "POST", path, body, headers...)
		if status == 200 {
			a.into(t, &cl)
		}
		return cl, a
	}
	wants := func(a answer, word string) {
		t.Helper()
		if !strings.Contains(a.body, word) {
			t.Errorf("%q is missing in %s", word, a.body)
		}
	}
	_, a := ask(409, apitest.User, `{"add":"1h"}`)
	wants(a, "pending")
	w.Finish(op)
	for body, word := range map[string]string{
		`{}`: "is missing", `{"add":"1h","expireTime":1}`: "besides add", `{"add":"-1h"}`: "must be a duration", `{"more":"1h"}`: "more",
		`{"add":"4h"}`: "steps of 3h; at most 3h can be added now", `{"add":"5h"}`: "allows 6h from the creation", `{"expireTime":-1}`: "expireTime",
		`{"add":9223372036854775807}`: "no such date", `{"expireTime":1}`: "cannot end before",
	} {
		_, a := ask(422, apitest.Admin, body)
		wants(a, word)
	}
	cl, _ := ask(200, apitest.User, `{"add":"1h"}`, api.HeaderRequest+": more")
	again, _ := ask(200, apitest.User, `{"add":"1h"}`, api.HeaderRequest+": more") // the same request
	if cl.ExpiresAt-cl.CreatedAt != 3*hour || again.ExpiresAt != cl.ExpiresAt {
		t.Errorf("the lease is %d ms, then %d ms", cl.ExpiresAt-cl.CreatedAt, again.ExpiresAt-again.CreatedAt)
	}

	// A policy about leases binds those that are prolonged. One about images sees those that the cluster has.
	w.must(200, apitest.Admin, "PUT", "/v1/policies/ends", policy("ends", `forbid (principal, action == Action::"update", resource is Cluster)
		when { context.after.lease == 0 || context.after.lease > 14400000 || context.after.imagetype == "" || context.after.hardwaretype == "" };`))
	_, a = ask(403, apitest.User, `{"add":"90m"}`)
	wants(a, "policy ends")
	cl, _ = ask(200, apitest.User, `{"add":"1h"}`)
	w.must(200, apitest.Admin, "DELETE", "/v1/policies/ends", "")

	// A lease that ends earlier deletes the cluster earlier.
	w.must(404, apitest.Other, "POST", path, `{"add":"1h"}`)
	w.must(201, apitest.User, "POST", "/v1/grants", `{"to":"carol","actions":["read","update"],"resource":"cluster/web"}`)
	ask(200, apitest.Other, `{"add":"1h"}`)
	earlier := fmt.Sprintf(`{"expireTime":%d}`, cl.CreatedAt+hour)
	_, a = ask(403, apitest.Other, earlier)
	wants(a, "delete cluster web")
	if cl, _ = ask(200, apitest.User, earlier); cl.ExpiresAt != cl.CreatedAt+hour {
		t.Errorf("the lease is %d ms", cl.ExpiresAt-cl.CreatedAt)
	}
}

// TestLeasesOfOldVoters checks that no lease changes while some voters would refuse what others do.
func TestLeasesOfOldVoters(t *testing.T) {
	w := newWorld(t)
	w.template()
	a := w.must(202, apitest.User, "POST", "/v1/clusters", `{"name":"web","clusterTemplate":"shop","numMachines":1,"initialLeaseDuration":"2h"}`)
	var st api.StartedBody
	a.into(t, &st)
	w.Finish(st.Operation.ID)
	for level := uint32(1); level < logformat.LeaseLevel; level++ {
		w.Must(&pb.Command{Actor: "coopr", Change: &pb.Command_RaiseFeatureLevel{RaiseFeatureLevel: &pb.RaiseFeatureLevel{Level: level, Mesh: "m"}}})
	}
	a = w.must(409, apitest.User, "POST", "/v1/clusters/web/lease", `{"add":"1h"}`)
	if p := a.problem(t); !strings.Contains(p.Detail, "coopr members -o wide") {
		t.Errorf("%+v", p)
	}
}
