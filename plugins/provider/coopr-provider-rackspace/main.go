// Coopr-provider-rackspace is the plugin of the provider type "rackspace".
package main

import (
	"github.com/coopr/coopr/plugins/provider/instance"
	"github.com/coopr/coopr/plugins/provider/openstack"
)

func main() { instance.Serve(openstack.NewRackspace) }
