package server_test

import (
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/server/apitest"
	"github.com/coopr/coopr/rpc/server/redact"
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

// The password of one service went to another that took its place in the list of a template's services.
func TestStoredSecretsStayWithTheirService(t *testing.T) {
	template := func(services ...model.DefaultService) model.Definition {
		return model.Define(model.KindClusterTemplate, &model.ClusterTemplate{Defaults: model.Defaults{Services: services}})
	}
	service := func(name, key string) model.DefaultService {
		return model.DefaultService{Name: name, Config: map[string]any{"key": key}}
	}
	a, b := service("a", model.SealedRef{ID: "aaa", Version: 1}.String()), service("b", model.SealedRef{ID: "bbb", Version: 1}.String())
	stored := template(a, b)
	got, faults := (&redact.Redactor{}).Restore(template(service("b", model.Redacted), service("a", model.Redacted)), &stored, model.RoleAdmin)
	if want := template(b, a); len(faults) > 0 || !reflect.DeepEqual(got.Value, want.Value) {
		t.Errorf("in another order: %+v, %v", got.Value, faults)
	}
	_, faults = (&redact.Redactor{}).Restore(template(service("c", model.Redacted)), &stored, model.RoleAdmin)
	if len(faults) != 1 || faults[0].Path != "defaults.services[0].config.key" {
		t.Errorf("another service: %v", faults)
	}
}

// A user who may write a service, and not use the secret in it, had the secret given to a script of their own.
func TestStoredSecretsStayWithTheirScript(t *testing.T) {
	service := func(token, script string) model.Definition {
		return model.Define(model.KindService, &model.Service{Provisioner: model.ServiceProvisioner{Actions: map[string]model.ServiceAction{
			"start": {Type: "shell", Fields: map[string]any{"api_token": token, "script": script}}}}})
	}
	stored := service(model.SealedRef{ID: "aaa", Version: 1}.String(), "run")
	for _, c := range []struct {
		role   model.Role
		script string
		ok     bool
	}{{model.RoleUser, "run", true}, {model.RoleUser, "print", false}, {model.RoleAdmin, "print", true}} {
		got, faults := (&redact.Redactor{}).Restore(service(model.Redacted, c.script), &stored, c.role)
		kept := !redact.Redacted(got.Value.(*model.Service).Provisioner.Actions["start"].Fields)
		if kept != c.ok || len(faults) == 0 != c.ok {
			t.Errorf("%s, %s: %v, %v", c.role, c.script, kept, faults)
		}
	}
}
