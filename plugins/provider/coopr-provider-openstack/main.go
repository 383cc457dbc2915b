// Coopr-provider-openstack is the plugin of the provider type "openstack".
package main

import (
	"github.com/coopr/coopr/plugins/provider/instance"
	"github.com/coopr/coopr/plugins/provider/openstack"
)

func main() { instance.Serve(openstack.New) }
