package ansible

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coopr/coopr/plugins/automator/automatortest"
	"github.com/coopr/coopr/testing/lab"
	"github.com/coopr/coopr/testing/programs"
)

const playbook = `
- hosts: all
  gather_facts: false
  tasks:
    - copy:
        dest: /srv/page
        content: "{{ coopr.config.web.greeting }} from {{ place }}, by {{ coopr.action }} of {{ coopr.service }}"
`

// TestPlay runs playbooks with Debian's Ansible against a light machine, as an ordinary user with
// sudo, with the machine's host key enforced.
func TestPlay(t *testing.T) {
	programs.Installed(t, "ansible-playbook")
	l := lab.New(t)
	n := automatortest.New(t, l, "ansible")
	n.Config = map[string]any{"web": map[string]any{"greeting": "Good day"}}
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "bad.yml"),
		[]byte("- hosts: all\n  gather_facts: false\n  tasks:\n    - command: /bin/false\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", t.TempDir())
	a := New(Config{Playbooks: []string{folder}})
	t.Cleanup(a.Close)
	n.Do(a, "BOOTSTRAP", nil)
	n.Do(a, "CONFIGURE", map[string]any{"playbook": playbook, "vars": map[string]any{"place": "here"}})
	if got := n.Must("cat", "/srv/page"); got != "Good day from here, by configure of s" {
		t.Errorf("the page says %q\n%s", got, n.Log())
	}
	if !strings.Contains(n.Log(), "changed=1") {
		t.Errorf("the log is\n%s", n.Log())
	}
	if _, err := a.Run(t.Context(), n.Task("START", map[string]any{"playbook": "bad.yml"})); err == nil ||
		!strings.Contains(err.Error(), "exit status 2") {
		t.Errorf("a task that fails: %v", err)
	}
	if _, err := a.Run(t.Context(), n.Task("START", map[string]any{"playbook": "none.yml"})); err == nil ||
		!strings.Contains(err.Error(), "is not in "+folder) {
		t.Errorf("a playbook that is not there: %v", err)
	}
	n.Upload("playbooks/site.yml", "- hosts: all\n  gather_facts: false\n  roles: [page]\n")
	n.Upload("roles/page/tasks/main.yml", "- copy: {dest: /srv/page, content: uploaded}\n")
	n.Upload("keys/mine", string(l.Key()))
	results := n.Results
	n.Results = maps.Clone(results)
	n.Results["ssh-auth"] = map[string]any{"user": "debian", "identityfile": "mine"}
	n.Do(a, "CONFIGURE", map[string]any{"playbook": "site.yml"})
	if got := n.Must("cat", "/srv/page"); got != "uploaded" {
		t.Errorf("the page says %q\n%s", got, n.Log())
	}
	n.Results = results
	other, err := l.Start(t.Context(), lab.Spec{Name: "other"})
	if err == nil {
		err = other.WaitSSH(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	n.Machine = other // the node has another machine now
	if _, err := a.Run(t.Context(), n.Task("START",
		map[string]any{"playbook": playbook, "vars": map[string]any{"place": "there"}})); err == nil ||
		!strings.Contains(err.Error(), "is unreachable") {
		t.Errorf("a machine with another host key: %v\n%s", err, n.Log())
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}
