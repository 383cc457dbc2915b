package puppet

import (
	"strings"
	"testing"

	"github.com/coopr/coopr/plugins/automator/automatortest"
	"github.com/coopr/coopr/testing/lab"
)

// TestApply installs Debian's Puppet and applies manifests on a light machine, as an ordinary user
// with sudo.
func TestApply(t *testing.T) {
	n := automatortest.New(t, lab.New(t), "puppet")
	n.Config = map[string]any{"web": map[string]any{"greeting": "Good day"}}
	a := New(nil)
	t.Cleanup(a.Close)
	n.Do(a, "BOOTSTRAP", nil)
	fields := map[string]any{
		"manifest": "file { '/srv/page': content => \"${greeting} from ${place}, by ${coopr_action} of ${coopr_service}\" }\n",
		"facts":    map[string]any{"place": "here"}, "config": map[string]any{"greeting": "web.greeting"},
	}
	check := func() bool {
		t.Helper()
		done, _, err := a.Check(t.Context(), n.Task("CONFIGURE", fields))
		if err != nil {
			t.Fatalf("%v\n%s", err, n.Log())
		}
		return done
	}
	if check() {
		t.Error("what was never applied is said to be done")
	}
	n.Do(a, "CONFIGURE", fields)
	if got := n.Must("cat", "/srv/page"); got != "Good day from here, by CONFIGURE of s" {
		t.Errorf("the page says %q\n%s", got, n.Log())
	}
	if !check() {
		t.Error("what was applied is said not to be done")
	}
	if _, err := a.Run(t.Context(), n.Task("CONFIGURE", map[string]any{"manifest": "file {"})); err == nil ||
		!strings.Contains(err.Error(), "cannot be applied") {
		t.Errorf("a manifest that is none: %v", err)
	}
	if got := n.Must("sh", "-c", "ls -A /dev/shm | wc -l"); got != "0" {
		t.Errorf("%s secrets are left", got)
	}
	n.Upload("manifests/site.pp", "include page\n")
	n.Upload("modules/page/manifests/init.pp", "class page { file { '/srv/page': content => 'uploaded' } }\n")
	n.Do(a, "CONFIGURE", map[string]any{"manifest": "site.pp"})
	if got := n.Must("cat", "/srv/page"); got != "uploaded" {
		t.Errorf("the page says %q\n%s", got, n.Log())
	}
	if _, err := a.Run(t.Context(), n.Task("CONFIGURE", map[string]any{"manifest": "none.pp"})); err == nil ||
		!strings.Contains(err.Error(), "not among the tenant's manifests") {
		t.Errorf("a manifest that is not there: %v", err)
	}
}
