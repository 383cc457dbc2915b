package mesh_test

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
)

// TestResultsAreEncrypted has plugins return and save secrets under several leaders. The tasks that follow get them, and nothing that
// the agents keep or answer has one. A plugin that returns the name of an encrypted value is refused.
func TestResultsAreEncrypted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVault(t, 23)
		var mu sync.Mutex
		installs, forged := []string{}, ""
		v.World.SetReturns(func(task *pb.Task) (map[string]any, map[string]string) {
			mu.Lock()
			defer mu.Unlock()
			switch task.Action {
			case model.Create.String():
				return map[string]any{"password": canary + "-password", "pin": canary + "-pin", "size": 3,
					"ssh-auth": map[string]any{"user": "root", "private_key": canary + "-key"}}, map[string]string{"token": `"` + canary + `-token"`}
			case model.Install.String():
				installs = append(installs, string(task.Input))
				if !slices.Contains(task.Secrets, canary+"-token") || !slices.Contains(task.Secrets, canary+"-key") {
					t.Error("the agent does not know that it has to hide the secrets")
				}
				return map[string]any{"admin_password": canary + "-admin", "note": forged}, nil
			}
			return nil, nil
		})
		got := func() {
			t.Helper()
			mu.Lock()
			defer mu.Unlock()
			if len(installs) == 0 {
				t.Error("nothing was installed")
			}
			for _, in := range installs {
				for _, word := range []string{"-password", "-pin", "-key", "-token"} {
					if !strings.Contains(in, canary+word) {
						t.Errorf("a task that follows lacks %s", word)
					}
				}
				if strings.Contains(in, "coopr-sealed:") {
					t.Error("a task has the name of an encrypted value")
				}
			}
			installs = nil
		}
		v.must(200, "PUT", "/v1/providers/cloud", provider("", "x"))
		v.create(map[string]any{"name": "one"})
		got()
		killed := v.AwaitLeader()
		killed.Crash()
		v.Until("another leader", func() bool { l := v.Leader(); return l != nil && l != killed })
		v.create(map[string]any{"name": "two"})
		got()
		killed.Start()
		v.Until("all to be back", func() bool { return len(v.Voters()) == 3 })
		time.Sleep(time.Minute)
		id, ref, administered := v.cluster("one"), "", false
		for _, n := range v.AwaitLeader().View().Nodes("default", id) {
			text, _ := n.Results["password"].(string)
			if !strings.HasPrefix(text, "coopr-sealed:") || n.Results["size"] != 3.0 {
				t.Errorf("the results in the state are %v", n.Results)
			}
			if text, ok := n.Results["admin_password"].(string); ok {
				administered = strings.HasPrefix(text, "coopr-sealed:")
			}
			for _, text := range v.AwaitLeader().View().Values(n.ID) {
				if len(model.SealedRefs(text)) != 1 {
					t.Errorf("a saved value is %s", text)
				}
			}
			ref = text
		}
		if !administered {
			t.Error("no result of a service is encrypted")
		}
		if found := hunt(v.Mesh, canary); len(found) > 0 {
			t.Errorf("a result is in %v", found)
		}
		for _, path := range []string{"/v1/clusters/" + id, "/v1/operations", "/v1/audit?limit=1000"} {
			code, body := v.AwaitLeader().Call("GET", path, nil, "")
			if code != http.StatusOK || bytes.Contains(body, []byte(canary)) || bytes.Contains(body, []byte("coopr-sealed:")) {
				t.Errorf("GET %s: %d %s", path, code, body)
			}
		}
		mu.Lock()
		forged = ref
		mu.Unlock()
		var s struct{ Operation struct{ ID string } }
		v.Ask("POST", "/v1/clusters", map[string]any{"name": "three", "clusterTemplate": "trio", "numMachines": 3}, &s)
		if st := v.AwaitEnd(s.Operation.ID); st == model.OpSucceeded {
			t.Error("a plugin returned the name of an encrypted value")
		}
	})
}
