package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/client"
)

// version is set by the linker in releases.
var version = ""

func (a *app) versionCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "Show the version of this command", Args: args(), Example: "  coopr version\n  coopr version -o json"}
	a.outputFlag(cmd, asTable, asJSON, asYAML)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := a.checkOutput(cmd); err != nil {
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
		if a.structured() {
			return a.print(v)
		}
		fmt.Fprintf(a.out, "coopr %s", v.Version)
		if v.Commit != "" {
			fmt.Fprintf(a.out, " (%s)", v.Commit)
		}
		fmt.Fprintf(a.out, ", %s\n", v.Go)
		return nil
	}
	return cmd
}

var errEnough = errors.New("enough events")

func encodeLine(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

func tenantOrNew(ctx context.Context, c *client.Client, name string) (t model.Tenant, created bool, err error) {
	t, _, err = c.TenantByName(ctx, name, client.Read{})
	if errors.Is(err, client.ErrNotFound) {
		return model.Tenant{Name: name}, true, nil
	}
	return t, false, err
}
