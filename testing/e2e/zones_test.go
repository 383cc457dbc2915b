package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coopr/coopr/rpc/client"
)

const zonesDefinitions = `
- kind: providers
  name: local
  providertype: local
  provisioner: {zones: [north, south, east]}
- kind: hardwaretypes
  name: small
  providermap: {local: {flavor: small}}
- kind: imagetypes
  name: host
  providermap: {local: {image: host}}
- kind: services
  name: db
  spread: zone
  provisioner:
    actions:
      install: {type: shell, fields: {script: "#!/bin/sh\necho $COOPR_ZONE >$COOPR_NODE_DIR/zone"}}
- kind: clustertemplates
  name: db
  defaults: {provider: local, services: [db], hardwaretype: small, imagetype: host}
  compatibility: {services: [db], hardwaretypes: [small], imagetypes: [host]}
`

// TestZones checks that machines are made in the chosen zones, that a growing cluster takes account
// of the zones of its existing nodes, and that a replaced node stays in its zone.
func TestZones(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	m.must("import", m.put("zones.yaml", zonesDefinitions))
	// made returns the zones of the nodes, and fails the test if provider, record and script disagree about
	// them.
	made := func() map[string]string {
		t.Helper()
		nodes, _, err := m.api().Nodes(m.context(), "db", client.Page{}, client.Read{})
		if err != nil {
			t.Fatal(err)
		}
		machines := m.machines()
		out := map[string]string{}
		for _, n := range nodes {
			id, _ := n.Results["providerid"].(string)
			if b, err := os.ReadFile(filepath.Join(id, "zone")); err != nil || string(b) != n.Zone+"\n" {
				t.Errorf("node %s is in %q, and its script heard %q: %v", n.ID, n.Zone, b, err)
			}
			if r := machines[id]; r.Zone != n.Zone || r.Node != n.ID {
				t.Errorf("node %s is in %q, and its machine is %+v", n.ID, n.Zone, r)
			}
			out[n.ID] = n.Zone
		}
		return out
	}
	counts := func(at map[string]string) string {
		n := map[string]int{}
		for _, zone := range at {
			n[zone]++
		}
		return fmt.Sprint(n)
	}
	if out := m.must("cluster", "create", "db", "--template", "db", "--nodes", "4", "--dry-run"); !strings.Contains(out, "Nodes by zone: ") {
		t.Errorf("the preview is\n%s", out)
	}
	m.must("cluster", "create", "db", "--template", "db", "--nodes", "4", "--yes")
	first := made()
	m.must("cluster", "grow", "db", "--nodes", "2", "--yes")
	second := made()
	if got := counts(second); got != "map[east:2 north:2 south:2]" {
		t.Errorf("nodes are at %s", got)
	}
	for id, zone := range first {
		if second[id] != zone {
			t.Errorf("node %s went from %s to %s", id, zone, second[id])
		}
	}
	victim := slices.Min(slices.Collect(maps.Keys(second)))
	m.must("node", "replace", "db", victim, "--yes")
	if third := made(); !maps.Equal(third, second) {
		t.Errorf("zones were %v and became %v", second, third)
	}
	if out := m.must("node", "list", "--cluster", "db"); !strings.Contains(out, "ZONE") || !strings.Contains(out, "south") {
		t.Errorf("nodes are shown as\n%s", out)
	}
}
