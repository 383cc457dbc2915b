package keystore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coopr/coopr/agent/config"
	"github.com/coopr/coopr/consensus/keyring"
)

// script writes a program that the shell runs, and returns its settings.
func script(t *testing.T, text string) config.KeyringProgram {
	t.Helper()
	path := filepath.Join(t.TempDir(), "coopr-keyring-test")
	must(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700))
	return config.KeyringProgram{Path: path}
}

// rotates is a program that encrypts by exchanging letters. It refuses without its argument.
const rotates = `
[ "$#" = 2 ] && [ "$1" = --key=k ] || exit 9
IFS= read -r line || exit 8
case "$2" in
wrap) printf 'test:%s\n' "$line" | tr A-Za-z N-ZA-Mn-za-m ;;
unwrap) printf '%s\n' "$line" | tr A-Za-z N-ZA-Mn-za-m | sed s/^test:// ;;
*) exit 7 ;;
esac
`

func TestProgram(t *testing.T) {
	cfg := script(t, rotates)
	cfg.Args = []string{"--key=k"}
	secret := []byte("thirty-two bytes of a local key!")
	wrapped, err := NewProgram(cfg).Wrap(secret)
	if err != nil || !strings.HasPrefix(wrapped, "grfg:") {
		t.Fatal(wrapped, err)
	}
	if got, err := NewProgram(cfg).Unwrap(wrapped); err != nil || string(got) != string(secret) {
		t.Errorf("%q, %v", got, err)
	}
	c := config.Config{DataDir: filepath.Join(t.TempDir(), "data"), Keyring: config.Keyring{Kind: keyring.KindProgram, Program: cfg}}
	key := keyring.NewKey(1)
	must(t, Of(c).Save(keyring.Set{Active: 1, Keys: []keyring.Key{key}}))
	if set, err := Of(c).Load(); err != nil || len(set.Keys) != 1 || !set.Keys[0].Same(key) {
		t.Error("after a restart:", set, err)
	}
	c.Keyring.Program.Args = nil
	if _, err := Of(c).Load(); !errors.Is(err, keyring.ErrLocked) || !strings.Contains(err.Error(), "exit status 9") {
		t.Error("a refusal:", err)
	}
}

// TestProgramAnswers has the program do all kinds of wrong things. One is worth a later try. No error has what is secret.
func TestProgramAnswers(t *testing.T) {
	const canary = "canary in the mine of 32 bytes.."
	for text, x := range map[string]struct {
		away bool
		word string // of the error
	}{
		"exit 0":                               {false, "printed nothing"},
		"echo":                                 {false, "printed nothing"},
		"echo a; echo b":                       {false, "more than one line"},
		"printf 'a\\rb\\n'":                    {false, "more than one line"},
		"echo no right to the key >&2; exit 1": {false, "no right to the key"},
		"echo throttled >&2; exit 75":          {true, "throttled"},
		"kill -9 $$":                           {false, "killed"},
		"IFS= read -r l; echo \"line $l\" >&2; printf '%s' \"$l\" | base64 -d >&2; exit 1":                     {false, "[redacted]"},
		"IFS= read -r l; echo \"$l\"; printf '%s' \"$l\" | base64 -d | od -An -tx1 | tr -d ' \\n' >&2; exit 1": {false, "exit status 1"},
		"while :; do echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; done":       {false, "more than"},
		"head -c 1000000 /dev/zero | tr '\\0' e >&2; exit 3":                                                   {false, "exit status 3"},
		"sleep 1000 & echo a": {false, "holds its output"},
	} {
		_, wrap := NewProgram(script(t, text)).Wrap([]byte(canary))
		_, unwrap := NewProgram(script(t, text)).Unwrap("Y2FuYXJ5IGluIHRoZSBtaW5lIG9mIDMyIGJ5dGVzLi4=")
		for verb, err := range map[string]error{"wrap": wrap, "unwrap": unwrap} {
			if err == nil || errors.Is(err, keyring.ErrAway) != x.away || !strings.Contains(err.Error(), x.word) || len(err.Error()) > 1000 {
				t.Errorf("%s, %s: %v", verb, text, err)
			}
			for _, secret := range []string{"canary in", "Y2FuYXJ5", fmt.Sprintf("%x", canary[:8])} {
				if err != nil && strings.Contains(err.Error(), secret) {
					t.Errorf("%s, %s: the error says too much: %v", verb, text, err)
				}
			}
		}
	}
	if _, err := NewProgram(script(t, "echo no/base64!")).Unwrap("word"); err == nil || !strings.Contains(err.Error(), "not base64") {
		t.Error(err)
	}
}

