package e2e

import (
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/rpc/api"
)

// TestRunOnTemplate: the provisioner "cluster" makes the cluster of a run from a template, with
// its services and its configuration; the job finds them, what the profile locks stays, and
// nothing is left. A template that cannot have so many nodes fails the run before its program.
func TestRunOnTemplate(t *testing.T) {
	t.Parallel()
	m := newMesh(t, "a")
	m.agents[0].start()
	m.ready()
	m.script("tools.yaml", `
clustertemplates:
  - name: tools
    defaults: {services: [tool], provider: here, hardwaretype: small, imagetype: linux, config: {greeting: hello}}
    compatibility: {services: [tool], hardwaretypes: [small], imagetypes: [linux]}
    constraints: {size: {max: 3}}
providers:
  - {name: here, providertype: local}
hardwaretypes:
  - {name: small, providermap: {here: {flavor: default}}}
imagetypes:
  - {name: linux, providermap: {here: {image: default}}}
services:
  - name: tool
    provisioner:
      actions:
        install: {type: shell, fields: {script: "#!/bin/sh\necho installed > tool\n"}}
        configure: {type: shell, fields: {script: "#!/bin/sh\necho \"$1\" >> tool\n", args: ["%greeting%"]}}
`)
	m.must("import", "tools.yaml")
	m.must("profile", "create", "tools", "--provisioner", "cluster", "-l", "clusterTemplate=tools", "-p", "numMachines=2")
	s := m.coopr("run", "--profile", "tools", "-p", "clusterTemplate=other", "--", "sh", "-c", "echo $COOPR_NODE_INDEX has $(head -n 1 tool)")
	if s.code != 0 || !strings.Contains(s.out, "| 0 has installed\n") || !strings.Contains(s.out, "| 1 has installed\n") ||
		!strings.Contains(s.err, "property clusterTemplate is locked by the profile") {
		t.Errorf("code %d\n%s%s", s.code, s.out, s.err)
	}
	run := m.awaitRun(m.latestRun().ID, "over", func(r api.RunDetails) bool { return r.Over() })
	if run.Status != profile.Completed || run.Cluster.Status != profile.Deprovisioned || *run.Cluster.NumNodes != 2 {
		t.Errorf("%+v", run)
	}
	s = m.coopr("run", "--profile", "tools", "--nodes", "4", "--", "true")
	run = m.awaitRun(m.latestRun().ID, "over", func(r api.RunDetails) bool { return r.Over() })
	if s.code != 1 || run.Failure != profile.FailedProvisioning || !strings.Contains(run.Message, "3") ||
		run.Cluster.Status != profile.Deprovisioned {
		t.Errorf("code %d: %s, %s\n%s", s.code, run.Failure, run.Message, s.err)
	}
	if n := len(m.machines()); n != 0 {
		t.Errorf("%d machines are left", n)
	}
	m.stop()
}
