package server_test

import (
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/server/apitest"
)

// attention returns what needs attention.
func (w *world) attention(token, query string) (out api.Attention) {
	w.t.Helper()
	w.must(200, token, "GET", "/v1/attention"+query, "").into(w.t, &out)
	return out
}

// unhealthy returns the names of the clusters that need attention, with their health.
func (w *world) unhealthy() string {
	w.t.Helper()
	var list []api.ClusterSummary
	w.must(200, apitest.User, "GET", "/v1/clusters?unhealthy=true", "").into(w.t, &list)
	var out []string
	for _, cl := range list {
		out = append(out, cl.Name+" "+cl.Health)
	}
	return strings.Join(out, ", ")
}

// A cluster needs attention if a node is unhealthy or its latest operation failed. A paused operation waits for a person.
func TestAttention(t *testing.T) {
	w := newWorld(t)
	w.template()
	well, op := w.cluster("well", "1")
	w.Finish(op)
	_, paused := w.cluster("paused", "1")
	w.must(200, apitest.User, "POST", "/v1/operations/"+paused+"/pause", `{"reason":"lunch"}`)
	o := w.attention(apitest.User, "")
	if o.Clusters != 2 || o.Ill != 0 || o.Failed != 0 || o.Waiting != 1 || o.Waits[0].Operation != paused || o.Waits[0].Cluster != "paused" {
		t.Errorf("%+v", o)
	}
	if got := w.unhealthy(); got != "" {
		t.Errorf("unhealthy: %s", got)
	}
	v, err := w.View(t.Context(), api.Stale, 0)
	if err != nil {
		t.Fatal(err)
	}
	node := v.Nodes("acme", well)[0]
	w.Must(&pb.Command{Actor: model.Self, Change: &pb.Command_ReportHealth{ReportHealth: &pb.ReportHealth{Changes: []*pb.HealthChange{{
		Tenant: "acme", Node: node.ID, Service: "nginx", Healthy: false, Message: "no answer", Version: node.Version,
	}}}}})
	if got := w.unhealthy(); got != "well unhealthy" {
		t.Errorf("unhealthy: %s", got)
	}
	if o := w.attention(apitest.Super, "?tenant=*"); o.Clusters != 2 || o.Ill != 1 || o.Failed != 0 {
		t.Errorf("%+v", o)
	}
	// Others see neither the cluster nor that it is ill.
	if o := w.attention(apitest.Other, ""); o.Clusters != 0 || o.Ill != 0 || o.Waiting != 0 {
		t.Errorf("%+v", o)
	}
	w.must(403, apitest.User, "GET", "/v1/attention?tenant=*", "").problem(t)
}
