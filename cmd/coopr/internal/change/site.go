// Package change holds the commands for change objects, which a site declares.
package change

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/internal/words"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

// Command returns the command "change".
func Command(app cli.App) *cobra.Command {
	return cli.Group("change", "Plan, apply, watch, check and revert sites of change objects",
		listCmd(app), planCmd(app), applyCmd(app), statusCmd(app), explainCmd(app), graphCmd(app), checkCmd(app),
		historyCmd(app), revertCmd(app), showCmd(app), releaseCmd(app), deleteCmd(app))
}

// completeSites completes the names of sites.
func completeSites(app cli.App) cli.Completion {
	return cli.Complete(app, func(ctx context.Context, c *client.Client) ([]string, error) {
		all, err := c.Sites(ctx)
		var out []string
		for _, s := range all {
			out = append(out, s.Name)
		}
		return out, err
	})
}

func listCmd(app cli.App) *cobra.Command {
	return cli.List(app, cli.Listing[site.Overview]{
		Use: "list", Short: "List sites", Example: "  coopr change list", Still: true,
		Empty: "There are no sites. To create one from a file: coopr change apply FILE",
		Fetch: func(ctx context.Context, c *client.Client, _ []string, _ client.Read) ([]site.Overview, client.Meta, error) {
			all, err := c.Sites(ctx)
			return all, client.Meta{}, err
		},
		Rows: func(items []site.Overview) output.Table {
			t := output.Table{Head: []string{"NAME", "GENERATION", "OBJECTS", "CONVERGED", "HOSTS"}}
			for _, s := range items {
				t.Row(s.Name, generationOf(s), strconv.Itoa(s.Objects), strconv.Itoa(s.ConvergedObjects), strconv.Itoa(s.Hosts))
			}
			return t
		},
	})
}

// generationOf returns the number of the generation in force, and of the one being applied.
func generationOf(s site.Overview) string {
	if s.Next == 0 {
		return strconv.FormatUint(s.Generation, 10)
	}
	return fmt.Sprintf("%d, applying %d", s.Generation, s.Next)
}

// readSite reads the document of a site from a file or the standard input, and returns it with the name of
// the site.
func readSite(app cli.App, file string) ([]byte, string, error) {
	b, err := cli.ReadFile(app, file)
	if err != nil {
		return nil, "", err
	}
	d, err := site.Parse(b)
	if err != nil {
		return nil, "", cli.InFile(err, file)
	}
	return b, d.Name, nil
}

func planCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	cmd := &cobra.Command{Use: "plan FILE", Short: "Show what applying a site would change, and in which order", Args: cli.Args("FILE"),
		Example: "  coopr change plan figure1.yaml"}
	cli.FormFlag(cmd, output.FormTable, output.FormJSON, output.FormYAML)
	cmd.RunE = cli.Show(app, func(ctx context.Context, c *client.Client, args []string) (site.ChangePreview, error) {
		b, _, err := readSite(app, args[0])
		if err != nil {
			return site.ChangePreview{}, err
		}
		return c.PlanSite(ctx, b)
	}, func(p site.ChangePreview) { showPreview(out, &p) })
	return cmd
}

// showPreview shows what a generation changes, and a possible order of the changes.
func showPreview(out *output.Printer, p *site.ChangePreview) {
	out.Printf("Site %s, generation %d", p.Site, p.Generation)
	if p.Base != 0 {
		out.Printf(" after %d", p.Base)
	}
	out.Println()
	for _, part := range []struct {
		mark, what string
		names      []string
		c          output.Colour
	}{{"+", "added", p.Added, output.Green}, {"~", "changed", p.Changed, output.Yellow}, {"-", "removed", p.Removed, output.Red},
		{"*", "rewired", p.Rewired, output.Plain}} {
		for _, n := range part.names {
			out.Printf("  %s %s (%s)\n", out.Paint(part.c, part.mark), n, part.what)
		}
	}
	if p.Same > 0 {
		out.Printf("  %s unchanged\n", words.Count(p.Same, "object"))
	}
	if len(p.Rounds) > 0 {
		out.Println("A possible order. Steps with the same number can run at the same time:")
	}
	for i, round := range p.Rounds {
		for _, s := range round {
			out.Printf("  %3d. %s: %s → %s (%s) on %s\n", i+1, s.Object, s.From, s.To, s.Action, s.Host)
		}
	}
	for _, n := range p.Stuck {
		out.Printf("  %s %s would not reach its target state\n", out.Paint(output.Red, "!"), n)
	}
	for _, t := range p.Trouble {
		out.Printf("  %s %s\n", out.Paint(output.Red, "!"), t)
	}
}

