package examples

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/client"
	"github.com/coopr/coopr/testing/lab"
	"github.com/coopr/coopr/testing/openstack"
	"github.com/coopr/coopr/testing/site"
)

// installation is an agent, and machines that it may use.
type installation struct {
	*site.Site
	machines map[string]*lab.Machine // of provider "machines", by address
	provider string
	engine   *lab.Engine // of provider "containers"
	created  func()      // looks after a cluster was created; nil: nothing
	cloud    *cloud      // of provider "servers"
}

// kinds are the machines that every example runs on, by their provider's name.
var kinds = map[string]func(t *testing.T, machines int) *installation{"machines": onMachines, "containers": onContainers,
	"servers": onServers}

// onEach runs a test on machines of every kind, with as many as it may need; in CI
// on machines over SSH alone; on servers alone where there is an OpenStack.
func onEach(t *testing.T, machines int, test func(t *testing.T, s *installation)) {
	for name, start := range kinds {
		if !every && name != "machines" || (name == "servers") != openstack.Wanted() {
			continue
		}
		t.Run(name, func(t *testing.T) { test(t, start(t, machines)) })
	}
}

func install(t *testing.T, provider string) *installation {
	return &installation{Site: site.New(t, programs, site.Config{}), provider: provider, machines: map[string]*lab.Machine{}}
}

// onMachines returns light machines under systemd, in an inventory.
func onMachines(t *testing.T, n int) *installation {
	s := install(t, "machines")
	var inventory strings.Builder
	for i := range n {
		m := s.Machine(lab.Spec{Name: fmt.Sprintf("machine%d", i+1), Systemd: true})
		s.machines[m.Addr.String()] = m
		inventory.WriteString("    " + site.Entry(m) + "\n")
	}
	s.importExample("machines", "hardwaretypes", "imagetypes")
	// The example's provider, with the lab's machines and user.
	b, err := os.ReadFile("../../examples/machines/providers/machines.yaml")
	if err != nil {
		t.Fatal(err)
	}
	provider, _, _ := strings.Cut(string(b), "    192.0.2.11\n")
	s.Define("machines.yaml", "kind: provider\n"+strings.Replace(provider, "ssh_user: root", "ssh_user: debian", 1)+inventory.String())
	return s
}

// onContainers returns a Docker engine, which makes as many containers as are wanted.
func onContainers(t *testing.T, _ int) *installation {
	s := install(t, "containers")
	s.engine = s.Lab.Engine(t)
	if err := s.Lab.Import(s.Context(), s.engine, "coopr-node:1"); err != nil {
		t.Fatal(err)
	}
	s.importExample("machines", "providers", "hardwaretypes", "imagetypes")
	s.Define("containers.yaml", "kind: provider\nname: containers\nprovidertype: docker\nprovisioner: {network: bridge, engine: \""+
		s.engine.Host+"\"}\n")
	return s
}

// importExample imports folders of an example, as they are.
func (s *installation) importExample(name string, folders ...string) {
	s.T.Helper()
	for _, f := range folders {
		path, err := filepath.Abs(filepath.Join("../../examples", name, f))
		if err != nil {
			s.T.Fatal(err)
		}
		s.Must("import", path)
	}
}

// redefine imports a definition of an example with one thing of it changed.
func (s *installation) redefine(path, old, changed string) {
	s.T.Helper()
	b, err := os.ReadFile(filepath.Join("../../examples", path))
	if err != nil {
		s.T.Fatal(err)
	}
	if !strings.Contains(string(b), old) {
		s.T.Fatalf("%s has no %q", path, old)
	}
	kind := strings.TrimSuffix(filepath.Base(filepath.Dir(path)), "s")
	s.Define(filepath.Base(path), "kind: "+kind+"\n"+strings.ReplaceAll(string(b), old, changed))
}

// create makes a cluster of an example's template.
func (s *installation) create(name, template string, nodes int, args ...string) {
	s.T.Helper()
	s.Must(append([]string{"cluster", "create", name, "--template", template, "--nodes", fmt.Sprint(nodes), "--provider", s.provider,
		"--on-failure", "leave", "--yes"}, args...)...)
	if s.created != nil {
		s.created()
	}
}

