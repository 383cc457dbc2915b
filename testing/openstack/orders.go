package openstack

import (
	"context"
	"fmt"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/keypairs"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/quotasets"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/services"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
)

func (c *Cloud) context() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 5*time.Minute)
}

// Quota sets the number of servers that the project may have.
func (c *Cloud) Quota(instances int) {
	c.t.Helper()
	ctx, cancel := c.context()
	defer cancel()
	_, err := quotasets.Update(ctx, c.nova, c.Project, quotasets.UpdateOpts{Instances: &instances}).Extract()
	c.must("quota", err)
}

// Hosts enables or disables all compute hosts. While they are disabled, new servers end in the
// state ERROR.
func (c *Cloud) Hosts(enabled bool) {
	c.t.Helper()
	ctx, cancel := c.context()
	defer cancel()
	of := *c.nova
	of.Microversion = "2.53" // the first in which services have ids
	pages, err := services.List(&of, services.ListOpts{Binary: "nova-compute"}).AllPages(ctx)
	c.must("hosts", err)
	list, err := services.ExtractServices(pages)
	c.must("hosts", err)
	status := services.ServiceDisabled
	if enabled {
		status = services.ServiceEnabled
	}
	for _, x := range list {
		_, err := services.Update(ctx, &of, x.ID, services.UpdateOpts{Status: status}).Extract()
		c.must("host "+x.Host, err)
	}
}

// Servers returns the addresses of all servers by server id. It fails if a server is not ACTIVE.
func (c *Cloud) Servers() (map[string]string, error) {
	ctx, cancel := c.context()
	defer cancel()
	list, err := c.servers(ctx)
	all := map[string]string{}
	for _, s := range list {
		if s.Status != "ACTIVE" {
			return nil, fmt.Errorf("server %s is %s", s.Name, s.Status)
		}
		all[s.ID] = s.address().String()
	}
	return all, err
}

// Empty waits until there are no servers, no ports and no key pairs of User.
func (c *Cloud) Empty() {
	c.t.Helper()
	ctx, cancel := c.context()
	defer cancel()
	c.await(ctx, "nothing to be left", func(ctx context.Context) error {
		list, err := c.servers(ctx)
		if err != nil {
			return err
		}
		pages, err := ports.List(c.neutron, ports.ListOpts{}).AllPages(ctx)
		if err != nil {
			return err
		}
		left, err := ports.ExtractPorts(pages)
		if err != nil {
			return err
		}
		of := *c.nova
		of.Microversion = "2.10" // the first in which administrators see the keys of others
		if pages, err = keypairs.List(&of, keypairs.ListOpts{UserID: c.user}).AllPages(ctx); err != nil {
			return err
		}
		keys, err := keypairs.ExtractKeyPairs(pages)
		if err == nil && len(list)+len(left)+len(keys) > 0 {
			err = fmt.Errorf("%d servers, %d ports, %d key pairs", len(list), len(left), len(keys))
		}
		return err
	})
}
