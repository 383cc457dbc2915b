package openstack

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	gophercloudstack "github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/flavors"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/quotasets"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/projects"
	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/imagedata"
	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/images"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/subnets"
	"go.yaml.in/yaml/v3"

	"github.com/coopr/coopr/plugins/provider/instance"
	"github.com/coopr/coopr/plugins/provider/providertest"
	"github.com/coopr/coopr/plugins/sdk"
	"github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/testing/lab"
)

// cacheVar names the folder with OpenStack's packages, and from the first run on
// what was set up.
const cacheVar = "COOPR_TEST_OPENSTACK"

// site is a real OpenStack.
type site struct {
	t       *testing.T
	lab     *lab.Lab
	machine *lab.Machine
	project string
	admin   *gophercloud.ProviderClient
	nova    *gophercloud.ServiceClient
}

func (s *site) keystone() string { return fmt.Sprintf("http://%s:5000/v3", s.machine.Addr) }

// boot starts the machine with OpenStack. The first time it is set up, which is
// kept as a layer for later runs.
func boot(t *testing.T) *site {
	dir := os.Getenv(cacheVar)
	if dir == "" {
		t.Skip("a real OpenStack is an opt-in tier: make test-openstack")
	}
	s := &site{t: t, lab: lab.New(t)}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	packages, ready := filepath.Join(dir, "packages"), filepath.Join(dir, "ready")
	layers := []string{ready, packages}
	_, err := os.Stat(ready)
	if err != nil {
		layers = layers[1:]
	}
	if s.machine, err = s.lab.Start(ctx, lab.Spec{Name: "openstack", Systemd: true, Layers: layers}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := s.machine.Run(context.Background(), "sh", "-c", "systemctl --failed --no-legend; tail -n 30 /var/log/nova/*.log /var/log/neutron/*.log")
			t.Log(out)
		}
	})
	if len(layers) == 1 {
		s.setUp(ctx, ready)
	}
	s.systemd(ctx)
	// Bridges are not kept on disk; the agent waits for this one.
	s.run(ctx, "ip link add brphys type bridge 2>/dev/null; ip link set brphys up; systemctl restart neutron-linuxbridge-agent; systemctl start --no-block "+services)
	s.await(ctx, "the APIs", func() error {
		for _, port := range []int{5000, 8774, 9696, 9292, 8778} {
			resp, err := http.Get(fmt.Sprintf("http://%s:%d/", s.machine.Addr, port))
			if err != nil {
				return err
			}
			resp.Body.Close()
			if resp.StatusCode >= 500 {
				return fmt.Errorf("port %d: %s", port, resp.Status)
			}
		}
		return nil
	})
	return s
}

// systemd waits for it to take orders. More does not come at first: services that
// are not set up fail and begin again.
func (s *site) systemd(ctx context.Context) {
	s.t.Helper()
	s.await(ctx, "systemd", func() error {
		_, err := s.machine.Run(ctx, "systemctl", "is-active", "basic.target")
		return err
	})
}

// services are what setup.sh sets up; not all of them start by themselves.
const services = "keystone glance-api placement-api neutron-api neutron-rpc-server nova-api nova-conductor nova-scheduler nova-compute"

// run runs a script in the machine.
func (s *site) run(ctx context.Context, script string) {
	s.t.Helper()
	if out, err := s.machine.Run(ctx, "/bin/bash", "-c", script); err != nil {
		s.t.Fatalf("%v\n%s", err, out)
	}
}

