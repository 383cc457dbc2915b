package definition

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/model/decode"
	"github.com/coopr/coopr/engine/solver"
	"github.com/coopr/coopr/internal/words"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

// templateLintCmd checks a template of the mesh, or the definitions in a file.
func templateLintCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	cmd := &cobra.Command{
		Use: "lint NAME|FILE", Short: "Check a cluster template, or a file of definitions, for faults", Args: cli.Args("NAME|FILE"),
		Long: `Check a cluster template in the mesh, or the definitions in a JSON or YAML file
as if they were imported now; - is the standard input. Nothing is written. The
exit code is 1 if there are faults.`,
		Example:           "  coopr template lint shop\n  coopr template lint shop.yaml",
		ValidArgsFunction: cli.CompleteDefinitions(app, model.KindClusterTemplate),
	}
	cli.FormFlag(cmd, output.FormTable, output.FormJSON, output.FormYAML)
	cmd.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		var found api.Linted
		var err error
		if isFile(args[0]) {
			found, err = lintFile(ctx, app, c, args[0])
		} else {
			found, _, err = c.LintTemplate(ctx, args[0], client.Read{})
		}
		if err != nil {
			return err
		}
		err = out.Result(found, func() { showLinted(out, found) })
		if err == nil && len(found.Faults) > 0 {
			err = cli.ErrReported
		}
		return err
	})
	return cmd
}

// isFile reports whether an argument names a file rather than a template.
func isFile(name string) bool {
	if name == "-" || strings.Contains(name, "/") {
		return true
	}
	for _, end := range []string{".json", ".yaml", ".yml"} {
		if strings.HasSuffix(strings.ToLower(name), end) {
			return true
		}
	}
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}

// lintFile checks the definitions in a file against the mesh.
func lintFile(ctx context.Context, app cli.App, c *client.Client, file string) (api.Linted, error) {
	out := app.Printer()
	defs, faults, err := gather(app, []string{file})
	if err != nil {
		return api.Linted{}, err
	}
	body := map[model.Kind][]json.RawMessage{}
	for _, d := range defs {
		if ok, why := d.Imports(); !ok {
			out.Notef("%s: left out: %s\n", d.Source, why)
			continue
		}
		raw, err := model.Encode(d)
		if err != nil {
			return api.Linted{}, err
		}
		body[d.Kind] = append(body[d.Kind], raw)
	}
	if len(body) == 0 {
		if len(faults) == 0 {
			return api.Linted{}, fmt.Errorf("there are no definitions in %s; files with definitions end in .json, .yaml or .yml", file)
		}
		return api.Linted{Faults: faults}, nil
	}
	found, _, err := c.Lint(ctx, body)
	found.Faults, found.Warnings = append(faults, named(found.Faults, defs)...), named(found.Warnings, defs)
	return found, err
}

// showLinted shows faults and warnings.
func showLinted(out *output.Printer, found api.Linted) {
	for _, f := range found.Faults {
		out.Printf("%s %s\n", out.Paint(output.Red, "fault:"), f)
	}
	for _, w := range found.Warnings {
		out.Printf("%s %s\n", out.Paint(output.Yellow, "warning:"), w)
	}
	for _, t := range found.Templates {
		if t.Smallest > 0 {
			out.Printf("The smallest cluster of template %s has %s.\n", t.Name, words.Count(t.Smallest, "node"))
		}
	}
	out.Printf("%s, %s.\n", words.Count(len(found.Faults), "fault"), words.Count(len(found.Warnings), "warning"))
}

