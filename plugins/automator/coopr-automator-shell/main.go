// Coopr-automator-shell is the plugin of the automator type "shell".
//
// Its settings (plugins: in the agent's configuration) are scripts, the folders of scripts, and
// keys, the folders with the private keys of nodes that are reached over SSH, both in order of
// preference.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/coopr/coopr/plugins/automator/shell"
	"github.com/coopr/coopr/plugins/sdk"
)

func main() {
	set, err := sdk.Settings(readSettings)
	if err != nil {
		fmt.Fprintln(os.Stderr, "coopr-automator-shell: settings:", err)
		os.Exit(2)
	}
	cfg := shell.Config{Path: os.Getenv("PATH"), Scripts: set.Scripts, Keys: set.Keys}
	if self, err := os.Executable(); err == nil {
		cfg.Bin = filepath.Dir(strings.TrimSuffix(self, " (deleted)"))
	}
	a := shell.New(cfg)
	defer a.Close()
	sdk.Serve(sdk.Plugin{Automator: a})
}

// settings are lists of folders.
type settings struct {
	Scripts []string `json:"scripts"`
	Keys    []string `json:"keys"`
}

// readSettings decodes the settings. The error names every faulty folder.
func readSettings(text string) (*settings, error) {
	s := &settings{}
	if text == "" {
		return s, nil
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(s); err != nil {
		return nil, fmt.Errorf("must have the form {scripts: [folder, …], keys: [folder, …]}: %w", err)
	}
	var faults []error
	for name, dirs := range map[string][]string{"scripts": s.Scripts, "keys": s.Keys} {
		for i, dir := range dirs {
			if !filepath.IsAbs(dir) {
				faults = append(faults, fmt.Errorf("%s[%d]: %q is not an absolute path", name, i, dir))
			}
		}
	}
	return s, errors.Join(faults...)
}
