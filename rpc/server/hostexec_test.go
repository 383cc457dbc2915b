package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/coopr/coopr/rpc/server/apitest"
)

// TestWaysOntoAControlHost checks that no one without the right host:exec gets a document accepted
// or an operation begun that runs on an agent's own machine.
func TestWaysOntoAControlHost(t *testing.T) {
	w := newWorld(t)
	provider := func(kind, fields string) string {
		return `{"name":"p","providertype":"` + kind + `","provisioner":{` + fields + `}}`
	}
	definitions := map[string]string{
		"local":                    provider("local", ``),
		"docker, default":          provider("docker", ``),
		"docker, socket":           provider("docker", `"engine":"unix:///run/docker.sock"`),
		"docker, loopback":         provider("docker", `"engine":"tcp://127.0.0.1:2375"`),
		"libvirt, default":         provider("libvirt", ``),
		"libvirt, loopback":        provider("libvirt", `"host":"localhost:16509"`),
		"libvirt, one of several":  provider("libvirt", `"daemons":"a=10.1.2.3:16509,b=[::1]:16509","zones":"a,b"`),
		"hosts, text":              provider("hosts", `"inventory":"10.0.0.1\n127.0.0.1 port=22\n"`),
		"hosts, key":               provider("hosts", `"inventory":"name=x address=localhost\n"`),
		"hosts, list":              provider("hosts", `"inventory":[{"address":"::ffff:127.0.0.1"}]`),
		"hosts, short form":        provider("hosts", `"inventory":["127.1"]`),
		"hosts, through a machine": provider("hosts", `"inventory":["10.0.0.1"],"ssh_jump":[{"address":"localhost:22"}]`),
	}
	for name, body := range definitions {
		a := w.ask(apitest.Admin, "PUT", "/v1/providers/p", body)
		if a.status != http.StatusForbidden || !strings.Contains(a.body, "host:exec") {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	for _, body := range []string{
		provider("docker", `"engine":"tcp://10.0.0.1:2375"`), provider("hosts", `"inventory":["10.0.0.1"]`),
		provider("libvirt", `"host":"10.0.0.1:16509"`),
	} {
		if a := w.ask(apitest.Admin, "PUT", "/v1/providers/p", body); a.status == http.StatusForbidden {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	const play = `{"name":"play","provisioner":{"actions":{"install":{"type":"ansible","fields":{"playbook":"site.yml"}}}}}`
	a := w.ask(apitest.Admin, "PUT", "/v1/services/play", play)
	if a.status != http.StatusForbidden || !strings.Contains(a.body, "interpreters does not have acme/ansible") {
		t.Errorf("a playbook: %d %s", a.status, a.body)
	}

	// Change objects.
	const agents = `{"name":"s","objects":[{"name":"o","host":"agent:a","type":"script","content":{"start":"id"}}]}`
	w.forbidden(apitest.User, "PUT", "/v1/sites/s", agents)
	w.forbidden(apitest.User, "POST", "/v1/sites", agents)

	// Native runs.
	w.forbidden(apitest.User, "POST", "/v1/runs", `{"inline":{"name":"x","steps":[{"command":["id"]}]}}`)

	// A definition that an operator wrote does not hand on the right.
	w.template()
	w.must(200, apitest.Super, "PUT", "/v1/providers/cloud?tenant=acme", `{"name":"cloud","providertype":"local"}`)
	const create = `{"name":"c","clusterTemplate":"shop","numMachines":2}`
	w.forbidden(apitest.User, "POST", "/v1/clusters", create)
	w.forbidden(apitest.Admin, "POST", "/v1/clusters?dryRun=true", create)
	// Nor does an operator who starts what somebody else wrote, before the operator has written it, too.
	const createAs = "/v1/clusters?tenant=acme"
	w.forbidden(apitest.Super, "POST", createAs, create)
	w.must(200, apitest.Super, "POST", "/v1/import?tenant=acme", `{"services":`+parts[strings.Index(parts, `"services":`)+len(`"services":`):])
	w.must(202, apitest.Super, "POST", createAs, create)
	w.forbidden(apitest.Admin, "DELETE", "/v1/clusters/c", ``)
}

func (w *world) forbidden(token, method, path, body string) {
	w.t.Helper()
	if a := w.ask(token, method, path, body); a.status != http.StatusForbidden || !strings.Contains(a.body, "host:exec") {
		w.t.Errorf("%s %s %s: %d %s", method, path, body, a.status, a.body)
	}
}

// TestNodesOfOthers checks that a user's change objects act only on clusters that the user may
// operate, and that nobody learns by this which other clusters there are.
func TestNodesOfOthers(t *testing.T) {
	w := newWorld(t)
	w.template()
	id, _ := w.cluster("theirs", "1") // bob's
	document := func(cluster string) string {
		return `{"name":"s","objects":[{"name":"o","host":"node:` + cluster + `/1000","type":"script","content":{"start":"id"}}]}`
	}
	refusal := func(cluster string) string {
		t.Helper()
		for _, method := range []string{"PUT /v1/sites/s", "POST /v1/sites"} {
			verb, path, _ := strings.Cut(method, " ")
			a := w.ask(apitest.Other, verb, path, document(cluster))
			if a.status != http.StatusForbidden {
				t.Errorf("%s of %s: %d %s", method, cluster, a.status, a.body)
			}
			if verb == "POST" {
				return strings.ReplaceAll(a.body, cluster, "CLUSTER")
			}
		}
		return ""
	}
	missing := refusal("nothing")
	for _, cluster := range []string{"theirs", id} {
		if got := refusal(cluster); got != missing {
			t.Errorf("%s: %s\nunlike that of a missing cluster: %s", cluster, got, missing)
		}
	}
	// The owner names the cluster by its id. An administrator may use all clusters of the tenant.
	if a := w.ask(apitest.User, "PUT", "/v1/sites/s", document("theirs")); a.status != http.StatusForbidden || !strings.Contains(a.body, id) {
		t.Errorf("by name: %d %s", a.status, a.body)
	}
	w.must(http.StatusAccepted, apitest.User, "PUT", "/v1/sites/s", document(id))
	// Nor does another user change or delete what is there, with a document of their own.
	for _, q := range [][3]string{{"PUT", "/v1/sites/s", `{"name":"s","objects":[]}`}, {"DELETE", "/v1/sites/s", ""}} {
		if a := w.ask(apitest.Other, q[0], q[1], q[2]); a.status != http.StatusForbidden {
			t.Errorf("%s %s: %d %s", q[0], q[1], a.status, a.body)
		}
	}
	w.must(http.StatusAccepted, apitest.Admin, "PUT", "/v1/sites/s", document("theirs"))
}
