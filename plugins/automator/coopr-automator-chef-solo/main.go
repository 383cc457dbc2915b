// Coopr-automator-chef-solo is the plugin of the automator type "chef-solo". Its settings are
// cookbooks, data_bags and roles (folders that are sent to nodes) and keys (folders with the
// private keys of nodes that are reached over SSH).
package main

import (
	"fmt"
	"os"

	"github.com/coopr/coopr/plugins/automator/chef"
	"github.com/coopr/coopr/plugins/sdk"
)

func main() {
	cfg, err := sdk.Settings(chef.ParseConfig)
	if err != nil {
		fmt.Fprintln(os.Stderr, "coopr-automator-chef-solo: settings:", err)
		os.Exit(2)
	}
	a := chef.New(*cfg)
	defer a.Close()
	sdk.Serve(sdk.Plugin{Automator: a})
}
