package operation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/plan/tree"
	"github.com/coopr/coopr/internal/words"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

func explainCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	var limit int
	cmd := &cobra.Command{
		Use: "explain ID", Short: "Show why an operation does not continue: what each step waits for", Args: cli.Args("ID"),
		Example:           "  coopr operation explain 00000001-001\n  coopr operation explain 00000001-001 --limit 1000 -o json",
		ValidArgsFunction: cli.CompleteOperations(app),
	}
	cli.FormFlag(cmd, output.FormTable, output.FormJSON, output.FormYAML)
	cmd.Flags().IntVar(&limit, "limit", 0, "show at most this many steps (default 100); steps that do not wait for other steps come first")
	cmd.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		e, _, err := c.Explain(ctx, args[0], limit, client.Read{})
		if err != nil {
			return err
		}
		if out.Structured() {
			return out.Encode(e)
		}
		waiting := 0
		var kinds []string
		for _, k := range slices.Sorted(maps.Keys(e.Waiting)) {
			waiting += e.Waiting[k]
			kinds = append(kinds, fmt.Sprintf("%d for %s", e.Waiting[k], waitsFor[k]))
		}
		out.Printf("Plan %s is %s: %s done, %d running, %d waiting.\n", e.Plan, out.Status(e.Status), words.Count(e.Done, "step"), e.Running,
			waiting)
		for _, w := range e.Waits {
			out.Printf("The plan waits: %s\n", w.Text)
		}
		if len(e.Skipped) > 0 {
			out.Printf("Left out, as the machine is gone: %s.\n", words.And(e.Skipped))
		}
		if waiting == 0 {
			return nil
		}
		out.Printf("Waiting: %s.\n\n", strings.Join(kinds, ", "))
		t := output.Table{Head: []string{"STEP", "PHASE", "STATUS", "WAITS FOR"}}
		for _, s := range e.Steps {
			for i, w := range s.Waits {
				if i == 0 {
					t.Row(s.Name, s.Phase, s.Status, w.Text)
				} else {
					t.Row(" ", " ", " ", w.Text)
				}
			}
		}
		out.Show(t)
		if waiting > len(e.Steps) {
			out.Notef("%d of %d shown; see --limit\n", len(e.Steps), waiting)
		}
		return nil
	})
	return cmd
}

// waitsFor names, for each kind of waiting, what the steps wait for.
var waitsFor = map[string]string{
	tree.WaitsGate: "an operator", tree.WaitsDependency: "earlier steps", tree.WaitsFailed: "failed steps",
	tree.WaitsDelay: "the time of the next attempt",
	tree.WaitsNode:  "their node", tree.WaitsPlan: "another plan", tree.WaitsLimit: "their provider's limit",
	tree.WaitsPlugin: "an agent with the plugin",
	tree.WaitsWorker: "a free worker", tree.WaitsNothing: "nothing",
}
