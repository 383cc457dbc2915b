package hosts

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	gossh "golang.org/x/crypto/ssh"

	"github.com/coopr/coopr/plugins/provider/providertest"
	"github.com/coopr/coopr/plugins/remote/ssh"
	"github.com/coopr/coopr/plugins/sdk"
	"github.com/coopr/coopr/testing/lab"
)

func TestMain(m *testing.M) {
	lab.Enter()
	goleak.VerifyTestMain(m)
}

// site is a provider with an inventory of light machines.
type site struct {
	*Provider
	t        *testing.T
	lab      *lab.Lab
	machines map[string]*lab.Machine // by address
	fields   map[string]any
}

func newSite(t *testing.T, n int, extra func(i int) string) *site {
	s := &site{t: t, lab: lab.New(t), machines: map[string]*lab.Machine{}}
	var lines []string
	for i := range n {
		m, err := s.lab.Start(t.Context(), lab.Spec{Name: fmt.Sprintf("h%d", i)})
		if err == nil {
			err = m.WaitSSH(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		s.machines[m.Addr.String()] = m
		key := strings.Replace(strings.TrimSpace(string(gossh.MarshalAuthorizedKey(m.HostKey))), " ", ":", 1)
		line := m.Addr.String() + " hostkey=" + key
		if extra != nil {
			line += " " + extra(i)
		}
		lines = append(lines, line)
	}
	s.Provider = New(nil)
	t.Cleanup(s.Close)
	s.fields = map[string]any{"ssh_user": "debian", "ssh_private_key": string(s.lab.Key()),
		"inventory": "# the laboratory\n" + strings.Join(lines, "\n")}
	return s
}

func (s *site) node(id string) *providertest.Node { return providertest.New(s.t, s.fields, id) }

func (s *site) listed() map[string]string {
	s.t.Helper()
	return providertest.Listed(s.t, s, s.fields)
}

// TestLife checks that machines are handed out, each once, used, released in a clean state, and
// handed out again.
func TestLife(t *testing.T) {
	s := newSite(t, 3, nil)
	s.fields["reset"] = "#!/bin/sh -e\necho cleaning for $COOPR_NODE\nrm -rf /srv/data"
	var nodes []*providertest.Node
	var wg sync.WaitGroup
	for i := range 3 {
		n := s.node(fmt.Sprintf("n%d", i))
		nodes = append(nodes, n)
		wg.Go(func() { n.Must("CREATE", s.Create) })
	}
	wg.Wait()
	want := map[string]string{}
	for _, n := range nodes {
		n.Must("CONFIRM", s.Confirm)
		want[n.ID] = n.ProviderID()
		if s.machines[n.ProviderID()] == nil {
			t.Errorf("node %s has machine %q", n.ID, n.ProviderID())
		}
	}
	if got := s.listed(); !maps.Equal(got, want) || len(got) != 3 {
		t.Errorf("listed %v, made %v", got, want)
	}
	over := s.node("n3")
	if err := over.Do("CREATE", s.Create); err == nil || !strings.Contains(err.Error(), "of 3, 3 are in use") {
		t.Errorf("one too many: %v", err)
	}
	// A repeated create finds the node's machine, as does an observation of an earlier attempt.
	again := s.node("n1")
	again.Must("CREATE", s.Create)
	seen := s.node("n1")
	seen.Must("CREATE", s.Observe)
	if again.ProviderID() != want["n1"] || seen.ProviderID() != want["n1"] {
		t.Errorf("n1 is %s, then %s, observed %s", want["n1"], again.ProviderID(), seen.ProviderID())
	}
	if err := over.Do("CREATE", s.Observe); !errors.Is(err, sdk.ErrNotFound) {
		t.Errorf("observe what is not there: %v", err)
	}

	m := s.machines[want["n1"]]
	if _, err := m.Run(t.Context(), "mkdir", "-p", "/srv/data", "/var/lib/coopr/.coopr/x"); err != nil {
		t.Fatal(err)
	}
	nodes[1].Must("DELETE", s.Delete)
	if log := nodes[1].Log(); !strings.Contains(log, "cleaning for n1") || !strings.Contains(log, "is released") {
		t.Error(log)
	}
	if out, err := m.Run(t.Context(), "sh", "-c", "ls -d /srv/data /var/lib/coopr 2>/dev/null; true"); err != nil || out != "" {
		t.Errorf("left on the machine: %q %v", out, err)
	}
	nodes[1].Must("DELETE", s.Delete)
	over.Must("CREATE", s.Create)
	if over.ProviderID() != want["n1"] {
		t.Errorf("n3 has %s instead of the free %s", over.ProviderID(), want["n1"])
	}
	// A delete for another node, by mistake or late, changes nothing.
	nodes[1].Must("DELETE", s.Delete)
	if err := nodes[1].Do("CONFIRM", s.Confirm); err == nil || !strings.Contains(err.Error(), "no longer claimed") {
		t.Errorf("confirm what was given back: %v", err)
	}
	over.Must("CONFIRM", s.Confirm)
	// A delete without the name of the machine.
	over.Results = map[string]any{}
	over.Must("DELETE", s.Delete)
	if got := s.listed(); len(got) != 2 {
		t.Errorf("listed %v", got)
	}
}

// TestRefused checks that a machine whose reset fails is not handed out until a person has cleared
// it.
func TestRefused(t *testing.T) {
	s := newSite(t, 1, nil)
	s.fields["reset"] = "#!/bin/sh\nexit 4"
	n := s.node("n0")
	n.Must("CREATE", s.Create)
	n.Must("DELETE", s.Delete)
	if got := s.listed(); len(got) != 0 {
		t.Errorf("listed %v", got)
	}
	if err := n.Do("CREATE", s.Create); err == nil || !strings.Contains(err.Error(), "set aside") {
		t.Errorf("a refused machine: %v", err)
	}
	for _, m := range s.machines {
		if _, err := m.Run(t.Context(), "rm", "/var/lib/coopr/claim.json"); err != nil {
			t.Fatal(err)
		}
	}
	n.Must("CREATE", s.Create)
}

// TestTrouble checks that unreachable machines are skipped, that a machine of another node is not
// touched, and that a second claim of a node is released.
func TestTrouble(t *testing.T) {
	s := newSite(t, 3, func(i int) string { return fmt.Sprintf("name=m%d flavor=%s", i, []string{"big", "small", "small"}[i]) })
	s.pool.Close()
	s.pool = ssh.New(ssh.Config{DialTimeout: 5 * time.Second, Answer: 10 * time.Second})
	byName := func(name string) *lab.Machine {
		for _, m := range s.machines {
			if m.Name == strings.Replace(name, "m", "h", 1) {
				return m
			}
		}
		t.Fatal("no machine " + name)
		return nil
	}
	small := s.node("n0")
	small.Flavor = "small"
	small.Must("CREATE", s.Create)
	first := small.ProviderID()
	small.Must("DELETE", s.Delete)
	if err := byName(first).Crash(); err != nil {
		t.Fatal(err)
	}
	small.Must("CREATE", s.Create)
	if small.ProviderID() == first || small.ProviderID() == "m0" {
		t.Errorf("node on %s, first on %s", small.ProviderID(), first)
	}
	// Reachable machines are listed, with an error for the others.
	seenNow := 0
	err := s.List(t.Context(), sdk.ListRequest{Fields: s.fields, Tenant: "t"}, func(sdk.Resource) error { seenNow++; return nil })
	if err == nil || !strings.Contains(err.Error(), "1 of 3 machines") || seenNow != 1 {
		t.Errorf("listed %d: %v", seenNow, err)
	}
	if err := byName(first).Boot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := byName(first).WaitSSH(t.Context()); err != nil {
		t.Fatal(err)
	}
	// An older attempt whose answer was lost: a second claim.
	set, _ := parse(s.fields)
	for i := range set.machines {
		if set.machines[i].Name == first {
			if _, held, _, err := s.try(t.Context(), set, &set.machines[i],
				&claim{Tenant: "t", Cluster: "c", Node: "n0", Fence: 1 << 40, Task: small.Task("CREATE").ID}); err != nil || held.Node != "n0" {
				t.Fatal(held, err)
			}
		}
	}
	seen := s.node("n0")
	seen.Must("CREATE", s.Observe)
	if got := s.listed(); len(got) != 1 || got["n0"] != first || seen.ProviderID() != first {
		t.Errorf("listed %v, observed %s", got, seen.ProviderID())
	}
	// Another machine has the address: nothing is sent to it.
	key := strings.Fields(string(gossh.MarshalAuthorizedKey(byName("m0").HostKey)))
	s.fields["inventory"] = byName("m1").Addr.String() + " flavor=big hostkey=" + key[0] + ":" + key[1]
	wrong := s.node("n9")
	wrong.Flavor = "big"
	if err := wrong.Do("CREATE", s.Create); err == nil || !errors.Is(err, ssh.ErrHostKey) {
		t.Errorf("a wrong host key: %v", err)
	}
}

// TestFields checks that all faults are reported together.
func TestFields(t *testing.T) {
	_, faults := parse(map[string]any{
		"inventory": []any{"10.0.0.1", "10.0.0.1", "10.0.0.2 colour=red", map[string]any{"address": "a", "port": 70000}, 3,
			"10.0.0.3 hostkey=nonsense", " x=y"},
		"ssh_port": "many", "ssh_private_key": "no key", "reset": "rm -rf /", "ssh_dir": "here",
	})
	var paths []string
	for _, f := range faults {
		paths = append(paths, f.Path)
	}
	want := "ssh_private_key ssh_dir reset ssh_port inventory[1] inventory[2] inventory[3] inventory[4] inventory[5].hostkey inventory[6]"
	if got := strings.Join(paths, " "); got != want {
		t.Errorf("%s\n%v", got, faults)
	}
	s, faults := parse(map[string]any{"ssh_password": "p", "ssh_port": 2222.0,
		"inventory": "10.0.0.1 internal=192.168.0.1 flavor=big # first\n\n# none\ngate.example port=22 name=gate"})
	if len(faults) > 0 || len(s.machines) != 2 ||
		s.machines[0] != (machine{Name: "10.0.0.1", Address: "10.0.0.1", Internal: "192.168.0.1", Port: 2222, Flavor: "big"}) ||
		s.machines[1] != (machine{Name: "gate", Address: "gate.example", Internal: "gate.example", Port: 22}) {
		t.Errorf("%+v %v", s, faults)
	}
	if _, faults := parse(map[string]any{"inventory": "# nothing\n"}); len(faults) != 2 {
		t.Error(faults)
	}
}
