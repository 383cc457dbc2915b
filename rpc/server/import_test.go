package server_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/apitest"
)

// TestImportCheckedIsTheImport sends imports with dryRun and then without: the status, the faults and
// the versions are the same, and the first writes nothing.
func TestImportCheckedIsTheImport(t *testing.T) {
	w := newWorld(t)
	w.must(200, apitest.Admin, "PUT", "/v1/services/nginx", `{"name":"nginx"}`)
	w.must(200, apitest.Admin, "PUT", "/v1/providers/cloud", `{"name":"cloud","providertype":"cloud"}`)
	before := w.must(200, apitest.Admin, "GET", "/v1/export", "").body
	for _, tt := range []struct {
		name, token, body string
		status            int
	}{
		{"nothing", apitest.Admin, `{"services":[]}`, 422},
		{"a fault of the file", apitest.Admin, `{"services":[{"name":"a b"}]}`, 422},
		{"a reference to nothing", apitest.Admin, `{"clustertemplates":[{"name":"t","compatibility":{"services":["nginz"]}}]}`, 422},
		{"a plugin that nobody offers", apitest.Admin, `{"providers":[{"name":"p","providertype":"clown"}]}`, 200},
		{"without the role", apitest.User, `{"services":[{"name":"b"}]}`, 403},
		{"what runs on a control host", apitest.Admin, `{"providers":[{"name":"l","providertype":"local"}]}`, 403},
		{"a reference to the mesh", apitest.Admin,
			`{"services":[{"name":"nginx","description":"new"},{"name":"c"}],"clustertemplates":[` +
				`{"name":"t","defaults":{"services":["nginx"],"provider":"cloud"}}]}`, 200},
	} {
		check := w.must(tt.status, tt.token, "POST", "/v1/import?dryRun=true", tt.body)
		if now := w.must(200, apitest.Admin, "GET", "/v1/export", "").body; now != before {
			t.Fatalf("%s: the check wrote something:\n%s\n%s", tt.name, before, now)
		}
		done := w.must(tt.status, tt.token, "POST", "/v1/import", tt.body)
		before = w.must(200, apitest.Admin, "GET", "/v1/export", "").body
		type answer struct {
			api.Imported
			Title  string       `json:"title"`
			Detail string       `json:"detail"`
			Faults model.Faults `json:"errors"`
		}
		var a, b answer
		if json.Unmarshal([]byte(check.body), &a) != nil || json.Unmarshal([]byte(done.body), &b) != nil {
			t.Fatalf("%s: %s %s", tt.name, check.body, done.body)
		}
		if a.DryRun != (tt.status == 200) || b.DryRun {
			t.Errorf("%s: dryRun is %v for the check and %v for the import", tt.name, a.DryRun, b.DryRun)
		}
		if a.DryRun = false; !reflect.DeepEqual(a, b) {
			t.Errorf("%s: the check answers\n%s\nand the import\n%s", tt.name, check.body, done.body)
		}
	}
}