// followFlags holds the flags by which a command waits until a site has converged.
type followFlags struct {
	wait    bool
	timeout time.Duration
}

func (f *followFlags) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.wait, "wait", false, "show the progress until all objects are in their target state")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 0, "with --wait: give up after this time (0: never)")
}

func applyCmd(app cli.App) *cobra.Command {
	var f followFlags
	cmd := &cobra.Command{Use: "apply FILE", Short: "Apply the document of a site as its next generation", Args: cli.Args("FILE"),
		Example: "  coopr change apply figure1.yaml --wait"}
	f.flags(cmd)
	cmd.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		b, name, err := readSite(app, args[0])
		if err != nil {
			return err
		}
		ans, _, err := c.ApplySite(ctx, name, b)
		if err != nil {
			return err
		}
		return applied(ctx, app, c, name, ans, f)
	})
	return cmd
}

// applied shows the generation that was started, and follows it if --wait is set.
func applied(ctx context.Context, app cli.App, c *client.Client, name string, ans api.SiteApplied, f followFlags) error {
	out := app.Printer()
	if ans.Unchanged {
		out.Printf("Generation %d of site %s is the same: there is nothing to do.\n", ans.Generation, name)
	} else {
		showPreview(out, &ans.ChangePreview)
	}
	if !f.wait {
		if !ans.Unchanged {
			out.Printf("The generation is being applied. To watch it: coopr change status %s --watch\n", name)
		}
		return nil
	}
	if f.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, f.timeout,
			fmt.Errorf("site %s has not converged after %s; to see why: coopr change explain %s", name, f.timeout, name))
		defer cancel()
	}
	return watchSite(ctx, app, c, name, ans.Generation)
}

func statusCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	var watch, wait bool
	cmd := &cobra.Command{Use: "status SITE", Short: "Show the state of the objects of a site, and what they wait for", Args: cli.Args("SITE"),
		Example: "  coopr change status figure1 --watch\n  coopr change status figure1 --wait", ValidArgsFunction: completeSites(app)}
	cli.FormFlag(cmd, output.FormTable, output.FormJSON, output.FormYAML, output.FormWide)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show the status again each time it changes, until Ctrl-C")
	cmd.Flags().BoolVar(&wait, "wait", false, "show the status again each time it changes, until all objects are in their target state")
	cmd.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		if watch || wait {
			until := uint64(0)
			if wait {
				until = 1
			}
			return watchSite(ctx, app, c, args[0], until)
		}
		s, err := c.SiteStatus(ctx, args[0], 0)
		if err != nil {
			return err
		}
		if out.Structured() {
			return out.Encode(s)
		}
		showSite(out, &s)
		return nil
	})
	return cmd
}

