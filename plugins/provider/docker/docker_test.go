package docker

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"go.uber.org/goleak"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/provider/providertest"
	"github.com/coopr/coopr/plugins/remote"
	"github.com/coopr/coopr/plugins/remote/ssh"
	"github.com/coopr/coopr/plugins/sdk"
	"github.com/coopr/coopr/testing/lab"
)

func TestMain(m *testing.M) {
	lab.Enter()
	goleak.VerifyTestMain(m)
}

const image = "coopr-node:1"

// site is a provider with a Docker engine of the test.
type site struct {
	*Provider
	t      *testing.T
	fields map[string]any
	engine *client.Client
	keys   string // a folder
}

func newSite(t *testing.T) *site {
	l := lab.New(t)
	e := l.Engine(t)
	if err := l.Import(t.Context(), e, image); err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, fields: map[string]any{"engine": e.Host}, keys: t.TempDir()}
	s.Provider = New(ssh.Keys{s.keys}, nil)
	t.Cleanup(s.Close)
	var err error
	if _, s.engine, err = s.Provider.engine(s.fields); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			s.logs()
		}
	})
	return s
}

// logs logs the output of the containers.
func (s *site) logs() {
	ctx := context.Background()
	all, _ := s.engine.ContainerList(ctx, client.ContainerListOptions{All: true})
	for _, c := range all.Items {
		if r, err := s.engine.ContainerLogs(ctx, c.ID, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true}); err == nil {
			b, _ := io.ReadAll(r)
			r.Close()
			s.t.Logf("%s:\n%s", c.Names, b)
		}
	}
}

func (s *site) node(number int) *providertest.Node {
	n := providertest.New(s.t, maps.Clone(s.fields), fmt.Sprintf("n%d", number))
	n.Number, n.Image = number, image
	return n
}

// on runs a script on a node, as an automator does.
func (s *site) on(n *providertest.Node, script string) string {
	s.t.Helper()
	target, err := ssh.TargetOf(&model.TaskInput{Config: model.TaskConfig{Results: n.Results, IPAddresses: n.IPs}}, s.Provider.keys)
	if err != nil {
		s.t.Fatal(err)
	}
	var out bytes.Buffer
	exit, err := s.pool.Node(target).Run(s.t.Context(),
		remote.Command{Args: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}, Stdout: &out, Stderr: &out})
	if err != nil || exit != (remote.Exit{}) {
		s.t.Fatalf("%s: %v %v %s", script, exit, err, out.String())
	}
	return strings.TrimSpace(out.String())
}

// TestLife checks that containers act as machines, are found by their names, adopted after a lost
// answer, told apart from those of other nodes, and removed.
func TestLife(t *testing.T) {
	s := newSite(t)
	if _, err := s.engine.NetworkCreate(t.Context(), "shop", client.NetworkCreateOptions{Driver: "bridge"}); err != nil {
		t.Fatal(err)
	}
	s.fields["network"] = "shop"
	nodes := []*providertest.Node{s.node(1), s.node(2), s.node(3)}
	nodes[2].Flavor = "0.5x128"
	var wg sync.WaitGroup
	for _, n := range nodes {
		wg.Go(func() {
			n.Must("CREATE", s.Create)
			n.Must("CONFIRM", s.Confirm)
			if got := s.on(n, "hostname; id -un"); got != n.ID+"\nroot" {
				t.Errorf("%s: %q", n.ID, got)
			}
		})
	}
	wg.Wait()
	// They share a network, and reach each other by address and name.
	if got := s.on(nodes[0], "ping -c 1 -W 5 "+nodes[1].IPs["bind_v4"]+" >/dev/null && echo yes; getent hosts "+
		"coopr-c-2 | cut -d' ' -f1"); got != "yes\n"+nodes[1].IPs["bind_v4"] {
		t.Errorf("neighbours: %q", got)
	}
	if c, err := s.engine.ContainerInspect(t.Context(), "coopr-c-3", client.ContainerInspectOptions{}); err != nil ||
		c.Container.HostConfig.Memory != 128<<20 || c.Container.HostConfig.NanoCPUs != 5e8 {
		t.Errorf("limits: %+v %v", c.Container.HostConfig, err)
	}
	want := map[string]string{}
	for _, n := range nodes {
		want[n.ID] = n.ProviderID()
	}
	if got := providertest.Listed(t, s, s.fields); !maps.Equal(got, want) {
		t.Errorf("listed %v, made %v", got, want)
	}

	// The answer of the attempt that created it was lost, together with its key.
	s.on(nodes[1], "echo kept > /kept")
	for name, verb := range map[string]providertest.Verb{"observed": s.Observe, "made again": s.Create} {
		again := s.node(2)
		again.Must("CREATE", verb)
		again.Must("CONFIRM", s.Confirm)
		if again.ProviderID() != want["n2"] || s.on(again, "cat /kept") != "kept" {
			t.Errorf("%s: %s", name, again.ProviderID())
		}
	}
	nobody := s.node(9)
	if err := nobody.Do("CREATE", s.Observe); !errors.Is(err, sdk.ErrNotFound) {
		t.Errorf("observe what is not there: %v", err)
	}

	// A container that was created, but has no keys and was not started.
	half := s.node(4)
	task := half.Task("CREATE")
	if _, err := s.engine.ContainerCreate(t.Context(), client.ContainerCreateOptions{Name: "coopr-c-4", Config: &container.Config{
		Image: image, Entrypoint: []string{"/bin/sh", "-c", defaultCommand},
		Labels: map[string]string{labelNode: task.Node, labelCluster: "c", labelTenant: "t", labelFence: "1"},
	}, HostConfig: &container.HostConfig{NetworkMode: "shop"}}); err != nil {
		t.Fatal(err)
	}
	half.Must("CREATE", s.Observe)
	half.Must("CONFIRM", s.Confirm)
	half.Must("DELETE", s.Delete)

	// A container with the same name that belongs to another node is neither adopted nor removed.
	other := s.node(1)
	other.ID = "somebody-else"
	if err := other.Do("CREATE", s.Create); !errors.Is(err, errAnothers) {
		t.Errorf("another's container: %v", err)
	}
	other.Must("DELETE", s.Delete)
	for range 2 {
		for _, n := range nodes {
			wg.Go(func() { n.Must("DELETE", s.Delete) })
			wg.Go(func() {
				if _, err := s.Delete(t.Context(), s.node(n.Number).Task("DELETE")); err != nil {
					t.Errorf("a second delete at the same time: %v", err)
				}
			})
		}
		wg.Wait()
	}
	if got := providertest.Listed(t, s, s.fields); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
	if err := nodes[0].Do("CONFIRM", s.Confirm); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("confirm what is gone: %v", err)
	}
}

