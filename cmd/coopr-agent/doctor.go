package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/agent/doctor"
	"github.com/coopr/coopr/internal/release"
)

// errUnwell is the error of an examination that has found a failure.
var errUnwell = errors.New("a check failed: see above")

func doctorCommand() *cobra.Command {
	var structured bool
	c := &cobra.Command{
		Use: "doctor", Short: "Examine this machine and the folders of its agent", Args: cobra.NoArgs,
		Long: "Checks what an agent needs: configuration, folders, identity, certificates, keyring, disk, journal, log, ports, limits,\n" +
			"clock, plugins and their confinement, and the other voters. It works while the agent runs or not, and changes nothing. Run it as\n" +
			"the agent's user.\n" +
			"The exit code is 0 if there are no failures, though there may be warnings, and 1 otherwise.",
		Example: "  runuser -u coopr -- coopr-agent doctor --config /etc/coopr/agent.yaml\n  coopr-agent doctor --data-dir /var/lib/coopr --json",
	}
	c.Flags().BoolVar(&structured, "json", false, "print the findings as JSON")
	load := settings(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		var list []doctor.Finding
		cfg, err := load()
		switch {
		case err != nil:
			list = doctor.Invalid(err)
		case cfg.DataDir == "":
			return usageError{errors.New("set data_dir, or --data-dir")}
		default:
			list = doctor.Examine(c.Context(), cfg, release.Build())
		}
		if err := printFindings(c.OutOrStdout(), list, structured); err != nil {
			return err
		}
		if doctor.Worst(list) == doctor.Fail {
			return errUnwell
		}
		return nil
	}
	return c
}

// printFindings prints findings for people or as JSON.
func printFindings(out io.Writer, list []doctor.Finding, structured bool) error {
	if structured {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(list)
	}
	for _, f := range list {
		if _, err := fmt.Fprintf(out, "%-5s %-14s %s\n", f.Level, f.Check, f.Message); err != nil {
			return err
		}
		if f.Advice != "" {
			if _, err := fmt.Fprintf(out, "%-5s %-14s → %s\n", "", "", f.Advice); err != nil {
				return err
			}
		}
	}
	return nil
}