// watchSite shows the status of a site each time it changes, until generation until or a later one is in
// force and has converged. If until is 0, it continues until Ctrl-C.
func watchSite(ctx context.Context, app cli.App, c *client.Client, name string, until uint64) error {
	out := app.Printer()
	if out.Terminal && !out.Structured() && out.Form != output.FormWide {
		return liveSite(ctx, app, c, name, until)
	}
	s, err := c.SiteStatus(ctx, name, 0)
	for first, last := true, ""; ; first = false {
		if err != nil {
			if cli.Interrupted(ctx) {
				return nil
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return err
		}
		shown := s
		shown.Revision = 0
		if text := fmt.Sprint(shown); text != last {
			last = text
			switch {
			case out.Structured():
				if err := out.Encode(s); err != nil {
					return err
				}
			default:
				if !first {
					out.Println()
				}
				showSite(out, &s)
			}
		}
		if until > 0 && s.Converged && s.Generation >= until {
			return nil
		}
		if !cli.Pause(ctx, max(app.Pace()/4, 250*time.Millisecond)) {
			s, err = site.SiteStatus{}, ctx.Err()
			continue
		}
		s, err = c.SiteStatus(ctx, name, max(s.Revision, 1))
	}
}

// showSite shows the status of a site, with one line for each object.
func showSite(out *output.Printer, s *site.SiteStatus) {
	converged := out.Paint(output.Green, "all converged")
	if s.ConvergedObjects < s.Objects {
		converged = out.Paint(output.Yellow, fmt.Sprintf("%d of %d converged", s.ConvergedObjects, s.Objects))
	}
	out.Printf("Site %s, generation %s: %s, %s\n", s.Name, generationOf(s.Overview), words.Count(s.Objects, "object"), converged)
	if len(s.Switching) > 0 {
		out.Printf("Agents that have not switched to the new generation: %s\n", strings.Join(s.Switching, ", "))
	}
	t := output.Table{Head: []string{"OBJECT", "HOST", "STATE", "STATUS", "WAITS FOR", "AGENT", "TYPE", "INCARNATION", "GENERATION"}, Wide: 4}
	for i := range s.Items {
		o := &s.Items[i]
		state := o.State
		if o.Phase == "moving" {
			state += " → " + o.To
		} else if o.State != o.Target && o.State != "unknown" {
			state += ", target " + o.Target
		}
		t.Row(o.Name, o.Host, state, status(o), strings.Join(o.Waits, "; "), o.Agent, o.Type,
			strconv.FormatUint(uint64(o.Incarnation), 10), strconv.FormatUint(o.Generation, 10))
	}
	out.Show(t)
}

// status describes in a few words what an object is doing.
func status(o *site.ObjectStatus) string {
	var text string
	switch {
	case o.Phase == "unheard":
		text = "no report from its agent"
	case o.Stuck:
		text = "stuck: no transition to the target state"
	case o.Oscillating:
		text = "oscillating"
	case o.Phase == "backoff":
		text = fmt.Sprintf("failed %d×: %s", o.Failures, output.Line(o.Message))
	case o.Phase == "moving", o.Phase == "checking":
		text = o.Phase
	case o.Removing && !o.Converged:
		text = "is being removed"
	case o.Removing:
		text = "ready to be removed"
	case o.Converged:
		text = "converged"
	default:
		text = "waiting"
	}
	if o.Converged && o.Drifts > 0 {
		text += fmt.Sprintf(" (drifted %d×)", o.Drifts)
	}
	return text
}

func explainCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	cmd := &cobra.Command{Use: "explain SITE [OBJECT]",
		Short:   "Show what an object waits for, down to the root cause; without OBJECT, for all that have not converged",
		Args:    cli.Args("SITE", "[OBJECT"),
		Example: "  coopr change explain figure1 svcB", ValidArgsFunction: completeSites(app)}
	cmd.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		objects := args[1:]
		if len(objects) == 0 {
			s, err := c.SiteStatus(ctx, args[0], 0)
			if err != nil {
				return err
			}
			for _, o := range s.Items {
				if !o.Converged {
					objects = append(objects, o.Name)
				}
			}
			if len(objects) == 0 {
				out.Println("All objects are in their target state.")
			}
		}
		for _, o := range objects {
			chain, err := c.ExplainObject(ctx, args[0], o)
			if err != nil {
				return err
			}
			if len(chain) == 0 {
				out.Printf("%s is in its target state.\n", o)
			}
			for i, l := range chain {
				out.Printf("%s%s %s\n", strings.Repeat("  ", i), l.Object, l.Text)
			}
		}
		return nil
	})
	return cmd
}

func graphCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	var format string
	cmd := &cobra.Command{Use: "graph SITE", Short: "Draw the objects of a site and their dependencies", Args: cli.Args("SITE"),
		Example: "  coopr change graph figure1\n  coopr change graph figure1 --format svg > figure1.svg", ValidArgsFunction: completeSites(app)}
	cmd.Flags().StringVar(&format, "format", "text", "output format: text, dot, svg or json")
	cmd.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		g, err := c.SiteGraph(ctx, args[0])
		if err != nil {
			return err
		}
		switch format {
		case "text":
			out.Print(g.Text())
		case "dot":
			out.Print(g.DOT())
		case "svg":
			out.Print(g.SVG())
		case "json":
			return output.Encode(out.Stdout, output.FormJSON, g)
		default:
			return cli.Usage(cmd, "--format: there is no format %q; use text, dot, svg or json", format)
		}
		return nil
	})
	return cmd
}

func checkCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	cmd := &cobra.Command{Use: "check SITE", Short: "Check every object for drift and change nothing; exit code 4 reports drift",
		Args:    cli.Args("SITE"),
		Example: "  coopr change check figure1", ValidArgsFunction: completeSites(app)}
	cli.FormFlag(cmd, output.FormTable, output.FormJSON, output.FormYAML)
	cmd.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		found, err := c.CheckSite(ctx, args[0])
		if err != nil {
			return err
		}
		drifted := 0
		t := output.Table{Head: []string{"OBJECT", "HOST", "EXPECTED", "FOUND", "MESSAGE"}}
		for _, f := range found {
			what := f.Message
			if f.Drifted {
				drifted++
				what = strings.TrimSpace("drifted. " + what)
			}
			t.Row(f.Object, f.Host, f.Known, f.Found, what)
		}
		if out.Structured() {
			err = out.Encode(found)
		} else {
			out.Show(t)
			out.Printf("%s checked, %d drifted.\n", words.Count(len(found), "object"), drifted)
		}
		if err == nil && drifted > 0 {
			return &client.Error{Status: 409, Title: "Drift",
				Detail: fmt.Sprintf("%s of site %s drifted; with check_interval, drift is repaired automatically", words.Count(drifted, "object"),
					args[0])}
		}
		return err
	})
	return cmd
}

