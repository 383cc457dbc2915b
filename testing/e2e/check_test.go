package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/client"
)

const checkDefinitions = `
- kind: providers
  name: local
  providertype: local
- kind: hardwaretypes
  name: small
  providermap: {local: {flavor: small}}
- kind: imagetypes
  name: host
  providermap: {local: {image: host}}
- kind: services
  name: job
  provisioner:
    actions:
      start: {type: shell, fields: {script: step.sh, archives: site, args: start}}
      stop: {type: shell, fields: {script: step.sh, archives: site, args: stop}}
      check: {type: shell, fields: {script: step.sh, archives: site, args: check}}
  health-check: {interval: 300, timeout: 10s, max-consecutive-failures: 2, grace-period: 0}
- kind: clustertemplates
  name: job
  defaults: {provider: local, services: [job], hardwaretype: small, imagetype: host}
  compatibility: {services: [job], hardwaretypes: [small], imagetypes: [host]}
  recovery: {backoff: 1s, max-backoff: 2s}
`

// TestChecksOfUploads uses an uploaded script with an archive as a check. When the service fails,
// its provider reports that the machine exists, so that the service is restarted and the machine
// kept.
func TestChecksOfUploads(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	m.put("site/page", "hello")
	said := filepath.Join(m.dir, "said")
	script := m.put("step.sh", "#!/bin/sh\nset -e\ntest \"$(cat $COOPR_ARCHIVES/site/page)\" = hello\necho $1 >>"+said+
		"\ncase $1 in start) touch up ;; stop) rm -f up ;; check) test -e up ;; esac\n")
	m.must("resource", "upload", "automator/shell/archives/site", filepath.Join(m.dir, "site"), "--activate")
	m.must("resource", "upload", "automator/shell/scripts/step.sh", script, "--activate")
	m.must("import", m.put("definitions.yaml", checkDefinitions))
	m.must("cluster", "create", "job", "--template", "job", "--nodes", "1", "--yes")
	cl, _, err := m.api().Cluster(m.context(), "job", client.Read{})
	if err != nil {
		t.Fatal(err)
	}
	m.nodeIs(cl.Nodes[0].ID, "healthy")
	fail := func() {
		t.Helper()
		if err := os.Remove(filepath.Join(m.nodes(), cl.ID, strconv.Itoa(cl.Nodes[0].Number), "up")); err != nil {
			t.Fatal(err)
		}
	}

	m.must("cluster", "pause-recovery", "job", "--reason", "a test")
	fail()
	m.nodeIs(cl.Nodes[0].ID, "unhealthy")
	checks := func() int {
		b, err := os.ReadFile(said)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(b), "check")
	}
	before := checks()
	m.await("some checks more", func() error {
		if checks() < before+5 {
			return errNotYet
		}
		return nil
	})
	if n := m.nodeIs(cl.Nodes[0].ID, "unhealthy"); n.Health.Machine != "" {
		t.Errorf("the machine is %s", n.Health.Machine)
	}
	m.must("cluster", "resume-recovery", "job")
	m.await("the service to be started again", func() error {
		if m.succeeded(cl.ID, model.OpRecover) == 0 {
			return errNotYet
		}
		return nil
	})
	m.nodeIs(cl.Nodes[0].ID, "healthy")
	if m.succeeded(cl.ID, model.OpReplaceNode) > 0 {
		t.Error("the machine was replaced")
	}
	m.must("cluster", "delete", "job", "--yes")
	m.stop()
}