// templateSolveCmd shows the layout of clusters of each size.
func templateSolveCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	var nodes, exclude string
	var budget int
	var req api.SolveRequest
	cmd := &cobra.Command{
		Use: "solve NAME|FILE --nodes 3..100", Short: "Show the layouts of clusters of a template, by number of nodes",
		Args: cli.Args("NAME|FILE"),
		Long: `Show the layouts of clusters of a template for each number of nodes: the number
of nodes of each kind, their services, the cost per hour, and for sizes without
a layout the reason. Nothing is created. Sizes with the same layout share a row;
in such a row, a count such as 2–99 grows with the size.

The template may also be a JSON or YAML file.`,
		Example: `  coopr template solve shop --nodes 3..100
  coopr template solve shop --nodes 5 --comparator cost -o json
  coopr template solve shop.yaml --nodes 1..20 --services nginx,php`,
		ValidArgsFunction: cli.CompleteDefinitions(app, model.KindClusterTemplate),
	}
	f := cmd.Flags()
	f.StringVarP(&nodes, "nodes", "n", "", "number of nodes, or a range such as 3..100 (required)")
	f.StringVar(&req.Provider, "provider", "", "provider (default: from the template)")
	f.StringVar(&req.HardwareType, "hardware", "", "hardware type of all nodes (default: from the template)")
	f.StringVar(&req.ImageType, "image", "", "image type of all nodes (default: from the template)")
	f.StringSliceVar(&req.Services, "services", nil, "services, separated by commas (default: from the template)")
	f.StringVar(&req.Comparator, "comparator", "",
		"which layouts to prefer: original, cost, or the comparator of a plugin (default: from the template)")
	f.StringVar(&exclude, "exclude", "", "file with a list of layouts to exclude")
	f.IntVar(&budget, "budget", 0, "limit of the search for all sizes together, in steps of about a microsecond")
	for flag, kind := range map[string]model.Kind{"provider": model.KindProvider, "hardware": model.KindHardwareType,
		"image": model.KindImageType} {
		cli.CompleteFlag(cmd, flag, cli.CompleteDefinitions(app, kind))
	}
	cli.FormFlag(cmd, output.FormTable, output.FormJSON, output.FormYAML)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		from, to, err := sizes(nodes)
		if err != nil {
			return cli.Usage(cmd, "--nodes: %v", err)
		}
		req.From, req.To, req.Budget = model.Int(from), model.Int(to), model.Int(budget)
		if exclude != "" {
			data, err := cli.ReadFile(app, exclude)
			if err != nil {
				return err
			}
			if err := decode.Strict(data, &req.Exclude); err != nil {
				return cli.InFile(err, exclude)
			}
		}
		if isFile(args[0]) {
			data, err := cli.ReadFile(app, args[0])
			if err != nil {
				return err
			}
			def, err := decode.Definition(model.KindClusterTemplate, data)
			if err != nil {
				return cli.InFile(err, args[0])
			}
			req.Template = def.Value.(*model.ClusterTemplate)
		} else {
			req.ClusterTemplate = args[0]
		}
		return cli.Run(app, func(ctx context.Context, c *client.Client, _ []string) error {
			solved, _, err := c.Solve(ctx, req)
			if err != nil {
				return err
			}
			if out.Structured() {
				return out.Encode(solved)
			}
			showSolved(out, solved)
			return nil
		})(cmd, args)
	}
	return cmd
}

// sizes parses "3..100" or "3".
func sizes(text string) (from, to int, err error) {
	if text == "" {
		return 0, 0, errors.New("give a number of nodes, or a range such as 3..100")
	}
	low, high, ranged := strings.Cut(text, "..")
	if !ranged {
		high = low
	}
	from, err = strconv.Atoi(strings.TrimSpace(low))
	if err == nil {
		to, err = strconv.Atoi(strings.TrimSpace(high))
	}
	if err != nil {
		return 0, 0, fmt.Errorf("%q is neither a number of nodes nor a range such as 3..100", text)
	}
	return from, to, nil
}

// showSolved shows the layouts as a table.
func showSolved(out *output.Printer, s api.Solved) {
	t := output.Table{Head: []string{"NODES", "COST/H", "COUNT", "HARDWARE", "IMAGE", "SERVICES"}}
	for _, r := range s.Sizes {
		size, cost := fromTo(strconv.Itoa(r.From), strconv.Itoa(r.To)), ""
		if r.Cost != nil {
			cost = fromTo(r.Cost.From.PerHour, r.Cost.To.PerHour)
		}
		if len(r.Layout) == 0 {
			t.Row(size, "", "0", "", "", none(r))
		}
		for i, g := range r.Layout {
			if i > 0 {
				size, cost = " ", " "
			}
			t.Row(size, cost, fromTo(strconv.Itoa(g.From), strconv.Itoa(g.To)), g.HardwareType, g.ImageType, strings.Join(g.Services, ", "))
		}
	}
	out.Show(t)
	out.Printf("\nChosen by comparator %s.\n", s.Comparator)
}

// none returns the reason why a range of sizes has no layout.
func none(r solver.SizeRange) string {
	if r.Undecided != "" {
		return "undecided: " + r.Undecided
	}
	words := make([]string, len(r.Conflict))
	for i, c := range r.Conflict {
		words[i] = c.Words
	}
	return "no layout: " + strings.Join(words, "; ")
}

// fromTo returns a range as text, or a single value.
func fromTo(from, to string) string {
	if from == to {
		return from
	}
	return from + "–" + to
}
