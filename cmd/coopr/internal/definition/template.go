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
	"github.com/coopr/coopr/engine/solver"
	"github.com/coopr/coopr/internal/words"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

// templateLintCmd judges a template that is there, or the definitions of a file.
func templateLintCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	cmd := &cobra.Command{
		Use: "lint NAME|FILE", Short: "Say what is wrong with a cluster template, or with a file of definitions", Args: cli.Args("NAME|FILE"),
		Long: `Say what is wrong with a cluster template that is there, or with the definitions
in a JSON or YAML file as if they were imported now; - is the standard input.
Nothing is written. The exit code is 1 where there are faults.`,
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
		switch {
		case out.Structured():
			err = out.Encode(found)
		default:
			showLinted(out, found)
		}
		if err == nil && len(found.Faults) > 0 {
			err = cli.ErrReported
		}
		return err
	})
	return cmd
}

// isFile tells a file's name from a template's.
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
			return api.Linted{}, fmt.Errorf("there is no definition in %s: files of definitions end in .json, .yaml or .yml", file)
		}
		return api.Linted{Faults: faults}, nil
	}
	found, _, err := c.Lint(ctx, body)
	found.Faults, found.Warnings = append(faults, named(found.Faults, defs)...), named(found.Warnings, defs)
	return found, err
}

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

// templateSolveCmd shows what each size of a cluster would look like.
func templateSolveCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	var nodes, exclude string
	var budget int
	var req api.SolveRequest
	cmd := &cobra.Command{
		Use: "solve NAME|FILE --nodes 3..100", Short: "Show what clusters of a template would look like, by number of nodes", Args: cli.Args("NAME|FILE"),
		Long: `Show what clusters of a template would look like for each number of nodes: how
many nodes of which kind carry which services, what that costs an hour, and
where there is no layout and why. Nothing is made. Sizes of which the same can
be said are one row; a count such as 2–99 grows evenly over it.

A template that is not written yet is read from a JSON or YAML file.`,
		Example: `  coopr template solve shop --nodes 3..100
  coopr template solve shop --nodes 5 --comparator cost -o json
  coopr template solve shop.yaml --nodes 1..20 --services nginx,php`,
		ValidArgsFunction: cli.CompleteDefinitions(app, model.KindClusterTemplate),
	}
	f := cmd.Flags()
	f.StringVarP(&nodes, "nodes", "n", "", "numbers of nodes, as 3..100, or one (required)")
	f.StringVar(&req.Provider, "provider", "", "provider, else the template's")
	f.StringVar(&req.HardwareType, "hardware", "", "hardware type of all nodes, else as the template says")
	f.StringVar(&req.ImageType, "image", "", "image type of all nodes, else as the template says")
	f.StringSliceVar(&req.Services, "services", nil, "services, separated by commas, else the template's")
	f.StringVar(&req.Comparator, "comparator", "", "which layout is preferred: original, cost, or one that a plugin offers; else as the template says")
	f.StringVar(&exclude, "exclude", "", "file with a list of layouts that must not be chosen")
	f.IntVar(&budget, "budget", 0, "steps of search, about a microsecond each, for all sizes together")
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
			if err := model.DecodeStrict(data, &req.Exclude); err != nil {
				return cli.InFile(err, exclude)
			}
		}
		if isFile(args[0]) {
			data, err := cli.ReadFile(app, args[0])
			if err != nil {
				return err
			}
			def, err := model.Decode(model.KindClusterTemplate, data)
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

// sizes reads "3..100", or "3".
func sizes(text string) (from, to int, err error) {
	if text == "" {
		return 0, 0, errors.New("is missing: write 3..100, or one number")
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
		return 0, 0, fmt.Errorf("%q is no number of nodes: write 3..100, or one number", text)
	}
	return from, to, nil
}

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
	out.Printf("\nPreferred by comparator %s.\n", s.Comparator)
}

// none says why some sizes have no layout.
func none(r solver.SizeRange) string {
	if r.Undecided != "" {
		return "not known: " + r.Undecided
	}
	words := make([]string, len(r.Conflict))
	for i, c := range r.Conflict {
		words[i] = c.Words
	}
	return "no layout: " + strings.Join(words, "; ")
}

// fromTo writes a range; one value stands alone.
func fromTo(from, to string) string {
	if from == to {
		return from
	}
	return from + "–" + to
}