// TestProgramTime has a program that does not end, and whose children do not. It is killed with them.
func TestProgramTime(t *testing.T) {
	dir := t.TempDir()
	p := NewProgram(script(t, fmt.Sprintf("sleep 1000 & echo $! > %s/new; mv %[1]s/new %[1]s/pid; wait", dir)))
	p.time = 300 * time.Millisecond
	for {
		if _, err := p.Wrap([]byte("secret")); !errors.Is(err, keyring.ErrAway) || !strings.Contains(err.Error(), "has not ended after") {
			t.Fatal(err)
		}
		if pid, err := os.ReadFile(dir + "/pid"); err == nil {
			for { // it is a zombie until the system has taken it over
				stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat")
				if err != nil || strings.Contains(string(stat), ") Z ") {
					return
				}
			}
		}
		p.time *= 2 // the machine is busy
	}
}

// TestProgramSettings has programs that are not started, and environments.
func TestProgramSettings(t *testing.T) {
	for name, x := range map[string]struct {
		change func(c *config.KeyringProgram)
		word   string
	}{
		"none":           {func(c *config.KeyringProgram) { must(t, os.Remove(c.Path)) }, "no such file"},
		"a folder":       {func(c *config.KeyringProgram) { c.Path = t.TempDir() }, "not an executable"},
		"not executable": {func(c *config.KeyringProgram) { must(t, os.Chmod(c.Path, 0o600)) }, "not an executable"},
		"open":           {func(c *config.KeyringProgram) { must(t, os.Chmod(c.Path, 0o770)) }, "changed by others"},
		"no interpreter": {func(c *config.KeyringProgram) { must(t, os.WriteFile(c.Path, []byte("#!/nowhere\n"), 0o700)) }, "cannot be started"},
	} {
		c := script(t, "echo word")
		x.change(&c)
		_, err := NewProgram(c).Wrap([]byte("secret"))
		if err == nil || !strings.Contains(err.Error(), x.word) || errors.Is(err, keyring.ErrAway) {
			t.Errorf("%s: %v", name, err)
		}
	}
	t.Setenv("KEPT", "kept")
	t.Setenv("NOTIFY_SOCKET", "/nowhere")
	c := script(t, `echo "$KEPT:$NOTIFY_SOCKET:$MISSING:$PATH"`)
	c.Env = []string{"KEPT", "MISSING"}
	if got, err := NewProgram(c).Wrap([]byte("secret")); err != nil || got != "kept:::"+programPath {
		t.Error(got, err)
	}
}

// TestAwaitProgram starts an agent whose program can do nothing yet. It waits, and goes on.
func TestAwaitProgram(t *testing.T) {
	ready := filepath.Join(t.TempDir(), "ready")
	prog := script(t, "[ -e "+ready+" ] || exit 75\n"+rotates)
	prog.Args = []string{"--key=k"}
	cfg := config.Config{DataDir: filepath.Join(t.TempDir(), "data"), Keyring: config.Keyring{Kind: keyring.KindProgram, Program: prog}}
	must(t, os.WriteFile(ready, nil, 0o600))
	key := keyring.NewKey(1)
	must(t, Of(cfg).Save(keyring.Set{Active: 1, Keys: []keyring.Key{key}}))
	must(t, os.Remove(ready))
	s := start(t, cfg)
	if why := <-s.said; !strings.Contains(why, "program") {
		t.Error("it says", why)
	}
	must(t, os.WriteFile(ready, nil, 0o600))
	if <-s.ended; s.err != nil {
		t.Fatal(s.err)
	}
	if set, err := s.store.Load(); err != nil || len(set.Keys) != 1 || !set.Keys[0].Same(key) {
		t.Error(set, err)
	}
}
