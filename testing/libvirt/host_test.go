package libvirt

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coopr/coopr/testing/lab"
	"github.com/coopr/coopr/testing/site"
)

// layersVar names the folder with the layers that run.sh makes.
const layersVar = "COOPR_TEST_LIBVIRT"

// host is a light machine with libvirtd and QEMU, and an agent that reaches it.
type host struct {
	*site.Site
	machine *lab.Machine
}

// guests is the network of the virtual machines, behind the host.
var guests = netip.MustParsePrefix("10.78.0.0/24")

// setUp sets up a host for virtual machines. The changes of qemu.conf are needed on light machines
// only, which have no control groups except systemd's.
const setUp = `set -e
mkdir -p /dev/net
[ -e /dev/net/tun ] || mknod -m 666 /dev/net/tun c 10 200
echo 'cgroup_controllers = []' >>/etc/libvirt/qemu.conf
echo 'auth_tcp = "none"' >>/etc/libvirt/libvirtd.conf
systemctl is-system-running --wait || true # degraded will do: it is no hardware
systemctl stop libvirtd.service # or its socket cannot be started
systemctl start libvirtd-tcp.socket
systemctl start libvirtd.service
virsh pool-define-as images dir --target /var/lib/libvirt/images
virsh pool-start images
cat >/tmp/nodes.xml <<XML
<network><name>nodes</name><forward mode='open'/><bridge name='nodes0'/>
<ip address='10.78.0.1' netmask='255.255.255.0'><dhcp><range start='10.78.0.10' end='10.78.0.99'/></dhcp></ip></network>
XML
virsh net-define /tmp/nodes.xml
virsh net-start nodes
sysctl -qw net.ipv4.ip_forward=1
`

// newHost returns a host, and an agent.
func newHost(t *testing.T) *host {
	layers := os.Getenv(layersVar)
	if layers == "" {
		t.Skip("real virtual machines are an opt-in tier: make test-libvirt")
	}
	// Lost machines are noticed soon.
	h := &host{Site: site.New(t, programs, site.Config{Settings: "orphans: {every: 5s}\n"})}
	var err error
	spec := lab.Spec{Name: "host", Systemd: true, Layers: []string{filepath.Join(layers, "images"), filepath.Join(layers, "host")}}
	if h.machine, err = h.Lab.Start(h.Context(), spec); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := h.machine.Run(context.Background(), "sh", "-c",
				"journalctl --no-pager -n 40 -u libvirtd; tail -n 5 /var/log/libvirt/qemu/*.log")
			t.Log(out)
		}
	})
	h.Await("systemd", func() error {
		_, err := h.machine.Run(h.Context(), "systemctl", "is-active", "basic.target")
		return err
	})
	h.run(setUp)
	if err := h.Lab.Route(guests, h.machine); err != nil {
		t.Fatal(err)
	}
	return h
}

// run runs a script on the host.
func (h *host) run(script string) string {
	h.T.Helper()
	out, err := h.machine.Run(h.Context(), "/bin/sh", "-c", script)
	if err != nil {
		h.T.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// domains returns the names of all domains of libvirt.
func (h *host) domains() []string {
	h.T.Helper()
	return strings.Fields(h.run("virsh -q list --all --name"))
}

// empty checks that libvirt has only what the host's owner made.
func (h *host) empty() {
	h.T.Helper()
	has := h.run(`virsh -q list --all --name; virsh -q vol-list images | grep -vwE 'debian-12|vmlinuz|initrd'
ls /var/lib/libvirt/images | grep -vxE 'debian-12|vmlinuz|initrd'; virsh -q net-list --all --name | grep -vxE 'nodes|default'; pgrep -a qemu; ls /etc/libvirt/qemu/*.xml 2>/dev/null; true`)
	if has != "" {
		h.T.Errorf("libvirt still has\n%s", has)
	}
}

// providers are those of the host: by TCP with the network's leases, with a user and a
// script; by the socket with a bridge, as root; and one whose machines have no SSH.
func (h *host) providers() string {
	const image = "kernel: /var/lib/libvirt/images/vmlinuz, initrd: /var/lib/libvirt/images/initrd, domain_type: qemu"
	const cmdline = "root=/dev/vda rw console=ttyS0 quiet mitigations=off"
	return fmt.Sprintf(`
- {name: rack1, providertype: libvirt, provisioner: {%[1]s, pool: images, host: "%[2]s:16509", network: nodes, ssh_user: ops, cmdline: "%[4]s", boot_script: "#!/bin/sh\necho booted >/etc/booted"}}
- {name: rack2, providertype: libvirt, provisioner: {%[1]s, pool: images, socket: /proc/%[3]d/root/run/libvirt/libvirt-sock, bridge: nodes0, cmdline: "%[4]s"}}
- {name: silent, providertype: libvirt, provisioner: {%[1]s, pool: images, host: "%[2]s:16509", network: nodes, cmdline: "%[4]s systemd.mask=ssh.service", ready_within: 1m}}
- {name: kvm, providertype: libvirt, provisioner: {host: "%[2]s:16509", network: nodes, pool: images}}
- {name: no-network, providertype: libvirt, provisioner: {%[1]s, pool: images, host: "%[2]s:16509", network: no-such}}
- {name: no-pool, providertype: libvirt, provisioner: {%[1]s, pool: no-such, host: "%[2]s:16509"}}

`, image, h.machine.Addr, h.machine.PID(), cmdline)
}
