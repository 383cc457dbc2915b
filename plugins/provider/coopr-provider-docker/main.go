// Coopr-provider-docker is the plugin of the provider type "docker". Its settings are keys, the
// folders with private keys that containers accept.
package main

import (
	"fmt"
	"os"

	"github.com/coopr/coopr/plugins/provider/docker"
	"github.com/coopr/coopr/plugins/provider/instance"
	"github.com/coopr/coopr/plugins/remote/ssh"
	"github.com/coopr/coopr/plugins/sdk"
)

func main() {
	keys, err := sdk.Settings(ssh.KeysFromSettings)
	if err != nil {
		fmt.Fprintln(os.Stderr, "coopr-provider-docker: settings:", err)
		os.Exit(2)
	}
	guard, err := instance.EnvGuard()
	if err != nil {
		fmt.Fprintln(os.Stderr, "coopr-provider-docker:", err)
		os.Exit(2)
	}
	p := docker.New(keys, guard)
	defer p.Close()
	sdk.Serve(sdk.Plugin{Provider: p})
}
