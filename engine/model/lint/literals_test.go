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
	for _, c := range []struct {
		kind model.Kind
		body string
		want string // the paths of the warnings
	}{
		{model.KindProvider, `{"name": "p", "providertype": "x", "provisioner": {"api_password": "canary", "region": "canary",
			"inventory": [{"host": "h", "ssh_password": "canary"}]}}`, "provisioner.api_password provisioner.inventory[0].ssh_password"},
		{model.KindProvider, `{"name": "p", "providertype": "x", "provisioner": {"api_password": "${secure(p)}", "key_file": "canary",
			"token": "", "token_ttl": 7, "secret": "[redacted]", "passphrase": "coopr-sealed:a@1"}}`, ""},
		{model.KindService, `{"name": "s", "provisioner": {"actions": {"start": {"type": "shell", "fields": {"token": "canary"}},
			"stop": {"type": "shell", "fields": {"script": "canary"}}}}}`, "provisioner.actions.start.fields.token"},
		{model.KindClusterTemplate, `{"name": "t", "defaults": {"config": {"db": {"password": "canary", "user": "canary"}},
			"services": ["a", {"name": "s", "config": {"secret": "canary"}}]}}`, "defaults.config.db.password defaults.services[1].config.secret"},
		{model.KindPartialTemplate, `{"name": "t", "defaults": {"config": {"pass": "canary"}}}`, "defaults.config.pass"},
		{model.KindHardwareType, `{"name": "h", "providermap": {"p": {"flavor": "f", "password": "canary"}}}`, ""},
	} {
		d, err := decode.Definition(c.kind, []byte(c.body))
		if err != nil {
			t.Fatal(err)
		}
		var paths []string
		for _, w := range lint.Literals(d) {
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
