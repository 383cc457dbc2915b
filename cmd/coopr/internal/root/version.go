package root

import (
	"runtime"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/output"
	"github.com/coopr/coopr/internal/release"
)

func versionCmd(out *output.Printer) *cobra.Command {
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
		}{Version: release.Version(), Commit: release.Commit(), Go: runtime.Version()}
		return out.Result(v, func() { out.Printf("%s\n", release.Text("coopr")) })
	}
	return cmd
}
