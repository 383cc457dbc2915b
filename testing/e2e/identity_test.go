package e2e

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/signing"
)

// issuer is an address that only a published stands for.
const issuer = "https://mesh.example.com"

// published takes requests to the issuer to an agent, as a proxy with TLS would.
type published struct {
	agent     *agent
	transport *http.Transport
}

func (p published) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme+"://"+r.URL.Host != issuer {
		return nil, fmt.Errorf("%s is not of the mesh", r.URL)
	}
	r = r.Clone(r.Context())
	r.URL.Scheme, r.URL.Host = "http", p.agent.addr(httpPort)
	return p.transport.RoundTrip(r)
}

// TestIdentity has a task of a real service write its token down. Another agent than the leader has what a receiver needs to verify it,
// from the issuer's name on. The mesh's own API refuses it, and no agent keeps it: neither in the state nor in a file.
func TestIdentity(t *testing.T) {
	t.Parallel()
	m := ledgerMesh(t, "--issuer", issuer)
	follower := m.follower()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	receiver := func(a *agent) context.Context {
		return oidc.ClientContext(m.context(), &http.Client{Transport: published{a, transport}})
	}
	m.must("import", testdata(t, "ledger/definitions"))
	text := strings.ReplaceAll(identityService, "FILE", filepath.Join(m.dir, "token"))
	m.must("import", m.put("identity.yaml", text))
	op := m.begin(model.CreateCluster{Name: "one", ClusterTemplate: "ledger", Services: []string{"base", "cloud"}, NumMachines: 1})
	var written []byte
	m.await("a token", func() (err error) {
		written, err = os.ReadFile(filepath.Join(m.dir, "token"))
		return err
	})
	token := string(written)
	_, signature, _ := strings.Cut(token, ".")
	_, signature, _ = strings.Cut(signature, ".")
	if len(signature) < 300 {
		t.Fatalf("the task has the token %q", token)
	}
	nowhere := func(when string, dirs ...string) {
		t.Helper()
		for _, dir := range dirs {
			if found := having(t, dir, signature); len(found) > 0 {
				t.Errorf("%s, the token is in %v", when, found)
			}
		}
	}
	nowhere("while the task runs", m.dir+"-agents", m.nodes())
	m.put("token.seen", "")
	m.succeeds(op.ID)
	nowhere("after the task", m.dir+"-agents", m.nodes())

	provider, err := oidc.NewProvider(receiver(follower), issuer)
	if err != nil {
		t.Fatal(err)
	}
	got, err := provider.Verifier(&oidc.Config{ClientID: "https://vault.example.com"}).Verify(m.context(), token)
	if err != nil {
		t.Fatal(err)
	}
	var c signing.Claims
	if err := got.Claims(&c); err != nil {
		t.Fatal(err)
	}
	var task model.Task
	for _, x := range m.tasks(op.ID) {
		if x.Service == "cloud" && x.Action == model.Install {
			task = x
		}
	}
	want := signing.Claims{Issuer: issuer, Audience: "https://vault.example.com", Subject: "coopr:" + c.Tenant + ":service:cloud",
		Issued: c.Issued, NotBefore: c.Issued, Expires: c.Issued + 600, ID: c.ID, Tenant: op.Tenant, Cluster: op.Cluster, Node: task.Node,
		Operation: op.ID}
	if c != want || task.ID == "" || !strings.HasPrefix(c.ID, string(task.ID)+"/") {
		t.Errorf("the token of task %s says %+v, and not %+v", task.ID, c, want)
	}
	if _, err := provider.Verifier(&oidc.Config{ClientID: "https://other.example.com"}).Verify(m.context(), token); err == nil {
		t.Error("the token is good for another audience")
	}

	for _, a := range m.agents {
		for _, path := range []string{"/v1/clusters", "/v1/self", "/v1/clusters?consistency=stale"} {
			code, _, body, err := a.do(request{method: "GET", path: path, header: map[string]string{"Authorization": "Bearer " + token}})
			if err != nil || code != http.StatusUnauthorized {
				t.Errorf("%s at agent %s: %d %s %v", path, a.name, code, body, err)
			}
		}
	}

	sum := fmt.Sprintf("%x", sha256.Sum256(written))
	m.await("the task's output", func() error {
		out := m.must("cluster", "logs", "one")
		switch {
		case strings.Contains(out, signature):
			t.Fatalf("the output has the token:\n%s", out)
		case !strings.Contains(out, "sum "+sum) || !strings.Contains(out, "token [redacted]"):
			return errors.New(out)
		}
		return nil
	})
	m.must("operator", "snapshot", "save", m.put("snapshots/mesh.snap", ""))
	m.remove(op.Cluster)

	// The next key is published before it signs, so a token of the old one is good until all others end.
	verify := func() error {
		p, err := oidc.NewProvider(receiver(follower), issuer) // it knows no keys yet
		if err == nil {
			_, err = p.Verifier(&oidc.Config{ClientID: "https://vault.example.com"}).Verify(m.context(), token)
		}
		return err
	}
	m.must("operator", "jwks", "rotate")
	if err := verify(); err != nil {
		t.Error("with the next key published:", err)
	}
	if s := m.coopr("operator", "jwks", "rotate"); s.code == 0 || !strings.Contains(s.err, "is published already") {
		t.Errorf("another key after the next one: exit code %d\n%s", s.code, s.err)
	}
	m.must("operator", "jwks", "rotate", "--now")
	if err := verify(); err == nil {
		t.Error("the token is good although its key has ended")
	}
	m.stop()
	if found := having(t, m.dir+"-agents", sum); len(found) == 0 {
		t.Error("the hunt does not find the output of the task")
	}
	snapshots := filepath.Join(m.dir, "snapshots")
	if found := having(t, snapshots, "https://vault.example.com"); len(found) == 0 {
		t.Error("the hunt does not find the audience in the snapshot")
	}
	nowhere("after the mesh", m.dir+"-agents", snapshots)
	for _, a := range m.agents {
		if b, err := os.ReadFile(a.log()); err != nil || strings.Contains(string(b), signature) {
			t.Errorf("the log of agent %s has the token: %v", a.name, err)
		}
	}
}

// identityService is a service whose installation uses its token, and ends once a test has seen it, and a template with it.
const identityService = `
- kind: services
  name: cloud
  provisioner:
    actions:
      install:
        type: shell
        identity: {audience: "https://vault.example.com", ttl: 10m}
        fields:
          script: |
            #!/bin/sh
            set -eu
            printf %s "$COOPR_IDENTITY_TOKEN" >FILE.new
            mv FILE.new FILE
            until [ -e FILE.seen ]; do sleep 0.05; done
            echo "sum $(printf %s "$COOPR_IDENTITY_TOKEN" | sha256sum | cut -d' ' -f1)"
            echo "token $COOPR_IDENTITY_TOKEN"
- kind: clustertemplates
  name: ledger
  defaults:
    services: [base]
    provider: ledger
    hardwaretype: small
    imagetype: empty
    config: {}
  compatibility:
    services: [base, app, cloud]
    hardwaretypes: [small]
    imagetypes: [empty]
  constraints:
    size: {min: 1, max: 100}
`
