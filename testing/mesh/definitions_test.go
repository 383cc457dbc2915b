package mesh_test

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/testing/mesh"
)

// TestSameDefinition: a definition that is written again as it is gets no new version, by any
// agent, and a changed one gets the next.
func TestSameDefinition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mesh.New(t, mesh.Options{Agents: 3, Seed: 1, Verbose: testing.Verbose()})
		m.Define()
		put := func(a *mesh.Agent, body, request string, version int) {
			t.Helper()
			code, answer := a.Call("PUT", "/v1/services/cache", []byte(body), request)
			var s model.Service
			if err := json.Unmarshal(answer, &s); code >= 300 || err != nil || s.Version != version {
				t.Fatalf("PUT of %s on %s: %d %s, want version %d", body, a.Name, code, answer, version)
			}
		}
		one, other := `{"name": "cache", "description": "one"}`, `{"name": "cache", "description": "other"}`
		for i, a := range m.Agents() {
			put(a, one, "", 1)
			put(a, one, "once", 1)
			if i == 0 {
				continue
			}
			m.Define()
		}
		put(m.Agents()[0], other, "", 2)
		put(m.Agents()[1], other, "", 2)
		put(m.Agents()[2], one, "once", 1) // done before, with the same answer, whatever came since
		put(m.Agents()[2], one, "", 3)
		for _, name := range []string{"cache", "db"} {
			var versions []model.Service
			code := m.Ask("GET", "/v1/services/"+name+"/versions", nil, &versions)
			if code != 200 || len(versions) != map[string]int{"cache": 3, "db": 1}[name] {
				t.Errorf("%s: %d, %d versions", name, code, len(versions))
			}
		}
	})
}

// TestUsedDefinitions expects that a definition in use is deleted only with force, that the refusal
// names its users, and that a terminated cluster uses nothing.
func TestUsedDefinitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mesh.New(t, mesh.Options{Agents: 3, Seed: 1, Verbose: testing.Verbose()})
		m.Define()
		a := m.Agents()[1]
		call := func(want int, method, path, body string, has ...string) {
			t.Helper()
			code, answer := a.Call(method, path, []byte(body), "")
			if code != want {
				t.Errorf("%s %s: %d %s, not %d", method, path, code, answer, want)
			}
			for _, h := range has {
				if !strings.Contains(string(answer), h) {
					t.Errorf("%s %s: %s lacks %q", method, path, answer, h)
				}
			}
		}
		cluster, op := m.Create("shop", 3, "delete")
		m.AwaitEnd(op)
		call(409, "DELETE", "/v1/providers/cloud", "", "in use by cluster shop, template trio:")
		call(409, "DELETE", "/v1/hardwaretypes/small", "", "cluster shop, template trio")
		call(409, "DELETE", "/v1/imagetypes/linux", "", "cluster shop, template trio")
		call(409, "DELETE", "/v1/services/db", "", "cluster shop, template trio, service app")
		call(409, "DELETE", "/v1/services/db/versions/1", "", "cluster shop")
		call(409, "DELETE", "/v1/clustertemplates/trio", "", "in use by cluster shop:")

		// One version of several is not what users name.
		call(200, "PUT", "/v1/clustertemplates/trio", `{"name": "trio", "defaults": {"services": ["db"], "provider": "cloud"}}`)
		call(200, "DELETE", "/v1/clustertemplates/trio/versions/1", "")
		call(409, "DELETE", "/v1/clustertemplates/trio/versions/2", "", "cluster shop")

		// Force, and the end of the cluster, make way.
		call(200, "DELETE", "/v1/clustertemplates/trio?force=true", "")
		call(409, "DELETE", "/v1/imagetypes/linux", "", "in use by cluster shop:")
		m.AwaitEnd(m.Delete(cluster))
		call(200, "DELETE", "/v1/imagetypes/linux", "")
		call(200, "DELETE", "/v1/providers/cloud/versions/1", "")
		call(409, "DELETE", "/v1/services/db", "", "in use by service app:")
		call(200, "DELETE", "/v1/services/lb", "")
	})
}
