// Coopr-automator-shell is the plugin of the automator type "shell".
//
// COOPR_SHELL_SCRIPTS are the folders with scripts, separated by colons.
package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/coopr/coopr/plugins/automator/shell"
	"github.com/coopr/coopr/plugins/sdk"
)

func main() {
	cfg := shell.Config{Path: os.Getenv("PATH")}
	if s := os.Getenv("COOPR_SHELL_SCRIPTS"); s != "" {
		cfg.Scripts = filepath.SplitList(s)
	}
	if self, err := os.Executable(); err == nil {
		cfg.Bin = filepath.Dir(strings.TrimSuffix(self, " (deleted)"))
	}
	a := shell.New(cfg)
	defer a.Close()
	sdk.Serve(sdk.Plugin{Automator: a})
}
