package server_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/apitest"
)

// shellType is an automator with every kind of resource.
var shellType = model.PluginType{
	Base: model.Base{Name: "shell"}, Class: "automator", Plugin: "1.0",
	ResourceTypes: map[string]model.ResourceType{
		"scripts": {Format: "file", Permissions: "0755"}, "archives": {Format: "archive"}, "keys": {Format: "file", Permissions: "0600"},
	},
}

// archive returns a tar with one file of this name.
func archive(t *testing.T, name string) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: 2, Typeflag: tar.TypeReg}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("x\n")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestResourceRoutes checks the answers and refusals of every route about plugin
// resources (docs/resources.md).
func TestResourceRoutes(t *testing.T) {
	w := newWorld(t)
	w.StoreResources(t.TempDir(), 4000, 8000, shellType)
	admin, user, guest, super := apitest.Admin, apitest.User, apitest.Guest, apitest.Super
	const (
		shell = "/v1/plugins/automatortypes/shell"
		goSh  = shell + "/scripts/go.sh"
		one   = goSh + "/versions/1"
		two   = goSh + "/versions/2"
		key   = shell + "/keys/id"
		first = "#!/bin/sh\necho one\n"
		pin   = "a private key"
	)
	sum := func(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }
	none := strings.Repeat("0", 64)
	done := map[string]bool{}
	w.tell(done, []asked{
		// Only an administrator uploads, and the upload must be a resource that its plugin takes.
		{"", "POST", goSh, first, 401, nil},
		{guest, "POST", goSh, first, 403, nil},
		{user, "POST", goSh, first, 403, nil},
		{admin, "POST", "/v1/plugins/automatortypes/shel/scripts/go.sh", first, 404, []string{`did you mean \"shell\"`}},
		{admin, "POST", shell + "/script/go.sh", first, 404, []string{`it has archives, keys, scripts`}},
		{admin, "POST", "/v1/plugins/providertypes/cloud/scripts/go.sh", first, 404, []string{`takes no resources`}},
		{admin, "POST", "/v1/plugins/providertypes/shell/scripts/go.sh", first, 404, []string{`no provider type`}},
		{admin, "POST", "/v1/plugins/plugins/shell/scripts/go.sh", first, 422, []string{`kind`}},
		{admin, "POST", shell + "/scripts/a%20b", first, 422, []string{`"path":"name"`}},
		{admin, "POST", shell + "/scripts/..%2Fx", first, 422, []string{`"path":"name"`}},
		{admin, "POST", goSh + "?sha256=" + none, first, 422, []string{`"path":"sha256"`, sum(first)}},
		{admin, "POST", goSh + "?sha256=abc", first, 422, []string{`sha256`}},
		{admin, "POST", goSh + "?then=later", first, 422, []string{`then`}},
		{admin, "POST", goSh, strings.Repeat("x", 4001), 413, []string{`4000 bytes`, `limits.resource`}},
		{admin, "POST", shell + "/archives/site", "no archive", 422, []string{`"path":"content"`}},
		{admin, "POST", shell + "/archives/site", archive(t, "../../etc/passwd"), 422, []string{`"path":"content"`, `etc/passwd`}},
		{guest, "GET", "/v1/plugins/resources", "", 200, []string{`[]`}}, // no refused upload was stored

		{admin, "POST", goSh + "?sha256=" + strings.ToUpper(sum(first)), first, 201,
			[]string{`"version":1`, `"status":"inactive"`, sum(first), `"size":19`, `"actor":"alice"`}},
		{admin, "POST", goSh + "?then=stage", "#!/bin/sh\necho two\n", 201, []string{`"version":2`, `"status":"staged"`}},
		{admin, "POST", shell + "/archives/site?then=activate", archive(t, "site/page"), 201,
			[]string{`"version":1`, `"status":"active"`, `"format":"archive"`}},
		{admin, "POST", key, pin, 201, []string{`"secret":true`}},
		{admin, "POST", shell + "/scripts/more", strings.Repeat("x", 3999), 201, nil},
		{admin, "POST", shell + "/scripts/most", strings.Repeat("x", 3999), 429, []string{`may take 8000`, `delete old versions`}},

		// All users of the tenant may list its resources.
		{guest, "GET", "/v1/plugins/resources", "", 200, []string{`"go.sh"`, `"site"`, `"id"`}},
		{guest, "GET", "/v1/plugins/resources?status=staged", "", 200, []string{`"version":2`}},
		{guest, "GET", "/v1/plugins/resources?status=odd", "", 422, nil},
		{guest, "GET", shell + "/scripts", "", 200, []string{`"go.sh"`, `"more"`}},
		{guest, "GET", shell + "/scripts?status=staged", "", 200, []string{`"version":2`}},
		{guest, "GET", "/v1/plugins/providertypes/shell/scripts", "", 200, []string{`[]`}},
		{guest, "GET", goSh + "?status=inactive", "", 200, []string{`"version":1`}},
		{guest, "GET", one, "", 200, []string{sum(first)}},
		{guest, "GET", goSh + "/versions/9", "", 404, []string{`no version 9`}},
		{guest, "GET", goSh + "/versions/0", "", 422, nil},
		{guest, "GET", goSh + "/versions/last", "", 422, nil},
		{admin, "GET", one + "/content", "", 200, []string{first}},
		{user, "GET", one + "/content", "", 403, nil},
		{admin, "GET", goSh + "/versions/9/content", "", 404, nil},
		{admin, "GET", key + "/versions/1/content", "", 403, []string{`is secret`}},

		// Another tenant neither sees the resources nor changes them.
		{super, "GET", "/v1/plugins/resources", "", 200, []string{`[]`}},
		{super, "GET", goSh, "", 200, []string{`[]`}},
		{super, "GET", one, "", 404, nil},
		{super, "GET", one + "/content", "", 404, nil},
		{super, "POST", one + "/activate", "", 404, nil},
		{super, "DELETE", one, "", 404, nil},
		{super, "DELETE", goSh, "", 404, nil},
		{super, "POST", "/v1/plugins/sync", "", 200, []string{`"active":[]`}},
		{super, "POST", goSh, "theirs", 201, []string{`"version":1`, sum("theirs")}},
		{super, "DELETE", goSh, "", 200, nil},
		{guest, "GET", one, "", 200, []string{sum(first), `"status":"inactive"`}},

		// Orders.
		{guest, "POST", one + "/stage", "", 403, nil},
		{user, "POST", one + "/activate", "", 403, nil},
		{user, "POST", one + "/recall", "", 403, nil},
		{user, "POST", "/v1/plugins/sync", "", 403, nil},
		{user, "DELETE", one, "", 403, nil},
		{user, "DELETE", goSh, "", 403, nil},
		{admin, "POST", goSh + "/versions/9/stage", "", 404, nil},
		{admin, "POST", shell + "/scripts/nothing/versions/1/stage", "", 404, nil},
		{admin, "POST", one + "/recall", "", 200, []string{`"status":"inactive"`}}, // it was not active
		{admin, "POST", "/v1/plugins/sync", "", 200, []string{`"active":[`, `"go.sh"`, `"version":2`, `"site"`}},
		{admin, "DELETE", two, "", 409, []string{`active`}},
		{admin, "DELETE", goSh, "", 409, nil},
		{admin, "POST", one + "/stage", "", 200, []string{`"status":"staged"`}},
		{guest, "GET", two, "", 200, []string{`"status":"recalled"`}},
		{admin, "POST", "/v1/plugins/sync", "", 200, []string{`"version":1`}},
		{admin, "POST", two + "/activate", "", 200, []string{`"status":"active"`}},
		{guest, "GET", one, "", 200, []string{`"status":"inactive"`}},
		{admin, "DELETE", one, "", 200, []string{`"version":1`}},
		{admin, "DELETE", one, "", 404, nil},
		{admin, "POST", two + "/recall", "", 200, []string{`"status":"recalled"`}},
		{admin, "POST", "/v1/plugins/sync", "", 200, nil},
		{admin, "DELETE", goSh, "", 200, []string{`go.sh`}},
		{admin, "DELETE", goSh, "", 404, nil},
		{guest, "GET", goSh, "", 200, []string{`[]`}},
	})
	w.undone(done, 12, "plugin resources")

	// The checksum of a key is not shown.
	for _, path := range []string{"/v1/plugins/resources", key, key + "/versions/1"} {
		if a := w.ask(guest, "GET", path, ""); !strings.Contains(a.body, `"id"`) || strings.Contains(a.body, sum(pin)) ||
			strings.Contains(a.body, pin) {
			t.Errorf("%s tells of a key: %s", path, a.body)
		}
	}
	if strings.Contains(w.log.String(), pin) {
		t.Error("the key is in the log")
	}
	// A repeated request is carried out once, and its answer says that it was repeated.
	for i, want := range []string{"", "true"} {
		a := w.must(201, admin, "POST", goSh, first, api.HeaderRequest+": upload-1")
		if a.header.Get(api.HeaderRepeated) != want || a.header.Get(api.HeaderIndex) == "" || !strings.Contains(a.body, `"version":1`) {
			t.Errorf("time %d: %v %s", i+1, a.header, a.body)
		}
	}
	// Content that does not reach a majority of the voters is not stored as a version.
	w.Fail(problem.NoMajority)
	if a := w.ask(admin, "POST", goSh, "#!/bin/sh\n"); a.status != 503 || a.problem(t).Type != api.ProblemNoMajority {
		t.Errorf("without a majority: %d %s", a.status, a.body)
	}
	if a := w.must(200, guest, "GET", goSh, ""); strings.Contains(a.body, `"version":2`) {
		t.Errorf("it is there: %s", a.body)
	}
	// The content is sent unchanged.
	if a := w.ask(admin, "GET", one+"/content", ""); a.header.Get("Content-Length") != fmt.Sprint(len(first)) ||
		a.header.Get("Content-Type") != "application/octet-stream" {
		t.Errorf("a content comes as %v", a.header)
	}
}
