package examples

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	gossh "golang.org/x/crypto/ssh"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/client"
	"github.com/coopr/coopr/testing/lab"
)

// patience is how long a test waits for anything before it gives up. It
// guards against waiting for ever; nothing is said about how fast things are.
const patience = 5 * time.Minute

// site is an installation: an agent, and machines that it may use.
type site struct {
	t        *testing.T
	lab      *lab.Lab
	machines map[string]*lab.Machine // of provider "machines", by address
	provider string
	engine   *lab.Engine // of provider "containers"
	bin, dir string
	agent    *exec.Cmd
	ended    chan struct{} // closed when the agent has ended
	err      error         // how; read after ended is closed
	api      *client.Client
}

// kinds are the machines that every example runs on, by their provider's name.
var kinds = map[string]func(t *testing.T, machines int) *site{"machines": onMachines, "containers": onContainers}

// onEach runs a test on machines of every kind, with as many as it may need; in CI
// on machines over SSH alone.
func onEach(t *testing.T, machines int, test func(s *site)) {
	for name, start := range kinds {
		if !every && name != "machines" {
			continue
		}
		t.Run(name, func(t *testing.T) { test(start(t, machines)) })
	}
}

// newSite starts an agent.
func newSite(t *testing.T, provider string) *site {
	s := &site{t: t, lab: lab.New(t), provider: provider, dir: t.TempDir(), machines: map[string]*lab.Machine{}, ended: make(chan struct{})}
	var err error
	if s.bin, err = programs(); err != nil {
		t.Fatal(err)
	}
	keys := filepath.Join(s.dir, "keys")
	settings := fmt.Sprintf("data_dir: %s\nplugin_dir: %s\nplugins:\n", filepath.Join(s.dir, "data"), s.bin)
	for _, name := range []string{"provider-hosts", "automator-shell"} {
		settings += fmt.Sprintf("  - {name: %s, settings: {keys: [%s]}}\n", name, keys)
	}
	if err := errors.Join(os.Mkdir(keys, 0o700), os.WriteFile(filepath.Join(keys, "machines"), s.lab.Key(), 0o600),
		os.WriteFile(filepath.Join(s.dir, "agent.yaml"), []byte(settings), 0o600)); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(s.dir, "agent.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	s.agent = exec.Command(filepath.Join(s.bin, "coopr-agent"), "--dev", "--config", filepath.Join(s.dir, "agent.yaml"))
	s.agent.Dir, s.agent.Env, s.agent.Stdout, s.agent.Stderr = s.dir, s.env(), log, log
	if err := s.agent.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		s.err = s.agent.Wait()
		close(s.ended)
	}()
	t.Cleanup(s.end)
	var token []byte
	s.await("the agent's token", func() error {
		token, err = os.ReadFile(filepath.Join(s.dir, "data", "dev-token"))
		return err
	})
	if s.api, err = client.New(client.Config{Addresses: []string{address}, Token: strings.TrimSpace(string(token))}); err != nil {
		t.Fatal(err)
	}
	s.await("the agent to be at work", func() error {
		list, _, err := s.api.Agents(s.context(), client.Read{})
		if err == nil && (len(list) == 0 || len(list[0].Plugins) < 2) {
			err = errors.New("it is not yet")
		}
		return err
	})
	return s
}

// address is the agent's; the arena is ours alone.
const address = "127.0.0.1:55054"

func (s *site) env() []string {
	return []string{"HOME=" + s.dir, "TMPDIR=" + s.dir, "PATH=" + s.bin + ":" + os.Getenv("PATH")}
}

// end stops the agent, and shows its log where the test failed.
func (s *site) end() {
	if s.api != nil {
		s.api.Close()
	}
	_ = s.agent.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-s.ended:
	case <-time.After(time.Minute):
		s.t.Error("the agent does not stop")
		_ = s.agent.Process.Kill()
		<-s.ended
	}
	if s.err != nil {
		s.t.Errorf("the agent ended with %v", s.err)
	}
	if s.t.Failed() {
		b, _ := os.ReadFile(filepath.Join(s.dir, "agent.log"))
		s.t.Logf("---- the end of the agent's log:\n%s", b[max(0, len(b)-8000):])
	}
}

// onMachines gives a site with light machines under systemd, in an inventory.
func onMachines(t *testing.T, n int) *site {
	s := newSite(t, "machines")
	var inventory strings.Builder
	for i := range n {
		m, err := s.lab.Start(s.context(), lab.Spec{Name: fmt.Sprintf("machine%d", i+1), Systemd: true})
		if err == nil {
			err = m.WaitSSH(s.context())
		}
		if err != nil {
			t.Fatal(err)
		}
		s.machines[m.Addr.String()] = m
		key := strings.Replace(strings.TrimSpace(string(gossh.MarshalAuthorizedKey(m.HostKey))), " ", ":", 1)
		fmt.Fprintf(&inventory, "    %s hostkey=%s\n", m.Addr, key)
	}
	s.importExample("machines", "hardwaretypes", "imagetypes")
	// The example's provider, with the lab's machines and user.
	b, err := os.ReadFile("../../examples/machines/providers/machines.yaml")
	if err != nil {
		t.Fatal(err)
	}
	provider, _, _ := strings.Cut(string(b), "    192.0.2.11\n")
	s.define("machines.yaml", "kind: provider\n"+strings.Replace(provider, "ssh_user: root", "ssh_user: debian", 1)+inventory.String())
	return s
}

