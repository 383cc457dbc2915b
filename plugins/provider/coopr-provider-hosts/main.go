// Coopr-provider-hosts is the plugin of the provider type "hosts". Its settings are keys, the
// folders with the private keys of machines.
package main

import (
	"fmt"
	"os"

	"github.com/coopr/coopr/plugins/provider/hosts"
	"github.com/coopr/coopr/plugins/remote/ssh"
	"github.com/coopr/coopr/plugins/sdk"
)

func main() {
	keys, err := sdk.Settings(ssh.KeysFromSettings)
	if err != nil {
		fmt.Fprintln(os.Stderr, "coopr-provider-hosts: settings:", err)
		os.Exit(2)
	}
	p := hosts.New(keys)
	defer p.Close()
	sdk.Serve(sdk.Plugin{Provider: p})
}
