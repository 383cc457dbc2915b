package e2e

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/testing/hunt"
)

// having returns the files of a folder that have a word in any form.
func having(t *testing.T, dir, word string) (found []string) {
	t.Helper()
	finds, _, err := hunt.New(hunt.Canary{Kind: "word", Value: word}).Folder(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range finds {
		found = append(found, f.Where)
	}
	return found
}

// listening installs plugins. That of the provider of the ledger returns the checksum of the password that it got.
func (m *mesh) listening() {
	m.t.Helper()
	plugins, _ := m.pluginDir()
	for _, name := range []string{"coopr-automator-shell", "coopr-provider-local", "coopr-node"} {
		program, err := os.ReadFile(filepath.Join(bin, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(plugins, name), program, 0o755)
		}
		if err != nil {
			m.t.Fatal(err)
		}
	}
	script, err := os.ReadFile(filepath.Join(plugins, "ledger"))
	if err != nil {
		m.t.Fatal(err)
	}
	text := strings.Replace(string(script), "mkdir -p", "sum=$(printf %s \"$(field ssh_password)\" | sha256sum | cut -d' ' -f1)\nmkdir -p", 1)
	text = strings.Replace(text, `\"transport\":\"local\"`, `\"transport\":\"local\",\"heard\":\"$sum\"`, 1)
	if err := os.WriteFile(filepath.Join(plugins, "ledger"), []byte(text), 0o755); err != nil {
		m.t.Fatal(err)
	}
}

// TestSecretsOnDisk runs a mesh as in production, with each store of the log, a program with a secret, and a provider with a password.
// The leader is killed, and another agent becomes a voter in its place. No file of any agent has them, and the others can use them
// still.
func TestSecretsOnDisk(t *testing.T) {
	for _, store := range []string{"boltdb", "wal"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			m := newMesh(t, "a", "b", "c")
			m.found()
			token := m.voterToken()
			m.listening()
			begin := func(a *agent) { a.run("run", "--config", a.config(token, "raft: {store: "+store+"}")) }
			for _, a := range m.agents {
				begin(a)
			}
			m.ready()
			m.vote()

			const value = "correct horse battery staple"
			m.must("secret", "put", "phrase", "--file", m.put("value", value+"\n"))
			m.must("program", "put", "peek", "-f", m.put("peek.yaml",
				"steps:\n- script: 'echo \"it is $PHRASE.\"'\n  env: {PHRASE: '${secure(phrase)}'}\n"))
			m.must("import", testdata(t, "ledger/definitions"))
			m.must("import", m.put("provider.json", `{"providers": [{"name": "ledger", "providertype": "ledger", "provisioner": {`+
				`"region": "the moon", "ssh_password": "`+value+`"}}]}`))
			builds := func(name string) (cluster string) {
				t.Helper()
				op := m.begin(model.CreateCluster{Name: name, ClusterTemplate: "ledger", NumMachines: 1})
				m.succeeds(op.ID)
				if out := m.must("cluster", "get", name, "-o", "json"); !strings.Contains(out, fmt.Sprintf("%x", sha256.Sum256([]byte(value)))) ||
					strings.Contains(out, value) || strings.Contains(out, "coopr-sealed:") {
					t.Errorf("the provider's plugin did not get the password, or it is shown:\n%s", out)
				}
				return op.Cluster
			}
			works := func() {
				t.Helper()
				if s := m.coopr("run", "--program", "peek"); s.code != 0 || !strings.Contains(s.out, "it is [redacted].") {
					t.Errorf("code %d\n%s%s", s.code, s.out, s.err)
				}
				m.awaitRun(m.latestRun().ID, "over", func(r api.RunDetails) bool { return r.Over() })
			}
			works()
			one := builds("one")
			token = strings.TrimSpace(m.must("token", "join", "--kind", "voter"))
			begin(m.add("d"))
			m.ready()
			keys, err := os.ReadFile(m.agents[0].data + "-keyring/keys")
			if err != nil {
				t.Fatal(err)
			}
			killed := m.leader()
			killed.kill()
			m.leader(killed)
			works()
			two := builds("two")
			m.await("the new voter to have the keys", func() error {
				got, err := os.ReadFile(m.agents[3].data + "-keyring/keys")
				if err == nil && !bytes.Equal(got, keys) {
					err = errors.New("it has other keys")
				}
				return err
			})
			m.must("secret", "put", "phrase", "--file", m.put("value", value+" 2\n"))
			works()
			begin(killed) // it takes away what it left
			m.ready()
			m.remove(one)
			m.remove(two)
			m.stop()
			if found := having(t, m.dir+"-agents", value); len(found) > 0 {
				t.Errorf("the secret is in %v", found)
			}
			if found := having(t, m.dir+"-agents", "the moon"); len(found) < 3 {
				t.Errorf("the hunt finds the provider in %v only", found)
			}
			if found := having(t, m.dir+"-agents", "${secure(phrase)}"); len(found) < 3 {
				t.Errorf("the hunt finds the program in %v only", found)
			}
		})
	}
}
