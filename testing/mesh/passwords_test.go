package mesh_test

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/profile"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/testing/mesh"
)

// vault is a mesh with a provider that has passwords, and the inputs of the tasks that made machines.
type vault struct {
	*mesh.Mesh
	t *testing.T

	mu   sync.Mutex
	made []string
}

// inputs returns the inputs since the last call of forget.
func (v *vault) inputs() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.made)
}

func (v *vault) forget() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.made = nil
}

func newVault(t *testing.T, seed uint64) *vault {
	v := &vault{Mesh: mesh.New(t, mesh.Options{Agents: 3, Seed: seed, Verbose: testing.Verbose()}), t: t}
	v.World.SetTrouble(func(task *pb.Task, _ int) mesh.Trouble {
		if task.Action == model.Create.String() {
			v.mu.Lock()
			defer v.mu.Unlock()
			v.made = append(v.made, string(task.Input))
		}
		return mesh.Well
	})
	v.Define()
	return v
}

// provider returns the document of the provider with a password, and a list with another one.
func provider(description, password string) map[string]any {
	return map[string]any{"name": "cloud", "providertype": "sim", "description": description, "provisioner": map[string]any{
		"endpoint": "here", "password": password, "inventory": []any{map[string]any{"host": "h1", "ssh_password": canary + "-inventory"}},
	}}
}

// must asks the mesh, which must answer with a status.
func (v *vault) must(want int, method, path string, body any) {
	v.t.Helper()
	if code := v.Ask(method, path, body, nil); code != want {
		v.t.Errorf("%s %s: %d, want %d", method, path, code, want)
	}
}

// create creates a cluster and reports which words the tasks that made its machines got.
func (v *vault) create(body map[string]any, words ...string) {
	v.t.Helper()
	v.forget()
	body["clusterTemplate"], body["numMachines"] = "trio", 3
	var s struct{ Operation struct{ ID string } }
	if code := v.Ask("POST", "/v1/clusters", body, &s); code >= 300 {
		v.t.Fatalf("create: %d", code)
	}
	if st := v.AwaitEnd(s.Operation.ID); st != model.OpSucceeded {
		v.t.Errorf("the create ended %s", st)
	}
	v.got(words...)
}

func (v *vault) got(words ...string) {
	v.t.Helper()
	if len(v.inputs()) == 0 {
		v.t.Error("no machine was made")
	}
	for _, in := range v.inputs() {
		for _, w := range words {
			if !strings.Contains(in, w) {
				v.t.Errorf("the task that makes a machine lacks %q", w)
			}
		}
		if strings.Contains(in, "coopr-sealed:") {
			v.t.Error("the task that makes a machine has the name of an encrypted value")
		}
	}
}

