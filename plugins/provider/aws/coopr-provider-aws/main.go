// Coopr-provider-aws is the plugin of the provider type "aws".
package main

import (
	"github.com/coopr/coopr/plugins/provider/aws"
	"github.com/coopr/coopr/plugins/provider/instance"
)

func main() { instance.Serve(aws.New) }
