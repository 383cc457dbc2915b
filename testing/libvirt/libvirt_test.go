package libvirt

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/client"
	"github.com/coopr/coopr/testing/site"
)

var programs = site.NewPrograms("./plugins/automator/coopr-automator-shell", "./plugins/provider/coopr-provider-hosts",
	"./plugins/provider/coopr-provider-libvirt")

func TestMain(m *testing.M) { programs.Main(m) }

// definitions describe machines that serve a page. They install little, because a machine without
// hardware acceleration is about twenty times slower.
const definitions = `
providers:%[1]s
hardwaretypes: [{name: small, providermap: {%[2]s}}]
imagetypes: [{name: debian, providermap: {%[3]s}}, {name: no-such, providermap: {rack1: {image: no-such}}}]
services:
- name: page
  reads: [page.greeting]
  health-check: {interval: 2s, timeout: 1m, max-consecutive-failures: 2, grace-period: 10s}
  provisioner:
    actions:
      install:
        type: shell
        fields:
          script: |
            #!/bin/sh
            set -e
            cloud-init status --wait >/dev/null # it may still be at the provider's boot_script
            mkdir -p /srv/page
            echo once >>/srv/page/installed
            cat >/etc/systemd/system/page.service <<END
            [Service]
            ExecStart=/usr/bin/python3 -m http.server --directory /srv/page 80
            END
            systemctl daemon-reload
      configure: {type: shell, fields: {config: {GREETING: page.greeting}, script: "#!/bin/sh\necho \"$GREETING from $(hostname), $(cat /etc/booted || echo plain)\" >/srv/page/index.html"}}
      start: {type: shell, fields: {script: "#!/bin/sh\nexec systemctl start page"}}
      stop: {type: shell, fields: {script: "#!/bin/sh\nexec systemctl stop page"}}
      check: {type: shell, fields: {script: "#!/bin/sh\nexec systemctl is-active page"}}
clustertemplates:
- name: page
  defaults: {services: [page], provider: rack1, hardwaretype: small, imagetype: debian, config: {page: {greeting: Welcome}}}
  compatibility: {services: [page], hardwaretypes: [small], imagetypes: [debian, no-such]}
  recovery: {backoff: 2s, max-backoff: 5s, max-at-once: "50%%"}
`

// define imports the definitions.
func (h *host) define() {
	h.T.Helper()
	var flavors, images []string
	for _, p := range []string{"rack1", "rack2", "silent", "kvm", "no-network", "no-pool"} {
		flavors, images = append(flavors, p+": {flavor: 1x512x4}"), append(images, p+": {image: debian-12}")
	}
	h.Define("page.yaml", fmt.Sprintf(definitions, h.providers(), strings.Join(flavors, ", "), strings.Join(images, ", ")))
}

// begin starts the creation of a cluster.
func (h *host) begin(name, provider string, nodes int, args ...string) {
	h.T.Helper()
	h.Must(append([]string{"cluster", "create", name, "--template", "page", "--provider", provider, "--nodes", fmt.Sprint(nodes), "--detach",
		"--yes"}, args...)...)
}

// ends waits until a cluster's creation has ended, and returns its operation.
func (h *host) ends(name string) model.Operation {
	h.T.Helper()
	var op model.Operation
	h.await("the end of the creation of "+name, func() error {
		cl, _, err := h.API.Cluster(h.Context(), name, client.Read{})
		if err != nil {
			return err
		}
		ops, _, err := h.API.Operations(h.Context(), cl.ID, nil, client.Page{}, client.Read{})
		if err != nil {
			return err
		}
		err = errors.New("there is none")
		for _, d := range ops {
			if d.Type == model.OpCreate {
				if op, err = d.Operation, nil; !op.Status.Ended() {
					err = fmt.Errorf("it is %s", op.Status)
				}
			}
		}
		return err
	})
	return op
}