// onContainers gives a site with a Docker engine, which makes as many containers
// as are wanted.
func onContainers(t *testing.T, _ int) *site {
	s := newSite(t, "containers")
	s.engine = s.lab.Engine(t)
	if err := s.lab.Import(s.context(), s.engine, "coopr-node:1"); err != nil {
		t.Fatal(err)
	}
	s.importExample("machines", "providers", "hardwaretypes", "imagetypes")
	s.define("containers.yaml", "kind: provider\nname: containers\nprovidertype: docker\nprovisioner: {network: bridge, engine: \""+s.engine.Host+"\"}\n")
	return s
}

// define imports definitions given as text.
func (s *site) define(name, text string) {
	s.t.Helper()
	file := filepath.Join(s.dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.must("import", file)
}

// importExample imports folders of an example, as they are.
func (s *site) importExample(name string, folders ...string) {
	s.t.Helper()
	for _, f := range folders {
		path, err := filepath.Abs(filepath.Join("../../examples", name, f))
		if err != nil {
			s.t.Fatal(err)
		}
		s.must("import", path)
	}
}

// redefine imports a definition of an example with one thing of it changed.
func (s *site) redefine(path, old, changed string) {
	s.t.Helper()
	b, err := os.ReadFile(filepath.Join("../../examples", path))
	if err != nil {
		s.t.Fatal(err)
	}
	if !strings.Contains(string(b), old) {
		s.t.Fatalf("%s has no %q", path, old)
	}
	kind := strings.TrimSuffix(filepath.Base(filepath.Dir(path)), "s")
	s.define(filepath.Base(path), "kind: "+kind+"\n"+strings.ReplaceAll(string(b), old, changed))
}

// context ends when a test took too long.
func (s *site) context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	s.t.Cleanup(cancel)
	return ctx
}

// await asks again and again until there is no error any more.
func (s *site) await(what string, ask func() error) {
	s.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	over := time.After(patience)
	for {
		err := ask()
		if err == nil {
			return
		}
		select {
		case <-over:
			s.t.Fatalf("waited for %s: %v", what, err)
		case <-s.ended:
			s.t.Fatalf("waited for %s: the agent has ended", what)
		case <-tick.C:
		}
	}
}

// coopr runs the command.
func (s *site) coopr(args ...string) (out string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, "coopr"), args...)
	var both bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, &both, &both
	token, err := os.ReadFile(filepath.Join(s.dir, "data", "dev-token"))
	if err != nil {
		return "", err
	}
	cmd.Env = append(s.env(), "COOPR_ADDR="+address, "COOPR_TOKEN="+strings.TrimSpace(string(token)))
	err = cmd.Run()
	return both.String(), err
}

// must is coopr for commands that succeed. Of an operation that did not, it shows
// what its tasks said.
func (s *site) must(args ...string) string {
	s.t.Helper()
	out, err := s.coopr(args...)
	if err != nil {
		if len(args) > 2 && args[0] == "cluster" {
			if cl, _, err := s.api.Cluster(s.context(), args[2], client.Read{}); err == nil {
				log, _ := s.coopr("operation", "log", cl.Operation, "--status", "failed")
				s.t.Logf("---- tasks that failed:\n%s", log)
			}
		}
		s.t.Fatalf("coopr %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// create makes a cluster of an example's template.
func (s *site) create(name, template string, nodes int, args ...string) {
	s.t.Helper()
	s.must(append([]string{"cluster", "create", name, "--template", template, "--nodes", fmt.Sprint(nodes), "--provider", s.provider, "--on-failure", "leave", "--yes"}, args...)...)
}

// plan runs a plan of a cluster's template to its end.
func (s *site) plan(cluster, name string, args ...string) {
	s.t.Helper()
	s.must(append([]string{"plan", "start", cluster, name}, args...)...)
	s.await("plan "+name+" to be complete", func() error {
		info, _, err := s.api.Plan(s.context(), cluster, name, client.Read{})
		if err == nil && info.Status != "COMPLETE" {
			err = errors.New(info.Text(name))
		}
		return err
	})
}

// nodes gives those of a cluster that carry a service.
func (s *site) nodes(cluster, service string) []model.Node {
	s.t.Helper()
	cl, _, err := s.api.Cluster(s.context(), cluster, client.Read{})
	if err != nil {
		s.t.Fatal(err)
	}
	return slices.DeleteFunc(cl.Nodes, func(n model.Node) bool { return !slices.Contains(n.Services, service) })
}

// address gives where a node is reached from outside.
func addressOf(n model.Node) string { return n.IPAddresses["access_v4"] }

// lose takes a node's machine away without a word to anybody: a container for good,
// a machine of the inventory by a power cut. found brings a machine back, since the
// provider hosts does not give up one that it cannot reach.
func (s *site) lose(n model.Node) (found func()) {
	s.t.Helper()
	if s.engine != nil {
		if killed, err := s.engine.Kill(s.context(), "coopr.node="+n.ID); err != nil || killed != 1 {
			s.t.Fatalf("%d containers of node %s killed: %v", killed, n.ID, err)
		}
		return func() {}
	}
	m := s.machines[addressOf(n)]
	if err := m.Crash(); err != nil {
		s.t.Fatal(err)
	}
	return func() {
		s.t.Helper()
		err := m.Boot(s.context())
		if err == nil {
			err = m.WaitSSH(s.context())
		}
		if err != nil {
			s.t.Fatal(err)
		}
	}
}
