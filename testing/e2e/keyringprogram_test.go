package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestKeyringProgram runs an agent whose keyring a program decrypts at each start. The agent waits as long as the program asks for it, and
// ends if that fails.
func TestKeyringProgram(t *testing.T) {
	t.Parallel()
	m := newMesh(t, "a")
	m.found()
	a := m.agents[0]
	dir := t.TempDir()
	program, code := filepath.Join(dir, "coopr-keyring-test"), filepath.Join(dir, "code")
	answers := func(text string) {
		t.Helper()
		if err := os.WriteFile(code+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(code+".new", code); err != nil {
			t.Fatal(err)
		}
	}
	text := fmt.Sprintf("#!/bin/sh\nread -r line\nread -r code <%s\n[ $code = 0 ] || { echo the code is $code >&2; exit $code; }\n"+
		"case $2 in wrap) echo \"$1:$line\" ;; unwrap) echo \"${line#$1:}\" ;; esac\n", code)
	if err := os.WriteFile(program, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	begin := func() {
		path := a.config("", fmt.Sprintf("keyring: {kind: program, program: {path: %q, args: [test]}}", program))
		text, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, bytes.Replace(text, []byte("join_token_file:"), []byte("#"), 1), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		a.run("run", "--config", path)
	}
	hears := a.notifies()
	answers("75")
	begin()
	hears("READY=1\nSTATUS=the keyring waits for the program that decrypts it")
	answers("0")
	m.ready()
	m.must("secret", "put", "phrase", "--file", m.put("value", "correct horse"))
	answers("1")
	m.must("secret", "put", "phrase", "--file", m.put("value", "battery staple")) // an agent that runs does not need the program
	a.kill()
	if data, err := os.ReadFile(a.data + "-keyring/keys"); err != nil || !bytes.HasPrefix(data, []byte("coopr-keyring 2 program\ntest:")) {
		t.Errorf("%v\n%s", err, data)
	}
	begin()
	if <-a.ended; a.err == nil || !strings.Contains(a.tail(5), "the code is 1") {
		t.Errorf("the program fails, and the agent ended with %v:\n%s", a.err, a.tail(5))
	}
	answers("0")
	begin()
	m.ready()
	m.stop()
}
