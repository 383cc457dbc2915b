package mesh_test

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/engine/audit"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/testing/mesh"
)

// TestLease prolongs the lease of a cluster while the leader dies, and has the cluster live until the new end and no longer.
func TestLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mesh.New(t, mesh.Options{Agents: 3, Seed: 18, Verbose: testing.Verbose()})
		mesh.DefineUnrecovered(m)
		var tpl map[string]any
		m.Must("GET", "/v1/clustertemplates/trio", nil, &tpl)
		tpl["administration"] = map[string]any{"leaseduration": map[string]any{"initial": "20m", "max": "50m", "step": "15m"}}
		m.Must("PUT", "/v1/clustertemplates/trio", tpl, nil)
		cluster, op := m.Create("one", 3, "")
		if st := m.AwaitEnd(op); st != model.OpSucceeded {
			t.Fatalf("the create ended %s", st)
		}
		path := "/v1/clusters/" + cluster + "/lease"
		first := mesh.Cluster(m, cluster)
		if first.ExpiresAt-first.CreatedAt != (20 * time.Minute).Milliseconds() {
			t.Fatalf("the lease is %d ms", first.ExpiresAt-first.CreatedAt)
		}
		if code := m.Ask("POST", path, `{"add":"16m"}`, nil); code != 422 {
			t.Errorf("a step that is too long: %d", code)
		}
		warned := func() (ends []string) {
			var all api.AuditPage
			m.Must("GET", "/v1/audit?type="+audit.TypeExpiring, nil, &all)
			for _, r := range all.Records {
				ends = append(ends, string(r.After))
			}
			return ends
		}
		until := func(ms int64) {
			m.Within(24*time.Hour, time.Minute, "the time", func() bool { return time.Now().UnixMilli() > ms })
		}
		until(first.WarnAt())
		m.Until("a warning", func() bool { return len(warned()) == 1 })

		// One request is sent to the leader, which dies with it, and again to the others.
		body, _ := json.Marshal(map[string]any{"add": "15m"})
		leader := m.AwaitLeader()
		done := make(chan struct{})
		go func() {
			defer close(done)
			leader.Call("POST", path, body, "lease-1")
		}()
		leader.Crash()
		<-done
		m.Until("another leader", func() bool { return m.Leader() != nil && m.Leader() != leader })
		m.Until("the answer", func() bool {
			code, answer := m.Leader().Call("POST", path, body, "lease-1")
			if code >= 400 && code < 500 {
				t.Fatalf("%d %s", code, answer)
			}
			return code < 300
		})
		leader.Start()
		if cl := mesh.Cluster(m, cluster); cl.ExpiresAt-first.ExpiresAt != (15 * time.Minute).Milliseconds() {
			t.Fatalf("the lease was prolonged by %d ms", cl.ExpiresAt-first.ExpiresAt)
		}
		until(first.ExpiresAt + time.Minute.Milliseconds()*3)
		second := mesh.Cluster(m, cluster)
		if second.Status != model.ClusterActive {
			t.Fatalf("the cluster is %s after the end that its lease had first", second.Status)
		}
		until(second.ExpiresAt)
		m.Until("the end of the cluster", func() bool { return mesh.Cluster(m, cluster).Status == model.ClusterTerminated })
		if ends := warned(); len(ends) != 2 || ends[0] == ends[1] {
			t.Errorf("the warnings are %v", ends)
		}
		m.CheckAll()
	})
}
