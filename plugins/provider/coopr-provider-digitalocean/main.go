// Coopr-provider-digitalocean is the plugin of the provider type "digitalocean".
package main

import (
	"github.com/coopr/coopr/plugins/provider/digitalocean"
	"github.com/coopr/coopr/plugins/provider/instance"
)

func main() { instance.Serve(digitalocean.New) }
