// Coopr-provider-gcp is the plugin of the provider type "gcp".
package main

import (
	"github.com/coopr/coopr/plugins/provider/gcp"
	"github.com/coopr/coopr/plugins/provider/instance"
)

func main() { instance.Serve(gcp.New) }
