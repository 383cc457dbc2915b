package access_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coopr/coopr/rpc/server/apitest"

	"github.com/coopr/coopr/cmd/coopr/internal/clitest"
)

// TestUsers is the story of a team: an administrator creates users, who log in, make tokens, and lose their access.
func TestUsers(t *testing.T) {
	s := clitest.New(t)
	s.Run(0, "user", "list")
	s.Stdin = "four random words here\n"
	s.Run(0, "user", "create", "ann", "--role", "user", "--group", "devs", "--password-stdin", "--description", "on call")
	s.Stdin = "short"
	s.Run(1, "user", "create", "eve", "--password-stdin")
	s.Run(0, "user", "create", "ci", "--account")
	s.Run(4, "user", "create", "ann")
	s.Run(1, "user", "create", "boss", "--role", "superadmin")
	s.Run(0, "user", "list")
	s.Run(2, "user", "set", "ann")
	s.Run(3, "user", "set", "nobody", "--disable")
	code, out, errs := s.Exec("user", "create", "zed")
	if code != 0 || len(strings.TrimSpace(out)) != 23 || !strings.Contains(errs, "shown only once") {
		t.Errorf("a made up password: %d %q %q", code, out, errs)
	}

	// Ann has no token: she logs in, and needs no flags from then on.
	admin := s.Env
	s.Env = map[string]string{"HOME": s.Dir}
	s.Run(0, "context", "list")
	s.Run(1, "logout")
	s.Run(2, "login", "--addr", s.URL, "--tenant", "acme", "--user", "ann")
	s.Stdin = "wrong words\n"
	s.Run(1, "login", "--addr", s.URL, "--tenant", "acme", "--user", "ann", "--password-stdin")
	s.Stdin = "four random words here\n"
	s.Run(0, "login", "--addr", s.URL, "--tenant", "acme", "--user", "ann", "--password-stdin")
	file := filepath.Join(s.Dir, ".config/coopr/contexts.json")
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file of contexts: %v, %v", info, err)
	}
	s.Run(0, "context", "list")
	s.Run(0, "cluster", "list")
	s.Run(1, "user", "list")
	_, token, _ := s.Exec("token", "create", "--role", "read", "--ttl", "12h")
	s.Run(5, "--addr", "http://127.0.0.1:1", "cluster", "list") // no other agent gets her session
	s.Run(1, "--context", "elsewhere", "cluster", "list")
	s.Run(3, "grant", "add", "ci", "operate", "cluster/none")
	s.Run(1, "grant", "add", "ci", "opreate", "cluster/none")
	s.Run(0, "grant", "list")
	s.Run(0, "context", "use", "dev")
	s.Run(0, "context", "use", "127.0.0.1")
	s.Run(0, "logout")
	s.Run(1, "cluster", "list")
	s.Stdin = "four random words here\n"
	s.Run(0, "login", "--user", "ann", "--password-stdin")

	// The administrator locks her out: her session and her token end.
	mine := s.Env
	s.Env = admin
	s.Run(0, "user", "set", "ann", "--disable")
	s.Env = mine
	s.Run(1, "cluster", "list")
	s.Env = map[string]string{"HOME": s.Dir, "COOPR_ADDR": s.URL, "COOPR_TOKEN": strings.TrimSpace(token)}
	s.Run(1, "whoami")
	s.As(apitest.Admin)
	s.Run(0, "user", "delete", "ann", "--yes")
	s.Run(4, "user", "create", "ann")
	s.Env = mine
	s.Run(0, "context", "delete", "127.0.0.1")
	s.Golden("users")
}
