package cluster

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
)

// TestSSHOptions checks the options as ssh itself reads them, with names that a shell and ssh would expand.
func TestSSHOptions(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "it's 100%h")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	known := filepath.Join(dir, "known_hosts")
	node := func(results map[string]any) *model.Node { return &model.Node{ID: "00000001-1003", Results: results} }
	keys := map[string]any{"ssh-ed25519": "AAAA", "ecdsa-sha2-nistp256": "BBBB"}
	options, err := sshOptions(filepath.Join(dir, "coopr"), known, node(map[string]any{"ssh_port": float64(2222), "ssh_host_keys": keys}))
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(known)
	want := "coopr-00000001-1003 ecdsa-sha2-nistp256 BBBB\ncoopr-00000001-1003 ssh-ed25519 AAAA\n"
	if err != nil || string(got) != want {
		t.Errorf("known hosts %q, not %q: %v", got, want, err)
	}
	if text := strings.Join(options, "\n"); !strings.Contains(text, "StrictHostKeyChecking=yes") {
		t.Errorf("the host key is not required: %s", text)
	}
	if ssh, err := exec.LookPath("ssh"); err == nil {
		out, err := exec.CommandContext(t.Context(), ssh, append(append([]string{"-F", "none", "-G"}, options...), "coopr-00000001-1003")...).Output()
		for _, line := range []string{"userknownhostsfile " + known, "stricthostkeychecking true", "hostkeyalias coopr-00000001-1003"} {
			if err != nil || !strings.Contains(strings.ReplaceAll(string(out), "%%", "%"), line+"\n") {
				t.Errorf("ssh lacks %q: %v: %s", line, err, out)
			}
		}
	}

	// Without a known key, the user's own files count.
	if options, err := sshOptions("coopr", known, node(nil)); err != nil || strings.Contains(strings.Join(options, "\n"), "KnownHosts") {
		t.Errorf("%q: %v", options, err)
	}
	for _, results := range []map[string]any{{"transport": "local"}, {"ssh_port": "22; id"}} {
		if options, err := sshOptions("coopr", known, node(results)); err == nil {
			t.Errorf("%v is taken: %q", results, options)
		}
	}
}

// TestSSHCommand checks that a shell runs the program of the options with the node and its port.
func TestSSHCommand(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "it's 100%h")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	self := filepath.Join(dir, "coopr")
	if err := os.WriteFile(self, []byte("#!/bin/sh\necho \"$@\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	options, err := sshOptions(self, "", &model.Node{ID: "00000001-1003"})
	if err != nil {
		t.Fatal(err)
	}
	command, ok := strings.CutPrefix(options[1], "ProxyCommand=")
	out, err := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(command, "%%", "%")).CombinedOutput()
	if want := "node port-forward --stdio 00000001-1003 22\n"; !ok || err != nil || string(out) != want {
		t.Errorf("%s: %v: %q, not %q", command, err, out, want)
	}
}
