// Coopr-provider-libvirt is the plugin of the provider type "libvirt".
package main

import (
	"github.com/coopr/coopr/plugins/provider/instance"
	"github.com/coopr/coopr/plugins/provider/libvirt"
)

func main() { instance.Serve(libvirt.New) }
