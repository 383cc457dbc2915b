package hosts

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/client"
	"github.com/coopr/coopr/testing/lab"
	"github.com/coopr/coopr/testing/site"
)

// TestControlHosts causes faults of control hosts while a cluster is made. Its scripts wait for the
// fault. The operation succeeds nevertheless, and each script ends once.
func TestControlHosts(t *testing.T) {
	m := newMesh(t, 3, 2)
	m.define()
	heal := func(m *mesh, _ *lab.Machine) { m.lab.Net.Heal() }
	for _, fault := range []struct {
		name  string
		cause func(m *mesh, leader *lab.Machine)
		after func(m *mesh, leader *lab.Machine)
	}{
		// The leader's host reaches no other control host, but all nodes.
		{"parted", func(m *mesh, l *lab.Machine) { m.lab.Partition(addresses(m.others(l)), addresses([]*lab.Machine{l})) }, heal},
		// It receives from no other host, and all others receive from it.
		{"deaf", func(m *mesh, l *lab.Machine) {
			for _, o := range m.others(l) {
				m.lab.Net.Set(o.Addr, l.Addr, lab.Fault{Cut: true})
			}
		}, heal},
		{"power", func(m *mesh, l *lab.Machine) { m.check(l.Crash()) }, func(m *mesh, l *lab.Machine) { m.check(l.Boot(m.ctx)) }},
		{"frozen", func(m *mesh, l *lab.Machine) { m.check(l.Freeze()) }, func(m *mesh, l *lab.Machine) { m.check(l.Thaw()) }},
		{"killed", func(m *mesh, l *lab.Machine) {
			m.must(l, "systemctl", "kill", "--kill-whom=all", "--signal=KILL", "coopr-agent")
		}, nil},
		{"restarted", func(m *mesh, l *lab.Machine) { m.must(l, "systemctl", "restart", "coopr-agent") }, nil},
	} {
		ok := t.Run(fault.name, func(t *testing.T) {
			m := m.in(t)
			leader := m.leader(m.hosts...)
			op := m.begin(fault.name)
			fault.cause(m, leader)
			m.leader(m.others(leader)...)
			m.goOn()
			m.over(op)
			if fault.after != nil {
				fault.after(m, leader)
			}
			m.leader(m.hosts...)
			m.once() // still, now that who was away is back
			m.remove(fault.name)
		})
		if !ok {
			return // the other tests would wait for a mesh that does not work
		}
	}
	ok := t.Run("lossy", func(t *testing.T) {
		m := m.in(t)
		for _, a := range m.hosts {
			for _, b := range append(m.others(a), m.nodes...) {
				f := lab.Fault{Loss: 0.05, Delay: 10 * time.Millisecond, Jitter: 20 * time.Millisecond}
				m.lab.Net.Set(a.Addr, b.Addr, f)
				m.lab.Net.Set(b.Addr, a.Addr, f)
			}
		}
		op := m.begin("lossy")
		m.goOn()
		m.over(op)
		m.lab.Net.Heal()
		m.leader(m.hosts...)
		m.once()
		m.remove("lossy")
	})
	if ok {
		t.Run("lost", func(t *testing.T) { m.in(t).worstNight() })
	}
}

// worstNight destroys the disks of a majority in the middle of an operation, and then follows
// docs/operations.md.
func (m *mesh) worstNight() {
	m.t.Helper()
	op := m.begin("lost")
	survivor := m.leader(m.hosts...) // another agent might lack the latest entries
	lost := m.others(survivor)
	for _, h := range lost {
		m.check(h.Destroy())
	}
	m.hosts = []*lab.Machine{survivor}
	m.must(survivor, "systemctl", "stop", "coopr-agent")
	m.must(survivor, "sh", "-ec", `exec runuser -u coopr -- coopr-agent recover --yes --data-dir /var/lib/coopr "$(cat `+
		`/var/lib/coopr/agent-id)=$1:55055"`, "sh", survivor.Addr.String())
	m.must(survivor, "systemctl", "start", "coopr-agent")
	m.leader(survivor)
	m.goOn()
	m.over(op)
	for _, h := range lost {
		m.await(h.Name+" to be called failed", func() error {
			list, err := m.api.Members(m.ctx)
			for _, x := range list {
				if x.Name == h.Name && x.Status == "failed" {
					return nil
				}
			}
			return errors.Join(err, fmt.Errorf("members: %+v", list))
		})
		m.coopr("leave", h.Name, "--yes")
	}
	for i := range lost {
		m.hosts = append(m.hosts, m.start(lab.Spec{Name: fmt.Sprintf("control%d", 4+i), Systemd: true, Layers: []string{m.layer}}))
	}
	said := strings.Fields(m.coopr("token", "join", "--kind", "voter", "--uses", fmt.Sprint(len(lost))))
	m.check(os.WriteFile(filepath.Join(m.dir, "birth", "voter-token"), []byte(said[len(said)-1]), 0o600))
	m.setUp(m.hosts[1:]...)
	m.vote()
	m.check(survivor.Destroy()) // what it had, the new ones have
	m.hosts = m.hosts[1:]
	m.leader(m.hosts...)
	m.remove("lost")
}

