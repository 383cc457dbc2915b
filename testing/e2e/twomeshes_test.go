package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coopr/coopr/rpc/client"
)

// has waits until this agent answers with a tenant of this name.
func (a *agent) has(tenant string) {
	a.mesh.t.Helper()
	a.mesh.await(fmt.Sprintf("tenant %s at agent %s", tenant, a.name), func() error {
		s := a.mesh.coopr("--addr", "http://"+a.addr(httpPort), "tenant", "list", "-o", "json")
		if s.code != 0 || !strings.Contains(s.out, `"`+tenant+`"`) {
			return fmt.Errorf("exit code %d: %s%s", s.code, s.out, s.err)
		}
		return nil
	})
}

func (a *agent) logs(words string) {
	a.mesh.t.Helper()
	a.mesh.await(fmt.Sprintf("%q in the log of agent %s", words, a.name), func() error {
		if strings.Contains(a.tail(1000), words) {
			return nil
		}
		return errNotYet
	})
}

// TestSecondAgentKeepsTheMesh joins an agent in dev mode to a running one by hand: it takes part,
// and nothing is lost. An agent with the state of one mesh is never admitted to another.
func TestSecondAgentKeepsTheMesh(t *testing.T) {
	t.Parallel()
	m := newMesh(t, "first")
	first := m.agents[0]
	alone := func(a *agent, more ...string) {
		if err := os.MkdirAll(a.data, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(a.data, "dev-token"), []byte(m.token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		a.run(append([]string{"--dev", "--name", a.name, "--data-dir", a.data, "--http-addr", a.addr(httpPort),
			"--peer-addr", a.addr(peerPort), "--gossip-addr", a.addr(gossipPort), "--providers-local-root", m.nodes()}, more...)...)
	}
	alone(first)
	m.ready()
	m.must("tenant", "put", "mine")
	second := m.add("second")
	alone(second, "--join", first.addr(gossipPort))
	m.ready()
	first.has("mine")
	second.has("mine")
	m.await("the second agent to be a member", func() error {
		if peers, err := m.api(first).RaftPeers(m.context()); err != nil || len(peers) != 2 {
			return fmt.Errorf("%+v, %v", peers, err)
		}
		return nil
	})
	m.agents = m.agents[:2]
	third := m.add("third") // it has begun a mesh of its own
	alone(third)
	third.has("default")
	if s := m.coopr("--addr", "http://"+third.addr(httpPort), "tenant", "put", "theirs"); s.code != 0 {
		t.Fatal(s.out, s.err)
	}
	third.stop()
	alone(third, "--join", first.addr(gossipPort))
	first.logs("is not admitted to the Raft group: its data directory belongs to another mesh")
	third.logs("another mesh")
	third.has("theirs")
	first.has("mine")
	if s := m.coopr("--addr", "http://"+first.addr(httpPort), "tenant", "list", "-o", "json"); strings.Contains(s.out, `"theirs"`) {
		t.Errorf("the state of one mesh is in the other: %s", s.out)
	}
}

// TestDevAgentsOfTwoUsers starts agents in dev mode of one user, which share a token, and one of another
// user, whose token must not give it power over the others.
func TestDevAgentsOfTwoUsers(t *testing.T) {
	t.Parallel()
	m := newMesh(t, "first", "second")
	dev := func(a *agent, more ...string) {
		a.run(append([]string{"--dev", "--name", a.name, "--data-dir", a.data, "--http-addr", a.addr(httpPort),
			"--peer-addr", a.addr(peerPort), "--gossip-addr", a.addr(gossipPort), "--providers-local-root", m.nodes()}, more...)...)
	}
	token := func(file string) string {
		var out string
		m.await("a token in "+file, func() error {
			b, err := os.ReadFile(file)
			if out = strings.TrimSpace(string(b)); err == nil && out == "" {
				err = errNotYet
			}
			return err
		})
		return out
	}
	first, second := m.agents[0], m.agents[1]
	dev(first)
	m.token = token(filepath.Join(m.dir, ".config", "coopr", "dev-token"))
	dev(second, "--join", first.addr(gossipPort))
	m.ready()
	m.await("the second agent to be a member", func() error {
		if peers, err := m.api(second).RaftPeers(m.context()); err != nil || len(peers) != 2 {
			return fmt.Errorf("%+v, %v", peers, err)
		}
		return nil
	})
	if s := m.coopr("whoami"); s.code != 0 || !strings.Contains(s.out, "with the role superadmin in tenant default") {
		t.Errorf("%d: %s%s", s.code, s.out, s.err)
	}
	other := m.add("other")
	other.env = []string{"HOME=" + filepath.Join(m.dir, "other-user")}
	dev(other, "--join", first.addr(gossipPort))
	theirs := token(filepath.Join(other.data, "dev-token"))
	if theirs == m.token {
		t.Fatal("two users have one token")
	}
	other.logs("no agent can be joined yet")
	for _, a := range []*agent{first, second} {
		c, err := client.New(client.Config{Addresses: []string{"http://" + a.addr(httpPort)}, Token: theirs})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Self(m.context()); !errors.Is(err, client.ErrUnauthorized) {
			t.Errorf("agent %s about the token of another user: %v", a.name, err)
		}
	}
	members, err := m.api(first).Members(m.context())
	if err != nil || len(members) != 2 {
		t.Errorf("%+v, %v", members, err)
	}
	other.stop()
	m.agents = m.agents[:2]
}
