package identity

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Dev agents of one user that start together have one token, and keep it.
func TestDevTokenIsShared(t *testing.T) {
	config := filepath.Join(t.TempDir(), "config")
	t.Setenv("XDG_CONFIG_HOME", config)
	var tokens [8]string
	var dirs [8]string
	var all sync.WaitGroup
	for i := range tokens {
		dirs[i] = t.TempDir()
		all.Go(func() {
			var err error
			var shared bool
			if tokens[i], shared, err = DevToken(dirs[i]); err != nil || !shared {
				t.Error(shared, err)
			}
		})
	}
	all.Wait()
	for i, token := range tokens {
		if token != tokens[0] || len(token) < 16 {
			t.Errorf("agent %d has the token %q, agent 0 has %q", i, token, tokens[0])
		}
	}
	if left, err := os.ReadDir(filepath.Join(config, "coopr")); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
	for name, mode := range map[string]os.FileMode{"coopr": 0o700, "coopr/dev-token": 0o600} {
		if info, err := os.Stat(filepath.Join(config, name)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	if err := os.RemoveAll(config); err != nil {
		t.Fatal(err)
	}
	if again, shared, err := DevToken(dirs[3]); err != nil || again != tokens[0] || shared {
		t.Errorf("the next start has the token %q (%v)", again, err)
	}
	if other, _, err := DevToken(t.TempDir()); err != nil || other == tokens[0] {
		t.Errorf("an agent of another user has the token %q (%v)", other, err)
	}
}

// A file that others may have read, or that holds no token, is refused. Where the user has no folder for
// it, the agent has a token of its own.
func TestDevTokenFaults(t *testing.T) {
	config := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", config)
	shared := filepath.Join(config, "coopr", "dev-token")
	for content, mode := range map[string]os.FileMode{"coopr-dev-0123456789abcdef": 0o644, "short": 0o600, "": 0o600} {
		if err := os.MkdirAll(filepath.Dir(shared), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(shared, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		if token, _, err := DevToken(t.TempDir()); err == nil || !strings.Contains(err.Error(), "remove the file") {
			t.Errorf("a file with %q and mode %o: %q, %v", content, mode, token, err)
		}
		if err := os.RemoveAll(filepath.Dir(shared)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(config, "coopr"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if token, shared, err := DevToken(t.TempDir()); err != nil || len(token) < 16 || shared {
		t.Errorf("without a folder for the file: %q, %v", token, err)
	}
}