func historyCmd(app cli.App) *cobra.Command {
	return cli.List(app, cli.Listing[site.PastGeneration]{
		Use: "history SITE", Short: "List the generations of a site", Example: "  coopr change history figure1", Args: cli.Args("SITE"),
		Complete: completeSites(app), Still: true, Empty: "There are no generations.",
		Fetch: func(ctx context.Context, c *client.Client, args []string, _ client.Read) ([]site.PastGeneration, client.Meta, error) {
			all, err := c.SiteHistory(ctx, args[0])
			return all, client.Meta{}, err
		},
		Rows: func(items []site.PastGeneration) output.Table {
			t := output.Table{Head: []string{"GENERATION", "APPLIED", "STATE", "OBJECTS", "ACTOR", "CONTENT OF"}}
			for _, g := range items {
				of := ""
				if g.Reverts != 0 {
					of = strconv.FormatUint(g.Reverts, 10)
				}
				t.Row(strconv.FormatUint(g.Number, 10), output.Moment(g.Time), g.State, strconv.Itoa(g.Objects), g.Actor, of)
			}
			return t
		},
	})
}

func revertCmd(app cli.App) *cobra.Command {
	var f followFlags
	var to uint64
	cmd := &cobra.Command{Use: "revert SITE [--to GENERATION]", Short: "Apply an earlier generation again", Args: cli.Args("SITE"),
		Example: "  coopr change revert figure1\n  coopr change revert figure1 --to 3 --wait", ValidArgsFunction: completeSites(app)}
	cmd.Flags().Uint64Var(&to, "to", 0, "number of the generation (default: the previous one)")
	f.flags(cmd)
	cmd.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		ans, _, err := c.RevertSite(ctx, args[0], to)
		if err != nil {
			return err
		}
		return applied(ctx, app, c, args[0], ans, f)
	})
	return cmd
}

func showCmd(app cli.App) *cobra.Command {
	var generation uint64
	cmd := &cobra.Command{Use: "show SITE", Short: "Show the document of a site", Args: cli.Args("SITE"),
		Example: "  coopr change show figure1 -o yaml", ValidArgsFunction: completeSites(app)}
	cmd.Flags().Uint64Var(&generation, "generation", 0, "number of an earlier generation (default: the current one)")
	cli.FormFlag(cmd, output.FormYAML, output.FormJSON)
	cmd.RunE = cli.Show(app, func(ctx context.Context, c *client.Client, args []string) (*site.Document, error) {
		return c.Site(ctx, args[0], generation)
	}, nil)
	return cmd
}

func releaseCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	var reason string
	cmd := &cobra.Command{Use: "release SITE OBJECT --reason TEXT",
		Short: "Release the locks of an object whose host is lost, so that other objects can continue", Args: cli.Args("SITE", "OBJECT"),
		Example: "  coopr change release figure1 svcB --reason 'the machine was scrapped'", ValidArgsFunction: completeSites(app)}
	cmd.Flags().StringVar(&reason, "reason", "", "how you know that the object is gone (required)")
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		if reason == "" {
			return cli.Usage(cmd, "--reason is missing: say how you know that the object is gone; the audit log keeps the text")
		}
		if err := cli.Confirm(app, cmd, fmt.Sprintf("Are you sure that %s no longer runs and no longer uses anything?",
			strings.Join(given[1:], " "))); err != nil {
			return err
		}
		return cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
			if _, err := c.ReleaseObject(ctx, args[0], args[1], reason); err != nil {
				return err
			}
			out.Printf("The locks of %s were released.\n", args[1])
			return nil
		})(cmd, given)
	}
	return cmd
}

func deleteCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	cmd := &cobra.Command{Use: "delete SITE", Short: "Stop all objects of a site in order, and delete the site", Args: cli.Args("SITE"),
		Example: "  coopr change delete figure1 --yes", ValidArgsFunction: completeSites(app)}
	cmd.RunE = cli.Confirmed(app, func(args []string) string {
		return fmt.Sprintf("Stop all objects of site %s and delete the site?", args[0])
	}, func(ctx context.Context, c *client.Client, args []string) error {
		ans, _, err := c.DeleteSite(ctx, args[0])
		if err != nil {
			return err
		}
		showPreview(out, &ans.ChangePreview)
		out.Printf("The site is deleted once its objects have stopped. To watch it: coopr change status %s --watch\n", args[0])
		return nil
	})
	return cmd
}
