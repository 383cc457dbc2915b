package openstack

import (
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/endpoints"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/services"

	"github.com/coopr/coopr/plugins/provider/providertest"
)

// Troubled returns a proxy before Nova that causes faults in requests for new servers. The
// catalogue's interface "internal" then leads to the proxy, and "public" still leads to Nova.
func (c *Cloud) Troubled() *providertest.Troubled {
	c.t.Helper()
	nova, err := url.Parse("http://" + c.Host + ":8774")
	c.must("Nova's address", err)
	proxy := httputil.NewSingleHostReverseProxy(nova)
	proxy.Transport = plain.Transport
	trouble := providertest.NewTroubled(c.t, proxy, func(r *http.Request, _ string) bool {
		return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/servers")
	})
	ctx, cancel := c.context()
	defer cancel()
	pages, err := services.List(c.identity, services.ListOpts{ServiceType: "compute"}).AllPages(ctx)
	c.must("services", err)
	compute, err := services.ExtractServices(pages)
	c.must("services", err)
	pages, err = endpoints.List(c.identity, endpoints.ListOpts{ServiceID: compute[0].ID,
		Availability: gophercloud.AvailabilityInternal}).AllPages(ctx)
	c.must("endpoints", err)
	list, err := endpoints.ExtractEndpoints(pages)
	c.must("endpoints", err)
	_, err = endpoints.Update(ctx, c.identity, list[0].ID, endpoints.UpdateOpts{URL: trouble.URL + "/v2.1"}).Extract()
	c.must("endpoint", err)
	return trouble
}