// setUp makes an OpenStack of the packages, keeps it, and goes on with it.
func (s *site) setUp(ctx context.Context, ready string) {
	script, err := os.ReadFile("../../../testing/openstack/setup.sh")
	if err != nil {
		s.t.Fatal(err)
	}
	s.systemd(ctx)
	out, err := s.machine.Run(ctx, "/bin/bash", "-c", "cat >/root/setup.sh <<'SETUP'\n"+string(script)+"\nSETUP\nbash /root/setup.sh "+s.machine.Addr.String()+" 2>&1")
	if err != nil {
		s.t.Fatalf("%v\n%s", err, out)
	}
	s.t.Logf("%s", out)
	s.run(ctx, "systemctl stop 'nova-*' 'neutron-*' glance-api placement-api keystone mariadb rabbitmq-server; sync")
	if err := s.machine.Crash(); err != nil {
		s.t.Fatal(err)
	}
	if err := s.machine.Save(ready); err != nil {
		s.t.Fatal(err)
	}
	if err := s.machine.Boot(ctx); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) await(ctx context.Context, what string, ask func() error) {
	s.t.Helper()
	for {
		err := ask()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			s.t.Fatalf("waited for %s: %v", what, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// fill gives the cloud what machines are made of.
func (s *site) fill(ctx context.Context) {
	t := s.t
	s.await(ctx, "a login", func() (err error) {
		s.admin, err = gophercloudstack.AuthenticatedClient(ctx, gophercloud.AuthOptions{IdentityEndpoint: s.keystone(), Username: "admin", Password: "secret", DomainName: "Default", TenantName: "admin"})
		return err
	})
	where := gophercloud.EndpointOpts{Region: "regionOne"}
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	var err error
	s.nova, err = gophercloudstack.NewComputeV2(s.admin, where)
	must("nova", err)
	s.nova.Microversion = "2.3" // from where on administrators see user data
	glance, err := gophercloudstack.NewImageV2(s.admin, where)
	must("glance", err)
	neutron, err := gophercloudstack.NewNetworkV2(s.admin, where)
	must("neutron", err)
	keystone, err := gophercloudstack.NewIdentityV3(s.admin, where)
	must("keystone", err)
	pages, err := projects.List(keystone, projects.ListOpts{Name: "admin"}).AllPages(ctx)
	must("projects", err)
	all, err := projects.ExtractProjects(pages)
	must("projects", err)
	s.project = all[0].ID
	image, err := images.Create(ctx, glance, images.CreateOpts{Name: "debian-12", ContainerFormat: "bare", DiskFormat: "raw"}).Extract()
	must("image", err)
	must("image's data", imagedata.Upload(ctx, glance, image.ID, strings.NewReader(strings.Repeat("x", 1<<20))).ExtractErr())
	up, disk := true, 1
	net, err := networks.Create(ctx, neutron, networks.CreateOpts{Name: "nodes", AdminStateUp: &up}).Extract()
	must("network", err)
	_, err = subnets.Create(ctx, neutron, subnets.CreateOpts{NetworkID: net.ID, CIDR: nodes.String(), IPVersion: 4}).Extract()
	must("subnet", err)
	_, err = flavors.Create(ctx, s.nova, flavors.CreateOpts{Name: "small", RAM: 64, VCPUs: 1, Disk: &disk}).Extract()
	must("flavor", err)
	s.await(ctx, "a hypervisor", func() error {
		out, err := s.machine.Run(ctx, "mysql", "-N", "-e", "select count(*) from nova.services where `binary`='nova-compute' and last_seen_up > now() - interval 30 second")
		if err == nil && strings.TrimSpace(out) == "0" {
			err = fmt.Errorf("no nova-compute reports")
		}
		return err
	})
}

// nodes is the network of the machines; its addresses are the test's own.
var nodes = netip.MustParsePrefix("10.80.0.0/24")

// hypervisor starts an SSH server for each server that Nova's fake hypervisor says
// it runs, at the address that Neutron gave it, with the key of its user data.
func (s *site) hypervisor(ctx context.Context, fleet *providertest.Fleet) {
	running := map[string]string{} // address by server
	for ctx.Err() == nil {
		pages, err := servers.List(s.nova, servers.ListOpts{AllTenants: true}).AllPages(ctx)
		var list []struct {
			ID        string
			Status    string
			Addresses map[string][]address
			UserData  string `json:"OS-EXT-SRV-ATTR:user_data"`
		}
		if err == nil {
			err = servers.ExtractServersInto(pages, &list)
		}
		if err != nil {
			continue // it is asked again
		}
		there := map[string]bool{}
		for _, x := range list {
			there[x.ID] = true
			if x.Status != "ACTIVE" || running[x.ID] != "" || len(x.Addresses["nodes"]) == 0 {
				continue
			}
			text, err := base64.StdEncoding.DecodeString(x.UserData)
			var d struct {
				Users []struct {
					Keys []string `yaml:"ssh_authorized_keys"`
				}
			}
			if err == nil {
				err = yaml.Unmarshal(text, &d)
			}
			if err != nil || len(d.Users) != 1 {
				s.t.Errorf("user data %q: %v", text, err)
				continue
			}
			running[x.ID] = fleet.BootAt(x.Addresses["nodes"][0].Addr, d.Users[0].Keys[0])
		}
		for id, address := range running {
			if !there[id] {
				fleet.Halt(address)
				delete(running, id)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// TestReal runs everything against a real OpenStack: Keystone, Glance, Placement,
// Neutron and Nova, whose hypervisor alone only pretends.
func TestReal(t *testing.T) {
	s := boot(t)
	ctx, cancel := context.WithCancel(t.Context())
	if err := s.lab.Own(nodes); err != nil {
		t.Fatal(err)
	}
	fill, done := context.WithTimeout(ctx, 5*time.Minute)
	defer done()
	s.fill(fill)
	fleet := providertest.NewFleet(t)
	var hypervisor sync.WaitGroup
	hypervisor.Go(func() { s.hypervisor(ctx, fleet) })
	t.Cleanup(hypervisor.Wait)
	t.Cleanup(cancel)

	// Trouble stands before Nova: the catalogue's address of it is passed by.
	nova, err := url.Parse(fmt.Sprintf("http://%s:8774", s.machine.Addr))
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(nova)
	proxy.Transport = &http.Transport{DisableKeepAlives: true}
	trouble := providertest.NewTroubled(t, proxy, func(r *http.Request, _ string) bool {
		return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/servers")
	})
	fields := map[string]any{
		"auth_url": s.keystone(), "username": "admin", "password": "secret", "project": "admin", "region": "regionOne", "networks": "nodes",
		"ssh_port": providertest.FleetPort, "ssh_dir": t.TempDir(), "zones": "nova",
	}
	p := instance.New(instance.Config{Type: New(nil).Describe(), Poll: 200 * time.Millisecond, Open: func(f *instance.Fields) instance.Cloud {
		c := open(f).(*cloud)
		login := c.login
		c.login = func(ctx context.Context) (*session, error) {
			s, err := login(ctx)
			if err == nil {
				s.compute.Endpoint = strings.Replace(s.compute.Endpoint, nova.Host, strings.TrimPrefix(trouble.URL, "http://"), 1)
			}
			return s, err
		}
		return c
	}})
	t.Cleanup(p.Close)
	all := &providertest.Instances{
		Provider: p, Fields: fields, Flavor: "small", Image: "debian-12", Confirms: true, Troubled: trouble,
		Throttled: providertest.Says(429, "Retry-After: 0", `{"overLimit": {"code": 429, "message": "This request was rate-limited."}}`),
		// The quota and the refusals are the real ones, below.
	}
	all.Try(t)

	node := func(change map[string]any) *providertest.Node {
		bad := map[string]any{}
		for k, v := range fields {
			bad[k] = v
		}
		for k, v := range change {
			bad[k] = v
		}
		n := providertest.New(t, bad, "n")
		n.Mesh, n.Flavor, n.Image = "mesh9", "small", "debian-12"
		return n
	}
	for says, x := range map[string]struct {
		change  map[string]any
		outcome proto.Outcome
	}{
		"credentials":           {map[string]any{"password": "wrong"}, proto.Outcome_OUTCOME_FATAL},
		"there is no network":   {map[string]any{"networks": "no-such"}, proto.Outcome_OUTCOME_FATAL},
		"availability zone":     {map[string]any{"zones": "no-such"}, proto.Outcome_OUTCOME_FATAL},
		"connection refused":    {map[string]any{"auth_url": fmt.Sprintf("http://%s:1/v3", s.machine.Addr)}, proto.Outcome_OUTCOME_NOTHING_DONE},
		"no suitable endpoint":  {map[string]any{"region": "elsewhere"}, proto.Outcome_OUTCOME_FATAL},
		"could not find projec": {map[string]any{"project": "no-such"}, proto.Outcome_OUTCOME_FATAL},
	} {
		n := node(x.change)
		if err := n.Do("CREATE", p.Create); sdk.OutcomeOf(err) != x.outcome {
			t.Errorf("%s: %v: %v", says, sdk.OutcomeOf(err), err)
		}
	}
	none := 0
	if _, err := quotasets.Update(ctx, s.nova, s.project, quotasets.UpdateOpts{Instances: &none}).Extract(); err != nil {
		t.Fatal(err)
	}
	if err := node(nil).Do("CREATE", p.Create); sdk.OutcomeOf(err) != proto.Outcome_OUTCOME_NOTHING_DONE || !strings.Contains(err.Error(), "uota") {
		t.Errorf("no quota: %v", err)
	}
	if left, err := servers.List(s.nova, servers.ListOpts{AllTenants: true}).AllPages(ctx); err != nil {
		t.Error(err)
	} else if list, err := servers.ExtractServers(left); err != nil || len(list) > 0 {
		t.Errorf("left: %+v %v", list, err)
	}
}
