package hosts

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"
	"github.com/coopr/coopr/testing/lab"
	"github.com/coopr/coopr/testing/site"
)

var programs = site.NewPrograms("./plugins/automator/coopr-automator-shell", "./plugins/provider/coopr-provider-hosts")

func TestMain(m *testing.M) { programs.Main(m) }

// mesh holds control hosts and machines for nodes.
type mesh struct {
	t     *testing.T
	ctx   context.Context
	lab   *lab.Lab
	dir   string
	layer string // what every control host has on its disk before it is set up
	hosts []*lab.Machine
	nodes []*lab.Machine
	token string
	ca    string         // file
	api   *client.Client // asks whichever agent answers
}

// newMesh sets up control hosts and starts machines for nodes.
func newMesh(t *testing.T, hosts, nodes int) *mesh {
	ctx, cancel := context.WithTimeout(context.Background(), 2*site.Patience)
	t.Cleanup(cancel)
	m := &mesh{t: t, ctx: ctx, lab: lab.New(t), dir: t.TempDir()}
	m.fill(programs.Build(t))
	for i := range nodes {
		m.nodes = append(m.nodes, m.start(lab.Spec{Name: fmt.Sprintf("node%d", i+1)}))
	}
	for i := range hosts {
		m.hosts = append(m.hosts, m.start(lab.Spec{Name: fmt.Sprintf("control%d", i+1), Systemd: true, Layers: []string{m.layer}}))
	}
	t.Cleanup(m.tell)
	m.found()
	m.setUp(m.hosts...)
	m.token, m.ca = strings.TrimSpace(m.born("root-token")), filepath.Join(m.dir, "birth", "ca.pem")
	var err error
	if m.api, err = client.New(client.Config{Addresses: urls(m.hosts), Token: m.token, CACert: m.ca}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.api.Close)
	m.vote()
	return m
}

// fill makes the layer: the folders that Vagrant copies.
func (m *mesh) fill(bin string) {
	m.t.Helper()
	m.layer = filepath.Join(m.dir, "layer")
	if err := errors.Join(
		os.CopyFS(filepath.Join(m.layer, "opt/coopr/bin"), os.DirFS(bin)),
		os.CopyFS(filepath.Join(m.layer, "opt/coopr/examples"), os.DirFS("../../examples")),
	); err != nil {
		m.t.Fatal(err)
	}
}

// found creates the identity of the mesh, as the Vagrantfile does.
func (m *mesh) found() {
	m.t.Helper()
	init := exec.CommandContext(m.ctx, filepath.Join(m.layer, "opt/coopr/bin/coopr-agent"), "init", "--out", filepath.Join(m.dir, "birth"),
		"--peer", m.hosts[0].Addr.String()+":55055", "--voters", fmt.Sprint(len(m.hosts)-1))
	if out, err := init.CombinedOutput(); err != nil {
		m.t.Fatalf("%v: %s", err, out)
	}
}

// vote waits until three agents vote.
func (m *mesh) vote() {
	m.t.Helper()
	m.await("three to vote", func() error {
		peers, err := m.api.RaftPeers(m.ctx)
		voters := 0
		for _, p := range peers {
			if p.Voter {
				voters++
			}
		}
		if err == nil && voters != 3 {
			err = fmt.Errorf("%+v", peers)
		}
		return err
	})
}

// born returns a file of the mesh's identity.
func (m *mesh) born(name string) string {
	m.t.Helper()
	content, err := os.ReadFile(filepath.Join(m.dir, "birth", name))
	if err != nil {
		m.t.Fatal(err)
	}
	return string(content)
}

// secrets returns the shell's arguments that copy to a host what the Vagrantfile copies.
func (m *mesh) secrets(h *lab.Machine) []string {
	out := []string{"/bin/sh", "-c", `umask 077; mkdir -p /tmp/coopr-secrets; while [ $# -gt 0 ]; do printf %s "$2" >"/tmp/coopr-secrets/$1"; shift 2; done`, "sh",
		"ca.pem", m.born("ca.pem"), "root-token", m.born("root-token")}
	if h == m.hosts[0] {
		return append(out, "identity", m.born("identity"))
	}
	return append(out, "voter-token", m.born("voter-token"))
}

