package examples

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/client"
	"github.com/coopr/coopr/testing/openstack"
)

// cloud is a real OpenStack, and what its servers run on.
type cloud struct {
	*openstack.Cloud
	guests *openstack.Guests
}

// pool is the range of addresses that Neutron assigns. It is separate from that of the lab.
var pool = netip.MustParsePrefix("10.77.200.0/24")

// onServers returns a real OpenStack, which makes as many servers as are wanted: light
// machines with the address, the name and the user data of the server (make test-openstack).
func onServers(t *testing.T, _ int) *installation {
	s := install(t, "servers")
	c := openstack.Start(t, s.Lab, s.Lab.Network(), pool)
	s.cloud = &cloud{c, c.Guests()}
	c.Hypervisor(s.cloud.guests)
	s.importExample("machines", "providers", "hardwaretypes", "imagetypes")
	s.Define("servers.yaml", s.inCloud(nil))
	return s
}

// inCloud returns the example's provider, with the project's user and other fields.
func (s *installation) inCloud(change map[string]string) string {
	s.T.Helper()
	b, err := os.ReadFile("../../examples/machines/providers/servers.yaml")
	if err != nil {
		s.T.Fatal(err)
	}
	fields := map[string]string{
		"auth_url": s.cloud.Keystone, "username": openstack.User, "password": openstack.Password, "project": openstack.Project,
	}
	maps.Copy(fields, change)
	head, own, _ := strings.Cut(string(b), "provisioner:\n")
	text := "kind: provider\n" + head + "provisioner:\n"
	for line := range strings.Lines(own) {
		if name, _, _ := strings.Cut(strings.TrimSpace(line), ":"); fields[name] == "" && !strings.HasPrefix(name, "application_credential") {
			text += line
		}
	}
	for name, value := range fields {
		text += fmt.Sprintf("  %s: %q\n", name, value)
	}
	return text
}

// serverOf returns the id of a node's server.
func serverOf(n model.Node) string {
	id, _ := n.Results["providerid"].(string)
	return id
}

// agree compares Nova's own list with the nodes on record, and both with the machines
// that run. It is of no matter where there is no OpenStack.
func (s *installation) agree(when string, clusters ...string) {
	s.T.Helper()
	if s.cloud == nil {
		return
	}
	want := map[string]string{}
	for _, name := range clusters {
		cl, _, err := s.API.Cluster(s.Context(), name, client.Read{})
		if err != nil {
			s.T.Fatal(err)
		}
		for _, n := range cl.Nodes {
			want[serverOf(n)] = addressOf(n)
		}
	}
	got, err := s.cloud.Servers()
	if err != nil || !maps.Equal(got, want) {
		s.T.Errorf("%s: Nova has %v, on record are %v %v", when, got, want, err)
	}
	if len(want) == 0 {
		s.cloud.Empty()
	}
	s.Await("as many machines as servers", func() error {
		if n := s.cloud.guests.Running(); n != len(want) {
			return fmt.Errorf("%d machines, %d servers", n, len(want))
		}
		return nil
	})
	// The janitor's own comparison has the same result.
	r, err := s.API.Orphans(s.Context(), true)
	if err != nil || len(r.Orphans)+len(r.Missing) > 0 {
		s.T.Errorf("%s: %+v %v", when, r, err)
	}
	for _, p := range r.Providers {
		if p.Provider == "servers" && p.Fault != "" {
			s.T.Errorf("%s: provider %s: %s", when, p.Provider, p.Fault)
		}
	}
	s.T.Logf("%-40s %6d servers, as on record", when, len(want))
}
