package lint_test

import (
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/model/decode"
	"github.com/coopr/coopr/engine/model/lint"
)

// TestLiterals has passwords that are written out in each part of a definition that may have some. The warnings name the fields, and no
// value.
func TestLiterals(t *testing.T) {
	const canary = "canary"
	types := func(plugin string) (offered, defined model.PluginType) {
		secret := model.FieldSchema{Sensitive: true}
		switch plugin {
		case "provider/cloud":
			offered.Parameters.Admin.Fields = map[string]model.FieldSchema{"pin": secret, "endpoint": secret, "token_kind": {}}
			defined.Parameters.User.Fields = map[string]model.FieldSchema{"puk": {Type: "password"}, "codes": secret, "token_kind": {}}
		case "automator/robot":
			defined.Parameters.Admin.Fields = map[string]model.FieldSchema{"pin": secret, "host": secret}
		}
		return offered, defined
	}
	for _, c := range []struct {
		kind model.Kind
		body string
		want string // the paths of the warnings
	}{
		{model.KindProvider, `{"name": "p", "providertype": "x", "provisioner": {"api_password": "canary", "region": "canary",
			"inventory": [{"host": "h", "ssh_password": "canary"}]}}`, "provisioner.api_password provisioner.inventory[0].ssh_password"},
		{model.KindProvider, `{"name": "p", "providertype": "x", "provisioner": {"api_password": "${secure(p)}", "key_file": "canary",
			"token": "", "token_ttl": 7, "secret": "[redacted]", "passphrase": "coopr-sealed:a@1"}}`, ""},
		{model.KindProvider, `{"name": "p", "providertype": "cloud", "provisioner": {"pin": 4711, "puk": "canary", "endpoint": "canary",
			"token_kind": "canary", "codes": ["canary", {"a": "canary"}]}}`,
			"provisioner.codes[0] provisioner.codes[1].a provisioner.pin provisioner.puk"},
		{model.KindService, `{"name": "s", "provisioner": {"actions": {"start": {"type": "shell", "fields": {"token": "canary"}},
			"stop": {"type": "shell", "fields": {"script": "canary"}}}}}`, "provisioner.actions.start.fields.token"},
		{model.KindService, `{"name": "s", "provisioner": {"actions": {"start": {"type": "robot", "fields": {"pin": "canary", "host": "canary"}}}}}`,
			"provisioner.actions.start.fields.host provisioner.actions.start.fields.pin"},
		{model.KindClusterTemplate, `{"name": "t", "defaults": {"config": {"db": {"password": "canary", "user": "canary"},
			"passwords": ["canary", "${secure(p)}", {"of": "canary", "days": 3}]},
			"services": ["a", {"name": "s", "config": {"secret": "canary"}}]}}`, "defaults.config.db.password " +
			"defaults.config.passwords[0] defaults.config.passwords[2].of defaults.services[1].config.secret"},
		{model.KindPartialTemplate, `{"name": "t", "defaults": {"config": {"pass": "canary"}}}`, "defaults.config.pass"},
		{model.KindHardwareType, `{"name": "h", "providermap": {"p": {"flavor": "f", "password": "canary"}}}`, ""},
	} {
		d, err := decode.Definition(c.kind, []byte(c.body))
		if err != nil {
			t.Fatal(err)
		}
		var paths []string
		for _, w := range lint.Literals(d, types) {
			paths = append(paths, w.Path)
			if strings.Contains(w.Error(), canary) || !strings.Contains(w.Message, "${secure(NAME)}") || w.Subject != d.ID() {
				t.Errorf("the warning is %v", w)
			}
		}
		if got := strings.Join(paths, " "); got != c.want {
			t.Errorf("%s: warnings for %q, want %q", c.body, got, c.want)
		}
	}
}

// TestLiteralsWithoutTypes has only names to go by, as an import does that asks no mesh.
func TestLiteralsWithoutTypes(t *testing.T) {
	d, err := decode.Definition(model.KindProvider, []byte(`{"name": "p", "providertype": "cloud", "provisioner": {"pin": "1", "token": "2"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if w := lint.Literals(d, nil); len(w) != 1 || w[0].Path != "provisioner.token" {
		t.Errorf("the warnings are %v", w)
	}
}
