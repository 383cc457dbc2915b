package examples

import (
	"fmt"
	"os"
	"strings"
	"testing"

	gossh "golang.org/x/crypto/ssh"

	"github.com/coopr/coopr/testing/lab"
	"github.com/coopr/coopr/testing/site"
)

// onHosts runs a test on machines as laboratories have them, too: without systemd,
// behind a jump host. CI leaves them out.
func onHosts(t *testing.T, machines int, test func(t *testing.T, s *installation)) {
	if os.Getenv("COOPR_EXAMPLES") != "all" {
		return
	}
	t.Run("behind", func(t *testing.T) { test(t, behindAJump(t, machines)) })
}

// behindAJump returns light machines of an inventory without systemd, reached as root by
// way of another machine.
func behindAJump(t *testing.T, n int) *installation {
	s := install(t, "machines")
	jump := s.Machine(lab.Spec{Name: "jump"})
	var inventory strings.Builder
	for i := range n {
		m := s.Machine(lab.Spec{Name: fmt.Sprintf("behind%d", i+1)})
		s.machines[m.Addr.String()] = m
		fmt.Fprintf(&inventory, "    %s name=rack1-%d\n", site.Entry(m), i+1)
	}
	s.importExample("machines", "hardwaretypes", "imagetypes")
	b, err := os.ReadFile("../../examples/machines/providers/machines.yaml")
	if err != nil {
		t.Fatal(err)
	}
	provider, _, _ := strings.Cut(string(b), "  inventory: |\n")
	kind, key, _ := strings.Cut(strings.TrimSpace(string(gossh.MarshalAuthorizedKey(jump.HostKey))), " ")
	s.Define("machines.yaml", fmt.Sprintf("kind: provider\n%s  ssh_jump: [{address: %s, ssh-auth: {user: root, identityfile: %s}, "+
		"ssh_host_keys: {%s: %s}}]\n  inventory: |\n%s",
		provider, jump.Addr, site.KeyFile, kind, key, inventory.String()))
	s.created = func() {
		out, err := jump.Run(s.Context(), "ss", "-Htn", "state", "established", "dport", "=", ":22")
		if err != nil || strings.TrimSpace(out) == "" {
			t.Errorf("nothing goes by way of the jump host: %q %v", out, err)
		}
	}
	return s
}
