// Coopr-provider-joyent is the plugin of the provider type "joyent".
package main

import (
	"github.com/coopr/coopr/plugins/provider/instance"
	"github.com/coopr/coopr/plugins/provider/joyent"
)

func main() { instance.Serve(joyent.New) }
