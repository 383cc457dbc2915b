package executor

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/coopr/coopr/agent/config"
)

// TestConfiguredPlugins checks that a configured plugin is searched in every folder, and
// that the path of a missing one is in the first folder.
func TestConfiguredPlugins(t *testing.T) {
	dir, bin := t.TempDir(), t.TempDir()
	for _, path := range []string{filepath.Join(bin, "coopr-x"), filepath.Join(bin, "coopr-both"), filepath.Join(dir, "coopr-both")} {
		if err := os.WriteFile(path, nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		p    config.Plugin
		want string
	}{
		{config.Plugin{Name: "x"}, filepath.Join(bin, "coopr-x")},
		{config.Plugin{Name: "both"}, filepath.Join(dir, "coopr-both")},
		{config.Plugin{Name: "none"}, filepath.Join(dir, "coopr-none")},
		{config.Plugin{Name: "y", Path: "coopr-x"}, filepath.Join(bin, "coopr-x")},
		{config.Plugin{Name: "z", Path: "/opt/z"}, "/opt/z"},
	} {
		if b, err := pluginBinary([]string{dir, bin}, c.p); err != nil || b.Path != c.want {
			t.Errorf("%+v: %s, %v", c.p, b.Path, err)
		}
	}
}