// plan runs a plan of a cluster's template to its end.
func (s *installation) plan(cluster, name string, args ...string) {
	s.T.Helper()
	s.Must(append([]string{"plan", "start", cluster, name}, args...)...)
	s.Await("plan "+name+" to be complete", func() error {
		info, _, err := s.API.Plan(s.Context(), cluster, name, client.Read{})
		if err == nil && info.Status != "COMPLETE" {
			err = errors.New(info.Text(name))
		}
		return err
	})
}

// nodes returns the nodes of a cluster that carry a service.
func (s *installation) nodes(cluster, service string) []model.Node {
	s.T.Helper()
	cl, _, err := s.API.Cluster(s.Context(), cluster, client.Read{})
	if err != nil {
		s.T.Fatal(err)
	}
	return slices.DeleteFunc(cl.Nodes, func(n model.Node) bool { return !slices.Contains(n.Services, service) })
}

// address returns where a node is reached from outside.
func addressOf(n model.Node) string { return n.IPAddresses["access_v4"] }

// login logs in to a machine of the inventory with ssh, as a user who has the key.
func (s *installation) login(cluster string, n model.Node) {
	s.T.Helper()
	if _, err := exec.LookPath("ssh"); err != nil || s.machines[addressOf(n)] == nil {
		return
	}
	key := filepath.Join(s.T.TempDir(), "key")
	if err := os.WriteFile(key, s.Lab.Key(), 0o600); err != nil {
		s.T.Fatal(err)
	}
	got := s.Must("node", "ssh", cluster+"/"+n.ShortName(), "--", "-F", "none", "-i", key, "-l", "debian", "-o", "BatchMode=yes",
		"id -un; hostname")
	if want := "debian\n" + s.machines[addressOf(n)].Name + "\n"; got != want {
		s.T.Errorf("a login on %s: %q, not %q", n.Hostname, got, want)
	}
}

// interrupted does something that installs packages on a machine without a node of a cluster, and kills dpkg there in
// mid-work.
func (s *installation) interrupted(cluster string, do func()) {
	s.T.Helper()
	cl, _, err := s.API.Cluster(s.Context(), cluster, client.Read{})
	if err != nil {
		s.T.Fatal(err)
	}
	var all sync.WaitGroup
	var killed atomic.Bool
	ctx, end := context.WithCancel(s.Context())
	defer end()
	for address, m := range s.machines {
		if slices.ContainsFunc(cl.Nodes, func(n model.Node) bool { return addressOf(n) == address }) {
			continue
		}
		all.Go(func() {
			tick := time.NewTicker(5 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				// The folder holds the work that dpkg has begun and not finished. A process on the machine would take time from it.
				begun, _ := os.ReadDir(fmt.Sprintf("/proc/%d/root/var/lib/dpkg/updates", m.PID()))
				if len(begun) == 0 {
					continue
				}
				if _, err := m.Run(s.Context(), "pkill", "-KILL", "-x", "dpkg"); err == nil {
					killed.Store(true)
					end()
				}
			}
		})
	}
	do()
	end()
	all.Wait()
	if len(s.machines) > 0 && !killed.Load() {
		s.T.Errorf("no install on a machine without a node of %s was interrupted", cluster)
	}
}

// lose removes a node's machine without informing the provider or the mesh: a container or a server's machine
// for good, a machine of the inventory by a power cut. found brings such a machine back, because the provider
// hosts does not give up a machine that it cannot reach.
func (s *installation) lose(n model.Node) (found func()) {
	s.T.Helper()
	if s.engine != nil {
		if killed, err := s.engine.Kill(s.Context(), "coopr.node="+n.ID); err != nil || killed != 1 {
			s.T.Fatalf("%d containers of node %s killed: %v", killed, n.ID, err)
		}
		return func() {}
	}
	if s.cloud != nil {
		if err := s.cloud.guests.Lose(serverOf(n)); err != nil {
			s.T.Fatal(err)
		}
		return func() {}
	}
	m := s.machines[addressOf(n)]
	if err := m.Crash(); err != nil {
		s.T.Fatal(err)
	}
	return func() {
		s.T.Helper()
		err := m.Boot(s.Context())
		if err == nil {
			err = m.WaitSSH(s.Context())
		}
		if err != nil {
			s.T.Fatal(err)
		}
	}
}
