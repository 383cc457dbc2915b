// Coopr-provider-local is the plugin of the provider type "local". Called by the name coopr-node it
// is that program, so that nodes work without another installed file.
package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/coopr/coopr/plugins/provider/local"
	"github.com/coopr/coopr/plugins/provider/local/machine"
	"github.com/coopr/coopr/plugins/sdk"
)

func main() {
	if filepath.Base(os.Args[0]) == "coopr-node" {
		os.Exit(machine.Main(os.Args[1:], os.Stdout, os.Stderr))
	}
	sdk.Serve(sdk.Plugin{Provider: local.New(os.Getenv("COOPR_LOCAL_ROOT"), program())})
}

// program returns the path of coopr-node: the small program in the folder of this binary, or this
// binary itself.
func program() string {
	self, err := os.Executable()
	if err != nil {
		return ""
	}
	self = strings.TrimSuffix(self, " (deleted)") // the file was replaced by a newer one
	small := filepath.Join(filepath.Dir(self), "coopr-node")
	if fi, err := os.Stat(small); err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0 {
		return small
	}
	return self
}
