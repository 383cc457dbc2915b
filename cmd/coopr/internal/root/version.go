package root

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

func versionCmd(out *output.Printer, version string) *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "Show the version of this command", Args: cli.Args(),
		Example: "  coopr version\n  coopr version -o json"}
	cli.FormFlag(cmd, output.FormTable, output.FormJSON, output.FormYAML)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := cli.ReadForm(out, cmd); err != nil {
			return err
		}
		v := struct {
			Version string `json:"version"`
			Commit  string `json:"commit,omitempty"`
			Go      string `json:"go"`
		}{Version: version, Go: runtime.Version()}
		if info, ok := debug.ReadBuildInfo(); ok {
			if v.Version == "" {
				v.Version = info.Main.Version
			}
			for _, s := range info.Settings {
				if s.Key == "vcs.revision" {
					v.Commit = s.Value
				}
			}
		}
		if v.Version == "" || v.Version == "(devel)" {
			v.Version = "development"
		}
		if out.Structured() {
			return out.Encode(v)
		}
		out.Printf("coopr %s", v.Version)
		if v.Commit != "" {
			out.Printf(" (%s)", v.Commit)
		}
		out.Printf(", %s\n", v.Go)
		return nil
	}
	return cmd
}
