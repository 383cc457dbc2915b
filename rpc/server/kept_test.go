package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/server/apitest"
)

// A password that was stored for one server was kept when the server was exchanged, and so was sent
// to another.
func TestStoredSecretsStayWithTheirReceiver(t *testing.T) {
	const stored = `{"name":"own","providertype":"cloud","provisioner":{"region":"north","endpoint":"https://a","username":"u",` +
		`"ssh_host_keys":"k","api_password":"pw","list":[{"password":"deep","address":"a"}],"nested":{"secret_token":"low","plain":"x"}}}`
	w := newWorld(t)
	w.must(200, apitest.Admin, "PUT", "/v1/providers/own", stored)
	shown := w.must(200, apitest.Admin, "GET", "/v1/providers/own", "").body
	if n := strings.Count(shown, model.Redacted); n != 3 {
		t.Fatalf("%d secrets are redacted: %s", n, shown)
	}
	for _, c := range [][2]string{
		{"https://a", "https://evil"},
		{`"username":"u"`, `"username":"v"`},
		{`,"username":"u"`, ``},
		{`"ssh_host_keys":"k"`, `"ssh_host_keys":"other"`},
		{`"region":"north"`, `"region":"north","proxy":"evil"`},
		{`"providertype":"cloud"`, `"providertype":"other"`},
		{`"address":"a"`, `"address":"evil"`},
		{`"plain":"x"`, `"plain":"y"`},
	} {
		body := strings.Replace(shown, c[0], c[1], 1)
		if body == shown {
			t.Fatalf("there is no %s in %s", c[0], shown)
		}
		w.must(http.StatusUnprocessableEntity, apitest.Admin, "PUT", "/v1/providers/own", body)
		w.must(http.StatusUnprocessableEntity, apitest.Admin, "POST", "/v1/import", `{"providers":[`+body+`]}`)
	}
	w.must(200, apitest.Admin, "PUT", "/v1/providers/own", strings.Replace(shown, "north", "south", 1))
	all := w.must(200, apitest.Admin, "GET", "/v1/export", "").body
	for _, s := range []string{"pw", "deep", "low", "south"} {
		if !strings.Contains(all, s) {
			t.Errorf("%s is lost", s)
		}
	}
	// Given again, they go with the new endpoint.
	w.must(200, apitest.Admin, "PUT", "/v1/providers/own", strings.Replace(stored, "https://a", "https://b", 1))
}
