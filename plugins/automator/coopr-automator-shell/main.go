// Coopr-automator-shell is the plugin of the automator type "shell".
//
// Its settings (plugins: in the agent's configuration) have one field: scripts,
// the folders with scripts, the first one first.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/coopr/coopr/plugins/automator/shell"
	"github.com/coopr/coopr/plugins/sdk"
)

func main() {
	scripts, err := folders(os.Getenv("COOPR_PLUGIN_SETTINGS"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "coopr-automator-shell: settings:", err)
		os.Exit(2)
	}
	cfg := shell.Config{Path: os.Getenv("PATH"), Scripts: scripts}
	if self, err := os.Executable(); err == nil {
		cfg.Bin = filepath.Dir(strings.TrimSuffix(self, " (deleted)"))
	}
	a := shell.New(cfg)
	defer a.Close()
	sdk.Serve(sdk.Plugin{Automator: a})
}

// folders reads the settings.
func folders(settings string) ([]string, error) {
	if settings == "" {
		return nil, nil
	}
	var s struct {
		Scripts []string `json:"scripts"`
	}
	d := json.NewDecoder(bytes.NewReader([]byte(settings)))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return nil, fmt.Errorf("not {scripts: [folder, …]}: %w", err)
	}
	for i, dir := range s.Scripts {
		if !filepath.IsAbs(dir) {
			return nil, fmt.Errorf("scripts[%d]: %q is not an absolute path", i, dir)
		}
	}
	return s.Scripts, nil
}
