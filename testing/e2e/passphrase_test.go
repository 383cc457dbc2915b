package e2e

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coopr/coopr/agent/keystore"
	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/rpc/identity"
)

// sealed waits until an agent waits for its passphrase.
func (a *agent) sealed() {
	a.mesh.t.Helper()
	a.mesh.await("agent "+a.name+" to be sealed", func() error { return keystore.Waits(a.data) })
}

// unlock sends a passphrase to a sealed agent.
func (a *agent) unlock(phrase string) said {
	a.mesh.t.Helper()
	return a.mesh.daemon("unlock", "--data-dir", a.data, "--passphrase-file", a.mesh.put("phrase", phrase+"\n"))
}

// serves waits until the API of an agent answers, and knows a leader.
func (a *agent) serves() {
	a.mesh.t.Helper()
	a.mesh.await("agent "+a.name+" to serve", func() error {
		s, err := a.status()
		if err == nil && s.Leader == "" {
			err = errNotYet
		}
		return err
	})
}

// secrets returns the keys of a stopped voter, which are in its keyring and in its identity.
func (a *agent) secrets(phrase string) (out [][]byte) {
	t := a.mesh.t
	t.Helper()
	p := keyring.WithPassphrase(a.data + "-keyring")
	if err := p.Unlock([]byte(phrase)); err != nil {
		t.Fatal(a.name, err)
	}
	r, err := keyring.Open(p)
	if err != nil {
		t.Fatal(a.name, err)
	}
	for _, k := range r.Set().Keys {
		out = append(out, k.Secret[:])
	}
	m, err := identity.LoadMembership(a.data)
	if err == nil && len(m.Sealed) == 0 {
		t.Errorf("the identity of agent %s is not encrypted", a.name)
	}
	if err == nil {
		err = m.Unseal(r)
	}
	if err != nil {
		t.Fatal(a.name, err)
	}
	return append(out, m.Key, m.Gossip)
}

