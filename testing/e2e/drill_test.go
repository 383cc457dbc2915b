package e2e

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
)

// TestDrill is the drill of docs/operations.md: a mesh with secrets and a cluster saves its state and exports its keyring. All its hosts
// are lost. New hosts begin a mesh with the keyring and restore the state, which is held until somebody resumes it.
func TestDrill(t *testing.T) {
	t.Parallel()
	m := newMesh(t, "a")
	me, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	key, stranger := m.put("key.txt", me.String()+"\n"), m.put("stranger", "correct horse battery staple\n")
	m.listening()
	configure := func(a *agent) (path string) {
		path = a.config("")
		text, err := os.ReadFile(path)
		if err == nil { // without a token, as the first agent of a mesh does not join
			err = os.WriteFile(path, []byte(strings.Replace(string(text), "join_token_file:", "#", 1)), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	begin := func(a *agent) { a.run("run", "--config", configure(a)) }
	m.found()
	begin(m.agents[0])
	m.ready()
	const value = "correct horse battery staple"
	m.must("secret", "put", "phrase", "--file", m.put("value", value+"\n"))
	m.must("program", "put", "peek", "-f", m.put("peek.yaml",
		"steps:\n- script: 'echo \"it is $PHRASE.\"'\n  env: {PHRASE: '${secure(phrase)}'}\n"))
	m.must("import", testdata(t, "ledger/definitions"))
	m.must("import", m.put("provider.json", `{"providers": [{"name": "ledger", "providertype": "ledger", "provisioner": {`+
		`"region": "the moon", "ssh_password": "`+value+`"}}]}`))
	op := m.begin(model.CreateCluster{Name: "shop", ClusterTemplate: "ledger", NumMachines: 1})
	m.succeeds(op.ID)

	saves := func(name string, warns bool) {
		t.Helper()
		s := m.coopr("operator", "snapshot", "save", filepath.Join(m.dir, name))
		if s.code != 0 || !strings.Contains(s.out, "key 1") || strings.Contains(s.err, "never exported") != warns {
			t.Errorf("code %d\n%s%s", s.code, s.out, s.err)
		}
	}
	saves("early.snap", true)
	keyring := func(code int, says string, args ...string) {
		t.Helper()
		s := m.daemon(append([]string{"keyring"}, args...)...)
		if s.code != code || !strings.Contains(s.out+s.err, says) {
			t.Errorf("keyring %s: %d\n%s%s", strings.Join(args, " "), s.code, s.out, s.err)
		}
		if strings.Contains(s.out+s.err, "AGE-SECRET-KEY") {
			t.Errorf("keyring %s shows an identity", args[0])
		}
	}
	config := func() string { return filepath.Join(m.dir, m.agents[0].name+".yaml") }
	keyring(0, "key 1", "export", "--config", config(), "--to", "keyring.age", "--recipient", me.Recipient().String())
	keyring(1, "there already", "export", "--config", config(), "--to", "keyring.age", "--recipient", me.Recipient().String())
	saves("coopr.snap", false)

	lost := m.agents[0]
	lost.kill()
	m.wipe(lost)
	if err := os.RemoveAll(lost.data + "-keyring"); err != nil {
		t.Fatal(err)
	}

	// A mesh with keys of its own refuses the snapshot, and stays as it is.
	host := func(name string) *agent {
		t.Helper()
		m.agents, m.client = nil, nil
		a := m.add(name)
		configure(a)
		s := m.daemon("init", "--data-dir", a.data)
		if s.code != 0 {
			t.Fatalf("init: %s%s", s.out, s.err)
		}
		ca := m.daemon("ca", "--data-dir", a.data)
		m.token, m.caCert = strings.TrimSpace(s.out), m.put(name+".pem", ca.out)
		return a
	}
	wrong := host("b")
	begin(wrong)
	m.ready()
	m.await("a keyring", func() error { _, err := os.Stat(wrong.data + "-keyring/keys"); return err })
	s := m.coopr("operator", "snapshot", "restore", "coopr.snap", "--yes")
	if s.code == 0 || !strings.Contains(s.err, "begin a new mesh on a host that has the keyring with key 1 (fingerprint") {
		t.Errorf("a wrong keyring: %d\n%s%s", s.code, s.out, s.err)
	}
	if s := m.coopr("cluster", "get", "shop"); s.code != 3 {
		t.Errorf("the refused snapshot has left something: %d\n%s%s", s.code, s.out, s.err)
	}
	if s := m.coopr("status"); strings.Contains(s.out, "Held") {
		t.Errorf("the refused snapshot has the mesh held:\n%s", s.out)
	}
	keyring(1, "is in use", "import", "keyring.age", "--config", config(), "--identity", key)
	wrong.stop()
	keyring(1, "--force", "import", "keyring.age", "--config", config(), "--identity", key)

	right := host("c")
	keyring(1, "cannot be decrypted", "import", "keyring.age", "--config", config(), "--passphrase-file", stranger)
	if _, err := os.Stat(right.data + "-keyring"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a keyring that could not be read was written: %v", err)
	}
	keyring(0, "key 1", "import", "keyring.age", "--config", config(), "--identity", key)
	begin(right)
	m.ready()
	m.must("operator", "snapshot", "restore", "coopr.snap", "--yes")
	m.ready()
	if s := m.coopr("status"); s.code != 6 || !strings.Contains(s.out, "Held:") || !strings.Contains(s.out, "restored from coopr.snap at ") ||
		!strings.Contains(s.out, "coopr operator resume") {
		t.Errorf("a restored mesh: %d\n%s%s", s.code, s.out, s.err)
	}
	if s := m.coopr("cluster", "configure", "shop", "--yes"); s.code != 4 || !strings.Contains(s.err, "coopr operator resume") {
		t.Errorf("work while the mesh is held: %d\n%s%s", s.code, s.out, s.err)
	}
	m.must("operator", "resume")
	m.must("cluster", "configure", "shop", "--yes")
	m.must("cluster", "grow", "shop", "--nodes", "1", "--yes")
	if n := strings.Count(m.must("cluster", "get", "shop", "-o", "json"), fmt.Sprintf("%x", sha256.Sum256([]byte(value)))); n < 2 {
		t.Errorf("the provider's plugin got the password for %d nodes", n)
	}
	if s := m.coopr("run", "--program", "peek"); s.code != 0 || !strings.Contains(s.out, "it is [redacted].") {
		t.Errorf("code %d\n%s%s", s.code, s.out, s.err)
	}
	if s := m.coopr("status"); strings.Contains(s.out, "Held") {
		t.Errorf("after the hold:\n%s", s.out)
	}
	m.awaitRun(m.latestRun().ID, "over", func(r api.RunDetails) bool { return r.Over() })
	m.remove(op.Cluster)
	m.stop()
}
