// Coopr-automator-docker is the plugin of the automator type "docker". Its settings are keys, the
// folders with the private keys of nodes that are reached over SSH.
package main

import (
	"fmt"
	"os"

	"github.com/coopr/coopr/plugins/automator/docker"
	"github.com/coopr/coopr/plugins/remote/ssh"
	"github.com/coopr/coopr/plugins/sdk"
)

func main() {
	keys, err := sdk.Settings(ssh.KeysFromSettings)
	if err != nil {
		fmt.Fprintln(os.Stderr, "coopr-automator-docker: settings:", err)
		os.Exit(2)
	}
	a := docker.New(keys)
	defer a.Close()
	sdk.Serve(sdk.Plugin{Automator: a})
}