// TestWays checks a given key, an ordinary user and a published port. A restarted container keeps
// its host key and may get another address.
func TestWays(t *testing.T) {
	s := newSite(t)
	private, _, err := newKey()
	if err != nil {
		t.Fatal(err)
	}
	if block, _ := pem.Decode([]byte(private)); block == nil {
		t.Fatal("no key")
	}
	if err := os.WriteFile(filepath.Join(s.keys, "site"), []byte(private), 0o600); err != nil {
		t.Fatal(err)
	}
	s.fields["ssh_user"], s.fields["ssh_identityfile"] = "debian", "site"
	n := s.node(1)
	n.Must("CREATE", s.Create)
	n.Must("CONFIRM", s.Confirm)
	if auth := n.Results["ssh-auth"].(map[string]any); auth["private_key"] != nil || auth["identityfile"] != "site" {
		t.Errorf("results: %v", auth["identityfile"])
	}
	if got := s.on(n, "id -un; stat -c '%U %a' /home/debian/.ssh/authorized_keys"); got != "root\ndebian 600" {
		t.Error(got)
	}
	if _, err := s.engine.ContainerRestart(t.Context(), n.ProviderID(), client.ContainerRestartOptions{}); err != nil {
		t.Fatal(err)
	}
	n.Must("CONFIRM", s.Confirm)
	s.on(n, "true")

	s.fields["publish"] = "127.0.0.1"
	public := s.node(2)
	public.Must("CREATE", s.Create)
	public.Must("CONFIRM", s.Confirm)
	if public.IPs["access_v4"] != "127.0.0.1" || public.IPs["bind_v4"] == "127.0.0.1" || s.on(public, "hostname") != "n2" {
		t.Errorf("published: %v %v", public.IPs, public.Results["ssh_port"])
	}
}

// TestTrouble checks that impossible requests are refused before anything is created, with advice.
func TestTrouble(t *testing.T) {
	s := newSite(t)
	for says, change := range map[string]func(*providertest.Node){
		"no image nothing:9":            func(n *providertest.Node) { n.Image = "nothing:9" },
		"has no image":                  func(n *providertest.Node) { n.Image = "" },
		"docker network create x1":      func(n *providertest.Node) { n.Fields["network"] = "x1" },
		"ssh_identityfile":              func(n *providertest.Node) { n.Fields["ssh_identityfile"] = "missing" },
		"at least 6 MiB":                func(n *providertest.Node) { n.Flavor = "1x1" },
		"cannot be part of a container": func(n *providertest.Node) { n.Cluster = "../c" },
		"must be text":                  func(n *providertest.Node) { n.Fields["network"] = 3 },
		"find container":                func(n *providertest.Node) { n.Fields["engine"] = "unix:///no/such/socket" },
	} {
		n := s.node(1)
		change(n)
		if err := n.Do("CREATE", s.Create); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
	if got := providertest.Listed(t, s, s.fields); len(got) != 0 {
		t.Errorf("made all the same: %v", got)
	}
	// A container whose command ends has no SSH. When CONFIRM is cancelled, it reports what it
	// knows.
	s.fields["command"] = "exit 3"
	n := s.node(1)
	err := n.Do("CREATE", s.Create)
	if err == nil {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = s.Confirm(ctx, n.Task("CONFIRM"))
	}
	if err == nil {
		t.Error("a container that ends at once is confirmed")
	}
	n.Must("DELETE", s.Delete)
}

func TestFields(t *testing.T) {
	_, faults := parse(map[string]any{"engine": "ssh://x", "network": 1, "publish": "0.0.0.0", "ssh_user": "a b"})
	var paths []string
	for _, f := range faults {
		paths = append(paths, f.Path)
	}
	if got := strings.Join(paths, " "); got != "network engine ssh_user publish" {
		t.Errorf("%s %v", got, faults)
	}
	for flavor, want := range map[string][2]int64{"": {}, "small": {}, "2x512": {2e9, 512 << 20}, "0.25x64": {25e7, 64 << 20}, "x": {},
		"mxl": {}} {
		if c, m, err := limits(flavor); err != nil || [2]int64{c, m} != want {
			t.Errorf("%s: %d %d %v", flavor, c, m, err)
		}
	}
	for _, flavor := range []string{"0x512", "1x0", "NaNx512", "1x9223372036854775807"} {
		if _, _, err := limits(flavor); err == nil {
			t.Errorf("%s was taken", flavor)
		}
	}
}
