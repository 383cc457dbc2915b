// Coopr-automator-ansible is the plugin of the automator type "ansible". Its settings are playbooks
// (folders of playbooks), program (the path of ansible-playbook) and keys (folders with the private
// keys of nodes that are reached over SSH).
package main

import (
	"fmt"
	"os"

	"github.com/coopr/coopr/plugins/automator/ansible"
	"github.com/coopr/coopr/plugins/sdk"
)

func main() {
	cfg, err := sdk.Settings(ansible.ParseConfig)
	if err != nil {
		fmt.Fprintln(os.Stderr, "coopr-automator-ansible: settings:", err)
		os.Exit(2)
	}
	a := ansible.New(*cfg)
	defer a.Close()
	sdk.Serve(sdk.Plugin{Automator: a})
}