// A mesh takes passwords in a provider, for a cluster, for a queued operation, and by a profile. All work, under several leaders, and nothing that the agents keep has one.
func TestPasswordsAreEncrypted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVault(t, 21)
		v.must(200, "PUT", "/v1/providers/cloud", provider("", canary+"-1"))
		v.create(map[string]any{"name": "one", "providerFields": map[string]any{"pin": canary + "-pin"}},
			canary+"-1", canary+"-inventory", canary+"-pin")

		killed := v.AwaitLeader()
		killed.Crash()
		v.Until("another leader", func() bool { l := v.Leader(); return l != nil && l != killed })
		v.must(200, "PUT", "/v1/providers/cloud", provider("changed", canary+"-2"))
		v.create(map[string]any{"name": "two"}, canary+"-2", canary+"-inventory")

		// The second operation waits for the first one.
		v.forget()
		id := v.cluster("two")
		v.must(202, "POST", "/v1/clusters/"+id+"/grow", map[string]any{"nodes": 1})
		v.must(202, "POST", "/v1/clusters/"+id+"/grow", map[string]any{"nodes": 1, "queue": true,
			"providerFields": map[string]any{"pin": canary + "-queued"}})
		v.Until("both operations", func() bool { return len(v.inputs()) == 2 })
		if !strings.Contains(v.inputs()[1], canary+"-queued") {
			t.Error("the queued operation lacks its password")
		}

		v.must(200, "PUT", "/v1/secrets/key", map[string]any{"value": canary + "-profile", "usableBy": []string{"*"}})
		v.DefineRuns(profile.Profile{})
		v.must(200, "PUT", "/v1/profiles/small", profile.Profile{Provisioner: profile.Provisioner{Name: "sim", Properties: []profile.Property{
			{Name: profile.PropNodes, Value: "1"}, {Name: profile.PropField + "password", Value: "${secure(key)}"},
			{Name: profile.PropField + "note", Value: "see ${secure(key)}"},
		}}})
		v.forget()
		run := v.BeginRun()
		v.Until("the end of the run", func() bool { r := v.Run(run); return r != nil && r.Over() })
		v.got(canary+"-profile", "see "+canary+"-profile")

		v.Orphans()
		for _, word := range []string{canary + "-1", canary + "-2", canary + "-profile"} {
			if !slices.ContainsFunc(v.World.Asked(), func(fields string) bool { return strings.Contains(fields, word) }) {
				t.Errorf("no provider was asked for its machines with %q", word)
			}
		}
		for _, fields := range v.World.Asked() {
			if strings.Contains(fields, "coopr-sealed:") {
				t.Error("a provider was asked with the name of an encrypted value")
			}
		}

		killed.Start()
		v.Until("all to be back", func() bool { return len(v.Voters()) == 3 })
		time.Sleep(time.Minute)
		if found := hunt(v.Mesh, canary); len(found) > 0 {
			t.Errorf("a password is in %v", found)
		}
	})
}

// cluster returns the id of a cluster with a name.
func (v *vault) cluster(name string) string {
	v.t.Helper()
	var list []struct{ ID, Name string }
	v.Ask("GET", "/v1/clusters", nil, &list)
	for _, c := range list {
		if c.Name == name {
			return c.ID
		}
	}
	v.t.Fatalf("no cluster %s in %v", name, list)
	return ""
}

// TestPasswordsAreKept reads a provider, edits it and writes it back, exports it, and tries to write names of encrypted values.
func TestPasswordsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVault(t, 22)
		v.must(200, "PUT", "/v1/providers/cloud", provider("", canary))
		code, body := v.AwaitLeader().Call("GET", "/v1/providers/cloud", nil, "")
		if code != http.StatusOK || bytes.Contains(body, []byte(canary)) || bytes.Contains(body, []byte("coopr-sealed:")) ||
			bytes.Count(body, []byte(model.Redacted)) != 2 {
			t.Errorf("%d %s", code, body)
		}
		back := provider("edited", model.Redacted)
		back["provisioner"].(map[string]any)["inventory"] = []any{map[string]any{"host": "h1", "ssh_password": model.Redacted}}
		v.must(200, "PUT", "/v1/providers/cloud", back)
		v.create(map[string]any{"name": "one"}, canary, canary+"-inventory")
		back["provisioner"].(map[string]any)["endpoint"] = "elsewhere"
		v.must(422, "PUT", "/v1/providers/cloud", back)

		if code, body := v.AwaitLeader().Call("GET", "/v1/export", nil, ""); code != http.StatusOK || bytes.Count(body, []byte(canary)) != 2 {
			t.Errorf("the export: %d %s", code, body)
		}
		ref := ""
		v.Until("a leader", func() bool {
			if l := v.Leader(); l != nil {
				d, _ := l.View().Definition("default", model.KindProvider, "cloud", 0)
				if refs := model.SealedRefs(d.Body); len(refs) == 2 {
					ref = refs[0].String()
				}
			}
			return ref != ""
		})
		v.must(422, "PUT", "/v1/providers/cloud", provider("stolen", ref))
		v.must(422, "POST", "/v1/clusters", map[string]any{"name": "two", "clusterTemplate": "trio", "numMachines": 3,
			"providerFields": map[string]any{"pin": ref}})
		v.must(422, "POST", "/v1/import", fmt.Sprintf(`{"providers": [{"name": "x", "providertype": "sim", "provisioner": {"a": [%q]}}]}`, ref))
	})
}