// await is Await with more patience: these machines are slow.
func (h *host) await(what string, ask func() error) {
	h.T.Helper()
	until := time.Now().Add(3 * site.Patience)
	for {
		err := ask()
		if err == nil {
			return
		}
		if time.Now().After(until) {
			h.T.Fatalf("waited for %s: %v", what, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// failed returns the tasks of an operation that failed finally.
func (h *host) failed(op model.Operation) []model.Task {
	h.T.Helper()
	tasks, _, err := h.API.Tasks(h.Context(), op.ID, "failed", client.Page{}, client.Read{})
	if err != nil {
		h.T.Fatal(err)
	}
	return tasks
}

// nodes returns the nodes of a cluster.
func (h *host) nodes(cluster string) []model.Node {
	h.T.Helper()
	cl, _, err := h.API.Cluster(h.Context(), cluster, client.Read{})
	if err != nil {
		h.T.Fatal(err)
	}
	return cl.Nodes
}

// answer waits until all nodes of a cluster show the greeting and their own name.
func (h *host) answer(cluster, greeting, boot string) {
	h.T.Helper()
	for _, n := range h.nodes(cluster) {
		name, _, _ := strings.Cut(n.Hostname, ".")
		want := fmt.Sprintf("%s from %s, %s", greeting, name, boot)
		h.await("the page of "+n.Hostname, func() error {
			page, err := get(n)
			if err == nil && page != want {
				err = fmt.Errorf("it is %q, not %q", page, want)
			}
			return err
		})
	}
}

// get asks a node for its page.
func get(n model.Node) (string, error) {
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	resp, err := c.Get("http://" + n.IPAddresses["access_v4"] + "/")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return strings.TrimSpace(string(b)), err
}

// crash kills the agent as soon as libvirt shows a certain state.
func (h *host) crash(when, condition string) {
	h.T.Helper()
	seen := h.run("until " + condition + "; do sleep 0.01; done; virsh -q list --all; ls /var/lib/libvirt/images")
	h.Crash()
	h.T.Logf("the agent was killed when %s:\n%s", when, seen)
}

// healthIs waits until a node has a certain health.
func (h *host) healthIs(node, want string) {
	h.T.Helper()
	h.await("node "+node+" to be "+want, func() error {
		n, _, err := h.API.Node(h.Context(), node, client.Read{})
		if err == nil && n.Health.Status() != want {
			err = fmt.Errorf("it is %q", n.Health.Status())
		}
		return err
	})
}

// domainOf returns the name of a node's domain.
func (h *host) domainOf(n model.Node) string {
	h.T.Helper()
	id, _ := n.Results["providerid"].(string)
	return h.run("virsh -q domname " + id)
}

// TestLibvirt covers the life of clusters of real virtual machines, with faults.
func TestLibvirt(t *testing.T) {
	h := newHost(t)
	h.define()
	began := time.Now()
	log := func(what string) {
		t.Helper()
		t.Logf("%4.0f s: %s", time.Since(began).Seconds(), what)
	}

	for provider, says := range map[string]string{"no-network": "no-such", "no-pool": "no-such", "kvm": "kvm"} {
		h.begin("bad-"+provider, provider, 1, "--on-failure", "leave")
		op := h.ends("bad-" + provider)
		if tasks := h.failed(op); op.Status != model.OpFailed || len(tasks) != 1 || len(tasks[0].Attempts) != 1 ||
			!strings.Contains(tasks[0].Message, says) {
			t.Errorf("%s: %s: %+v", provider, op.Status, tasks)
		}
		h.Must("cluster", "delete", "bad-"+provider, "--yes")
	}
	h.empty()
	log("errors are told")

	// The agent is killed in the middle, twice.
	h.begin("shop", "rack1", 2, "--on-failure", "leave")
	h.crash("a domain was there", "virsh -q list --all --name | grep -q .")
	h.crash("a machine booted", "virsh -q list | grep -q running")
	if op := h.ends("shop"); op.Status != model.OpSucceeded {
		t.Fatalf("%s %s: %+v", op.Status, op.Message, h.failed(op))
	}
	h.answer("shop", "Welcome", "booted")
	nodes := h.nodes("shop")
	own := []string{h.domainOf(nodes[0]), h.domainOf(nodes[1])}
	if has := h.domains(); !slices.Equal(slices.Sorted(slices.Values(has)), slices.Sorted(slices.Values(own))) {
		t.Errorf("domains %v of nodes with %v", has, own)
	}
	log("shop is made")

	// One machine never accepts a login, and is removed again.
	h.begin("silent", "silent", 1)
	h.begin("second", "rack2", 1, "--on-failure", "leave")
	op := h.ends("silent")
	if tasks := h.failed(op); op.Status != model.OpFailed || len(tasks) != 1 || !strings.Contains(tasks[0].Message, "ready_within") {
		t.Errorf("%s %s: %+v", op.Status, op.Message, tasks)
	}
	if op := h.ends("second"); op.Status != model.OpSucceeded {
		t.Fatalf("%s %s: %+v", op.Status, op.Message, h.failed(op))
	}
	h.answer("second", "Welcome", "plain")
	h.Must("cluster", "delete", "second", "--yes")
	if has := h.domains(); len(has) != 2 {
		t.Errorf("domains %v", has)
	}
	log("second was made and deleted, silent given up")

	h.Must("cluster", "configure", "shop", "--set", "page.greeting=Hello", "--yes")
	h.answer("shop", "Hello", "booted")
	h.Must("cluster", "stop", "shop", "--yes")
	for _, n := range nodes {
		if page, err := get(n); err == nil {
			t.Errorf("%s still answers %q", n.Hostname, page)
		}
	}
	h.Must("cluster", "start", "shop", "--yes")
	h.answer("shop", "Hello", "booted")
	log("shop was configured, stopped and started")

	// A machine that was ended from outside is noticed. It is started again, and so is its service.
	lost := nodes[0]
	domain := h.domainOf(lost)
	h.run("virsh -q destroy " + domain)
	h.healthIs(lost.ID, "unhealthy")
	log("a machine was ended, which was noticed")
	h.run("virsh -q start " + domain)
	h.healthIs(lost.ID, "healthy")
	h.answer("shop", "Hello", "booted")
	log("it runs again")

	// A machine that was removed from outside is replaced.
	lost = nodes[1]
	domain = h.domainOf(lost)
	h.run("virsh -q destroy " + domain + " && virsh -q undefine " + domain)
	h.await("another machine", func() error {
		n, _, err := h.API.Node(h.Context(), lost.ID, client.Read{})
		if err == nil && n.Results["providerid"] == lost.Results["providerid"] {
			err = errors.New("it is the old one")
		}
		return err
	})
	h.healthIs(lost.ID, "healthy")
	h.answer("shop", "Hello", "booted")
	log("a machine that was taken away is replaced")

	h.Must("cluster", "delete", "shop", "--yes")
	h.empty()
	log("nothing is left")
}
