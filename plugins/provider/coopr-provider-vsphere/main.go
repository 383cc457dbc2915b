// Coopr-provider-vsphere is the plugin of the provider type "vsphere".
package main

import (
	"github.com/coopr/coopr/plugins/provider/instance"
	"github.com/coopr/coopr/plugins/provider/vsphere"
)

func main() { instance.Serve(vsphere.New) }
