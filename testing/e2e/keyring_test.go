package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestKeyringOfSystemd runs an agent whose keyring is encrypted with a credential of its unit, as systemd shows it.
func TestKeyringOfSystemd(t *testing.T) {
	t.Parallel()
	m := newMesh(t, "a")
	m.found()
	a := m.agents[0]
	config := func(kind string) string { // without a token, as the first agent does not join
		path := a.config("", "keyring: {kind: "+kind+"}")
		text, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, bytes.Replace(text, []byte("join_token_file:"), []byte("#"), 1), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	credential := func(value string) []string {
		t.Helper()
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "coopr-keyring"), []byte(strings.Repeat(value, 40)), 0o400); err != nil {
			t.Fatal(err)
		}
		return []string{"CREDENTIALS_DIRECTORY=" + dir}
	}
	right := credential("r")
	run := func(kind string, env []string) {
		a.env = env
		a.run("run", "--config", config(kind))
	}
	refuses := func(kind string, env []string, why string) {
		t.Helper()
		run(kind, env)
		<-a.ended
		if log := a.tail(5); a.err == nil || !strings.Contains(log, why) {
			t.Errorf("the agent ended with %v, not with %q:\n%s", a.err, why, log)
		}
	}
	refuses("systemd-creds", nil, "LoadCredentialEncrypted=coopr-keyring")
	run("systemd-creds", right)
	m.ready()
	m.must("secret", "put", "phrase", "--file", m.put("value", "correct horse"))
	if limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", a.cmd.Process.Pid)); err != nil ||
		!strings.Contains(strings.Join(strings.Fields(string(limits)), " "), "Max core file size 0 0") {
		t.Errorf("the agent may write core dumps: %v\n%s", err, limits)
	}
	a.stop()
	file := a.data + "-keyring/keys"
	if data, err := os.ReadFile(file); err != nil || !bytes.HasPrefix(data, []byte("coopr-keyring 2 systemd-creds\n")) {
		t.Errorf("%v\n%s", err, data)
	}
	refuses("systemd-creds", nil, "LoadCredentialEncrypted=coopr-keyring")
	refuses("systemd-creds", credential("w"), "another one")
	refuses("file", right, "keyring convert --to file")
	convert := func(env []string) error {
		a.env = env
		a.run("keyring", "convert", "--to", "file", "--config", config("systemd-creds"))
		<-a.ended
		return a.err
	}
	if err := convert(nil); err == nil {
		t.Error("converted without the credential")
	}
	if err := convert(right); err != nil {
		t.Errorf("%v\n%s", err, a.tail(5))
	}
	run("file", nil)
	m.ready()
	m.must("secret", "put", "phrase", "--file", m.put("value", "battery staple")) // needs the key of before
	if data, err := os.ReadFile(file); err != nil || !bytes.HasPrefix(data, []byte("coopr-keyring 1\n")) {
		t.Errorf("the keyring was not converted: %v", err)
	}
	m.stop()
}
