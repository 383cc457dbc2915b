package instance

import (
	"fmt"
	"os"

	"github.com/coopr/coopr/plugins/remote/ssh"
	"github.com/coopr/coopr/plugins/sdk"
)

// Serve is the main function of a provider of rented machines. The plugin's settings are keys, the
// folders with private keys for the field ssh_identityfile.
func Serve(provider func(ssh.Keys) *Provider) {
	keys, err := sdk.Settings(ssh.KeysFromSettings)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: settings: %v\n", os.Args[0], err)
		os.Exit(2)
	}
	guard, err := EnvGuard()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[0], err)
		os.Exit(2)
	}
	p := provider(keys)
	defer p.Close()
	p.Protect(guard)
	sdk.Serve(sdk.Plugin{Provider: p})
}