// in returns the mesh as a subtest sees it.
func (m *mesh) in(t *testing.T) *mesh {
	of := *m
	of.t = t
	return &of
}

func (m *mesh) check(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

// define imports the machines for nodes, and a service whose script waits.
func (m *mesh) define() {
	m.t.Helper()
	var inventory []string
	for _, n := range m.nodes {
		inventory = append(inventory, site.Entry(n))
	}
	text := fmt.Sprintf(`providers:
- name: machines
  providertype: hosts
  provisioner:
    ssh_private_key: %q
    inventory: %q
    reset: |
      #!/bin/sh
      rm -f /begun /ended /waits /go
hardwaretypes: [{name: any, providermap: {machines: {flavor: any}}}]
imagetypes: [{name: any, providermap: {machines: {image: any}}}]
services:
- name: waits
  provisioner:
    actions:
      install:
        type: shell
        timeout: 5m
        fields:
          script: |
            #!/bin/sh
            echo "$COOPR_FENCE" >>/begun
            : >/waits
            until [ -e /go ]; do sleep 0.1; done
            echo "$COOPR_FENCE" >>/ended
clustertemplates:
- name: waits
  defaults: {services: [waits], provider: machines, hardwaretype: any, imagetype: any}
  compatibility: {services: [waits], hardwaretypes: [any], imagetypes: [any]}
`, m.lab.Key(), strings.Join(inventory, "\n"))
	file := filepath.Join(m.dir, "waits.yaml")
	m.check(os.WriteFile(file, []byte(text), 0o600))
	m.coopr("import", file)
}

// begin starts a cluster, and waits until its scripts do.
func (m *mesh) begin(name string) model.Operation {
	m.t.Helper()
	st, _, err := m.api.CreateCluster(m.ctx, model.CreateCluster{Name: name, ClusterTemplate: "waits", NumMachines: model.Int(len(m.nodes)),
		OnFailure: "leave"}, false)
	m.check(err)
	for _, n := range m.nodes {
		m.await("the script to run on "+n.Name, func() error {
			_, err := n.Run(m.ctx, "test", "-e", "/waits")
			return err
		})
	}
	return *st.Operation
}

// goOn lets the waiting scripts end.
func (m *mesh) goOn() {
	m.t.Helper()
	for _, n := range m.nodes {
		m.must(n, "touch", "/go")
	}
}

// over waits until an operation succeeds.
func (m *mesh) over(op model.Operation) {
	m.t.Helper()
	m.await("the operation's end", func() error {
		d, _, err := m.api.Operation(m.ctx, op.ID, client.Read{})
		if err == nil && !d.Status.Ended() {
			err = fmt.Errorf("it is %s", d.Status)
		}
		if err == nil && d.Status != model.OpSucceeded {
			m.t.Errorf("it is %s: %s", d.Status, d.Message)
		}
		return err
	})
	m.once()
}

// once checks that every script ended once and started once for each attempt.
func (m *mesh) once() {
	m.t.Helper()
	for _, n := range m.nodes {
		begun, ended := strings.Fields(m.must(n, "cat", "/begun")), strings.Fields(m.must(n, "cat", "/ended"))
		if once := slices.Compact(slices.Clone(begun)); len(ended) != 1 || len(once) != len(begun) || !slices.Contains(begun, ended[0]) {
			m.t.Errorf("on %s begun by %v, ended by %v", n.Name, begun, ended)
		}
	}
}

// remove deletes a cluster: its machines are free and clean.
func (m *mesh) remove(name string) {
	m.t.Helper()
	m.coopr("cluster", "delete", name, "--yes")
	for _, n := range m.nodes {
		if left := m.must(n, "sh", "-c", "ls -A /var/lib/coopr /begun 2>/dev/null || true"); strings.TrimSpace(left) != "" {
			m.t.Errorf("left on %s: %s", n.Name, left)
		}
	}
}
