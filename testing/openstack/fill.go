package openstack

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	gophercloudstack "github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/flavors"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/applicationcredentials"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/projects"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/roles"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/users"
	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/imagedata"
	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/images"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/subnets"
)

// The contents of a new cloud.
const (
	Project  = "web"    // a project, where User has the role member and no other
	User     = "coopr"  // its password is Password
	Password = "secret" // of User and of the administrator
	Region   = "regionOne"
	Zone     = "nova"
	Flavor   = "small"
	Image    = "debian-12"
	Network  = "nodes" // the project's only one
)

// login logs a user in, with a client that keeps no connections.
func (c *Cloud) login(ctx context.Context, auth gophercloud.AuthOptions) (*gophercloud.ProviderClient, error) {
	p, err := gophercloudstack.NewClient(c.Keystone)
	if err != nil {
		return nil, err
	}
	p.HTTPClient = plain
	auth.IdentityEndpoint, auth.DomainName, auth.AllowReauth = c.Keystone, "Default", true
	return p, gophercloudstack.Authenticate(ctx, p, auth)
}

func (c *Cloud) must(what string, err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatalf("%s: %v", what, err)
	}
}

// fill creates everything that the constants above name in a new cloud.
func (c *Cloud) fill(ctx context.Context, network, pool netip.Prefix) {
	var admin *gophercloud.ProviderClient
	c.await(ctx, "a login", func(ctx context.Context) (err error) {
		admin, err = c.login(ctx, gophercloud.AuthOptions{Username: "admin", Password: Password, TenantName: "admin"})
		return err
	})
	where := gophercloud.EndpointOpts{Region: Region}
	var err error
	c.nova, err = gophercloudstack.NewComputeV2(admin, where)
	c.must("nova", err)
	c.nova.Microversion = "2.3" // the first in which administrators see user data
	c.glance, err = gophercloudstack.NewImageV2(admin, where)
	c.must("glance", err)
	c.neutron, err = gophercloudstack.NewNetworkV2(admin, where)
	c.must("neutron", err)
	c.identity, err = gophercloudstack.NewIdentityV3(admin, where)
	c.must("keystone", err)

	project, err := projects.Create(ctx, c.identity, projects.CreateOpts{Name: Project}).Extract()
	c.must("project", err)
	c.Project = project.ID
	user, err := users.Create(ctx, c.identity, users.CreateOpts{Name: User, Password: Password}).Extract()
	c.must("user", err)
	c.user = user.ID
	pages, err := roles.List(c.identity, roles.ListOpts{Name: "member"}).AllPages(ctx)
	c.must("roles", err)
	member, err := roles.ExtractRoles(pages)
	c.must("roles", err)
	c.must("role", roles.Assign(ctx, c.identity, member[0].ID, roles.AssignOpts{UserID: user.ID, ProjectID: project.ID}).ExtractErr())

	public := images.ImageVisibilityPublic
	image, err := images.Create(ctx, c.glance, images.CreateOpts{Name: Image, ContainerFormat: "bare", DiskFormat: "raw",
		Visibility: &public}).Extract()
	c.must("image", err)
	c.must("image's data", imagedata.Upload(ctx, c.glance, image.ID, strings.NewReader(strings.Repeat("x", 1<<20))).ExtractErr())
	disk := 1
	_, err = flavors.Create(ctx, c.nova, flavors.CreateOpts{Name: Flavor, RAM: 64, VCPUs: 1, Disk: &disk}).Extract()
	c.must("flavor", err)
	net, err := networks.Create(ctx, c.neutron, networks.CreateOpts{Name: Network, ProjectID: c.Project}).Extract()
	c.must("network", err)
	first := pool.Addr().Next().Next()
	last := netip.AddrFrom4([4]byte{first.As4()[0], first.As4()[1], first.As4()[2], 254})
	_, err = subnets.Create(ctx, c.neutron, subnets.CreateOpts{
		NetworkID: net.ID, ProjectID: c.Project, CIDR: network.String(), IPVersion: 4,
		AllocationPools: []subnets.AllocationPool{{Start: first.String(), End: last.String()}},
	}).Extract()
	c.must("subnet", err)

	// A server that is requested before both have reported since the boot fails.
	for what, query := range map[string]string{
		"nova-compute":      "select count(*) from nova.services where `binary`='nova-compute' and unix_timestamp(last_seen_up) > %d",
		"Neutron's bridges": "select count(*) from neutron.agents where `binary`='neutron-linuxbridge-agent' and unix_timestamp(started_at) > %d",
	} {
		c.await(ctx, what, func(ctx context.Context) error {
			out, err := c.machine.Run(ctx, "mysql", "-N", "-e", fmt.Sprintf(query, c.booted.Unix()))
			if err == nil && strings.TrimSpace(out) == "0" {
				err = fmt.Errorf("it has not reported")
			}
			return err
		})
	}
}

// Credential creates an application credential of User and returns its id and secret. The
// credential is limited to rules, each "SERVICE METHOD PATH".
func (c *Cloud) Credential(rules []string) (id, secret string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	p, err := c.login(ctx, gophercloud.AuthOptions{Username: User, Password: Password, TenantName: Project})
	c.must("login", err)
	identity, err := gophercloudstack.NewIdentityV3(p, gophercloud.EndpointOpts{Region: Region})
	c.must("keystone", err)
	var list []applicationcredentials.AccessRule
	for _, r := range rules {
		f := strings.Fields(r)
		list = append(list, applicationcredentials.AccessRule{Service: f[0], Method: f[1], Path: f[2]})
	}
	made, err := applicationcredentials.Create(ctx, identity, c.user,
		applicationcredentials.CreateOpts{Name: fmt.Sprintf("coopr%d", time.Now().UnixNano()), AccessRules: list}).Extract()
	c.must("application credential", err)
	return made.ID, made.Secret
}
