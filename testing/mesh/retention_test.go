package mesh_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/agent/config"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/testing/mesh"
)

// TestRetention checks that a terminated cluster is removed with its operations on all voters, and that no
// later leader gives its number to another cluster.
func TestRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mesh.New(t, mesh.Options{Agents: 3, Seed: 1, Verbose: testing.Verbose(), Retention: config.Retention{Clusters: 5 * time.Minute}})
		m.Define()
		end := func(op string) {
			t.Helper()
			if st := m.AwaitEnd(op); st != model.OpSucceeded {
				t.Fatalf("operation %s ended %s", op, st)
			}
		}
		living, op := m.Create("living", 3, "")
		end(op)
		cluster, made := m.Create("one", 3, "")
		end(made)
		end(m.Delete(cluster))
		if code := m.Ask(http.MethodGet, "/v1/clusters/"+cluster, nil, nil); code != http.StatusOK {
			t.Errorf("a cluster that was just terminated: %d", code)
		}
		m.Within(10*time.Minute, 10*time.Second, "the cluster is removed", func() bool {
			return m.Ask(http.MethodGet, "/v1/clusters/"+cluster, nil, nil) == http.StatusNotFound
		})
		if code := m.Ask(http.MethodGet, "/v1/operations/"+made, nil, nil); code != http.StatusNotFound {
			t.Errorf("its operation: %d", code)
		}
		m.CheckAll()
		for _, a := range m.Agents() {
			a.Crash()
		}
		for _, a := range m.Agents() {
			a.Start()
		}
		m.AwaitLeader()
		next, op := m.Create("two", 3, "")
		end(op)
		if first, _ := model.ClusterID(cluster).Number(); next != string(model.NewClusterID(first+1)) {
			t.Errorf("the cluster after %s is %s", cluster, next)
		}
		if code := m.Ask(http.MethodGet, "/v1/clusters/"+living, nil, nil); code != http.StatusOK {
			t.Errorf("the living cluster: %d", code)
		}
		m.CheckAll()
	})
}