// filesWith returns the files in folders that have a secret, in any form in which the agent might write it.
func filesWith(t *testing.T, secret []byte, folders ...string) (found []string) {
	t.Helper()
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			b, err := os.ReadFile(path)
			if bytes.Contains(b, secret) || bytes.Contains(b, []byte(base64.StdEncoding.EncodeToString(secret))) {
				found = append(found, path)
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	return found
}

// TestPassphrase runs three voters whose keyrings are locked with a passphrase, which is typed on the first one only. After a power cut all
// are sealed. Two that are unlocked are a mesh again.
func TestPassphrase(t *testing.T) {
	t.Parallel()
	m := newMesh(t, "a", "b", "c")
	m.found()
	const phrase = "correct horse battery staple"
	first := m.agents[0]
	begin := func(a *agent) { a.run("run", "--config", a.config(m.voterToken(), "keyring: {kind: passphrase}")) }
	begin(first)
	if <-first.ended; first.err == nil || !strings.Contains(first.tail(5), "coopr-agent keyring passphrase") {
		t.Errorf("the first agent started without a passphrase: %v\n%s", first.err, first.tail(5))
	}
	if s := m.daemon("keyring", "passphrase", "--config", first.config(m.voterToken(), "keyring: {kind: passphrase}"),
		"--new-passphrase-file", m.put("phrase", phrase)); s.code != 0 {
		t.Fatalf("%s%s", s.out, s.err)
	}
	for _, a := range m.agents {
		begin(a)
	}
	m.ready()
	m.vote()
	const value = "the value of a secret"
	m.must("secret", "put", "before", "--file", m.put("value", value))
	m.await("the keyrings to be locked", func() error {
		for _, a := range m.agents {
			if _, err := keyring.WithPassphrase(a.data + "-keyring").Load(); !errors.Is(err, keyring.ErrSealed) {
				return errors.Join(errNotYet, err)
			}
			if member, err := identity.LoadMembership(a.data); err != nil || len(member.Sealed) == 0 {
				return errors.Join(errNotYet, err)
			}
		}
		return nil
	})
	if s := first.unlock(phrase); s.code != 1 || !strings.Contains(s.err, "no agent waits") {
		t.Errorf("an agent that is open: code %d\n%s%s", s.code, s.out, s.err)
	}
	for _, a := range m.agents {
		a.kill()
	}
	hears := first.notifies()
	for _, a := range m.agents {
		begin(a)
	}
	hears("READY=1\nSTATUS=the keyring is locked: run coopr-agent unlock") // so that systemd does not end it while nobody comes
	for _, a := range m.agents {
		a.sealed()
		if _, err := a.status(); err == nil {
			t.Errorf("agent %s is sealed, and its API answers", a.name)
		}
	}
	if s := m.daemon("doctor", "--config", first.config(m.voterToken(), "keyring: {kind: passphrase}")); s.code != 1 ||
		!strings.Contains(s.out, "the agent is sealed") {
		t.Errorf("the doctor: code %d\n%s%s", s.code, s.out, s.err)
	}
	if s := first.unlock("correct horse battery"); s.code != 1 || !strings.Contains(s.err, "the passphrase is wrong") {
		t.Errorf("a wrong passphrase: code %d\n%s%s", s.code, s.out, s.err)
	}
	first.sealed()
	unlock := func(a *agent) {
		t.Helper()
		if s := a.unlock(phrase); s.code != 0 {
			t.Errorf("agent %s: code %d\n%s%s", a.name, s.code, s.out, s.err)
		}
	}
	unlock(first)
	hears("READY=1\nSTATUS=")
	hears("READY=1")
	unlock(m.agents[1])
	m.leader()
	m.must("secret", "put", "after", "--file", m.put("value", value)) // needs the keys
	m.agents[2].sealed()
	unlock(m.agents[2])
	for _, a := range m.agents {
		a.serves()
	}
	m.vote()
	m.await("the unlocks to be audited", func() error {
		opened, refused := m.must("--tenant", "*", "audit", "list", "--type", "keyring.unlocked", "-o", "json"),
			m.must("--tenant", "*", "audit", "list", "--type", "keyring.unlock.refused", "-o", "json")
		for _, a := range m.agents {
			if !strings.Contains(opened, `"`+a.name+`"`) {
				return fmt.Errorf("%w: %s", errNotYet, opened)
			}
		}
		if !strings.Contains(refused, `"`+first.name+`"`) {
			return fmt.Errorf("%w: %s", errNotYet, refused)
		}
		return nil
	})

	// Nothing on the disk of a stopped voter opens anything.
	second := m.agents[1]
	second.stop()
	for _, secret := range second.secrets(phrase) {
		if found := filesWith(t, secret, second.data, second.data+"-keyring", second.data+"-work"); len(found) > 0 {
			t.Errorf("a key is in the clear in %v", found)
		}
	}
	// It changes its kind, and starts by itself.
	config := second.config(m.voterToken(), "keyring: {kind: passphrase}")
	if s := m.daemon("keyring", "convert", "--to", "file", "--config", config, "--passphrase-file", m.put("phrase", "wrong wrong wrong")); s.code != 1 {
		t.Errorf("converted with a wrong passphrase: %s%s", s.out, s.err)
	}
	if s := m.daemon("keyring", "convert", "--to", "file", "--config", config, "--passphrase-file", m.put("phrase", phrase)); s.code != 0 {
		t.Errorf("%s%s", s.out, s.err)
	}
	second.run("run", "--config", second.config(m.voterToken()))
	second.serves()
	second.stop()

	// A voter that has lost its keyring has lost its identity. A copy of another voter's brings both back.
	dir := second.data + "-keyring"
	if err := os.Rename(filepath.Join(dir, "keys"), filepath.Join(m.dir, "keys")); err != nil {
		t.Fatal(err)
	}
	second.run("run", "--config", second.config(m.voterToken()))
	if <-second.ended; second.err == nil || !strings.Contains(second.tail(5), "join with a new token") {
		t.Errorf("it started without its keyring: %v\n%s", second.err, second.tail(5))
	}
	copied, err := os.ReadFile(m.agents[2].data + "-keyring/keys")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "keys"), copied, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	begin(second)
	second.sealed()
	unlock(second)
	second.serves()
	m.stop()
}
