package mesh_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/engine/audit"
)

// TestIncidents logs in, is refused, and exports at all kinds of agents. The audit log has that, with who did it, from where, at which
// agent, and refusals by their number.
func TestIncidents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTokensMesh(t)
		call := func(address, token, method, path, body string, want int) []byte {
			t.Helper()
			var answer []byte
			for _, a := range m.agents() {
				code, said := a.CallFrom(address, token, method, path, []byte(body), "")
				if code != want {
					t.Fatalf("%s %s at %s: %d, not %d: %s", method, path, a.Name, code, want, said)
				}
				answer = said
			}
			return answer
		}
		reader := m.token(`{"actor":"rita","role":"read"}`).Secret
		admin := m.token(`{"actor":"ada","role":"superadmin"}`).Secret
		if code, said := m.leader.Call("POST", "/v1/users", []byte(`{"name":"ann","role":"user","password":"words of ann"}`), ""); code != http.StatusCreated {
			t.Fatalf("%d %s", code, said)
		}
		call("192.0.2.1", "", "POST", "/v1/login", `{"tenant":"default","user":"ann","password":"words of ann"}`, http.StatusCreated)
		call("192.0.2.2", "", "POST", "/v1/login", `{"tenant":"default","user":"ann","password":"words of bob"}`, http.StatusUnauthorized)
		call("192.0.2.3", "nonsense", "GET", "/v1/clusters", "", http.StatusUnauthorized)
		for range 100 {
			call("192.0.2.4", reader, "DELETE", "/v1/tenants/default", "", http.StatusForbidden)
		}
		call("192.0.2.5", admin, "GET", "/v1/audit/export", "", http.StatusOK)
		call("192.0.2.5", admin, "GET", "/v1/operator/snapshot", "", http.StatusOK)
		for range 50 {
			call("192.0.2.6", reader, "GET", "/v1/audit?consistency=stale", "", http.StatusForbidden)
		}
		time.Sleep(2 * time.Minute)
		got, agents := map[string]int{}, map[string]bool{}
		each := func(r audit.Record) bool {
			var doc struct{ Count int }
			if r.Source == "" || json.Unmarshal(r.After, &doc) != nil {
				return true
			}
			k := fmt.Sprintf("%s %s/%s %s from %s", r.Type, r.Tenant, r.Actor, r.Subject, r.Source)
			got[k] += max(doc.Count, 1)
			got["records of "+r.Type]++
			agents[r.Agent] = true
			return true
		}
		if err := m.CheckEqual().Audit().Each(&audit.Filter{}, false, audit.Cursor{}, each); err != nil {
			t.Fatal(err)
		}
		for k, want := range map[string]int{
			"login default/ann login from 192.0.2.1":                   3,
			"login.refused / login from 192.0.2.2/32":                  3,
			"request.refused default/rita deleteTenant from 192.0.2.4": 300,
			"request.refused default/rita listAudit from 192.0.2.6":    150,
			"user.created default/dev ann from 192.0.2.1":              1,
			"records of request.refused":                               4,
			"audit.exported default/ada exportAudit from 192.0.2.5":    3,
			"snapshot.saved default/ada saveSnapshot from 192.0.2.5":   3,
		} {
			if got[k] != want {
				t.Errorf("%s: %d, not %d", k, got[k], want)
			}
		}
		if got["records of token.refused"] == 0 || len(agents) != 3 {
			t.Errorf("%v, by the agents %v", got, agents)
		}
	})
}
