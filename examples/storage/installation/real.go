package installation

import (
	"fmt"
	"path"

	"github.com/coopr/coopr/engine/change/site"
)

// Real turns an installation into one that can be tried on any machine: below a
// folder every configuration is a file, and everything else a script that notes
// what it does in the folder's log. Nothing is installed, nothing needs storage.
func Real(d *site.Document, dir string) {
	for i := range d.Objects {
		o := &d.Objects[i]
		version := fmt.Sprint(o.Content["version"])
		if base, ok := o.Content["base"]; ok {
			version += fmt.Sprint(".", base)
		}
		if o.Type == "filetree" {
			o.Content = map[string]any{"root": path.Join(dir, o.Name), "files": map[string]any{
				"settings.conf": map[string]any{"content": fmt.Sprintf("# %s\nversion = %s\n", o.Name, version), "mode": "0640"},
			}}
			continue
		}
		note := func(action string) string { return fmt.Sprintf("echo %s %s >>%s/log", o.Name, action, dir) }
		o.Type = "script"
		o.Content = map[string]any{"version": version, "start": note("start"), "stop": note("stop"), "restart": note("restart")}
	}
}