func (m *mesh) start(spec lab.Spec) *lab.Machine {
	m.t.Helper()
	machine, err := m.lab.Start(m.ctx, spec)
	if err == nil {
		err = machine.WaitSSH(m.ctx)
	}
	if err != nil {
		m.t.Fatal(err)
	}
	return machine
}

// setUp sets up hosts as "vagrant up" sets up its machines.
func (m *mesh) setUp(hosts ...*lab.Machine) {
	m.t.Helper()
	said := make(chan error, len(hosts))
	for _, h := range hosts {
		go func() {
			_, err := h.Run(m.ctx, m.secrets(h)...)
			if err == nil {
				_, err = h.Run(m.ctx, "/bin/sh", "/opt/coopr/examples/vagrant/provision.sh", h.Addr.String())
			}
			said <- err
		}()
	}
	for range hosts {
		if err := <-said; err != nil {
			m.t.Fatal(err)
		}
	}
}

// tell shows the agents' logs if the test failed.
func (m *mesh) tell() {
	if !m.t.Failed() {
		return
	}
	for _, h := range m.hosts {
		out, err := h.Run(context.Background(), "journalctl", "--no-pager", "--output=cat", "--lines=60", "--unit=coopr-agent")
		m.t.Logf("---- %s (%v):\n%s", h.Name, err, out)
	}
}

func (m *mesh) await(what string, ask func() error) {
	m.t.Helper()
	site.Await(m.t, what, ask)
}

// must runs a command on a machine.
func (m *mesh) must(on *lab.Machine, args ...string) string {
	m.t.Helper()
	out, err := on.Run(m.ctx, args...)
	if err != nil {
		m.t.Fatal(err)
	}
	return out
}

// coopr runs the command, which asks whichever agent answers.
func (m *mesh) coopr(args ...string) string {
	m.t.Helper()
	cmd := exec.CommandContext(m.ctx, filepath.Join(m.layer, "opt/coopr/bin/coopr"), args...)
	cmd.Env = []string{"HOME=" + m.dir, "COOPR_ADDR=" + strings.Join(urls(m.hosts), ","), "COOPR_TOKEN=" + m.token, "COOPR_CACERT=" + m.ca}
	out, err := cmd.CombinedOutput()
	if err != nil {
		m.t.Fatalf("coopr %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// status asks one agent how it sees the mesh.
func (m *mesh) status(of *lab.Machine) (api.AgentStatus, error) {
	c, err := client.New(client.Config{Addresses: urls([]*lab.Machine{of}), Token: m.token, CACert: m.ca, Patience: -1})
	if err != nil {
		return api.AgentStatus{}, err
	}
	defer c.Close()
	return c.Status(m.ctx)
}

// leader waits until hosts agree on a leader that is one of them and ready.
func (m *mesh) leader(among ...*lab.Machine) *lab.Machine {
	m.t.Helper()
	var leads *lab.Machine
	m.await("a leader among "+names(among), func() error {
		leads = nil
		said := map[string]bool{}
		for _, h := range among {
			st, err := m.status(h)
			switch {
			case err != nil:
				return fmt.Errorf("%s: %w", h.Name, err)
			case st.IsLeader && st.LeaderReady:
				leads = h
			}
			said[st.Leader] = true
		}
		if leads == nil || len(said) != 1 {
			return fmt.Errorf("their leaders: %v", said)
		}
		return nil
	})
	return leads
}

// others returns all hosts except some.
func (m *mesh) others(but ...*lab.Machine) []*lab.Machine {
	return slices.DeleteFunc(slices.Clone(m.hosts), func(h *lab.Machine) bool { return slices.Contains(but, h) })
}

func names(machines []*lab.Machine) string {
	var out []string
	for _, h := range machines {
		out = append(out, h.Name)
	}
	return strings.Join(out, ", ")
}

func urls(machines []*lab.Machine) []string {
	var out []string
	for _, h := range machines {
		out = append(out, "https://"+h.Addr.String())
	}
	return out
}

func addresses(machines []*lab.Machine) []netip.Addr {
	var out []netip.Addr
	for _, h := range machines {
		out = append(out, h.Addr)
	}
	return out
}
