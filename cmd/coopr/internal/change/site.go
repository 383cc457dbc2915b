// Package change holds the commands for change objects, which a site declares.
package change

import (
	"context"
	"fmt"
	"io"
	"os"
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

// Command is "coopr change": sites of change objects.
func Command(app cli.App) *cobra.Command {
	return cli.Group("change", "Keep things right with change objects: plan, apply, watch, check and revert sites",
		listCmd(app), planCmd(app), applyCmd(app), statusCmd(app), explainCmd(app), graphCmd(app), checkCmd(app),
		historyCmd(app), revertCmd(app), showCmd(app), releaseCmd(app), deleteCmd(app))
}

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
		Use: "list", Short: "List the sites", Example: "  coopr change list", Still: true,
		Empty: "There are no sites: write one, and `coopr change apply FILE`.",
		Fetch: func(ctx context.Context, c *client.Client, _ []string, _ client.Read) ([]site.Overview, client.Meta, error) {
			all, err := c.Sites(ctx)
			return all, client.Meta{}, err
		},
		Rows: func(items []site.Overview) output.Table {
			t := output.Table{Head: []string{"NAME", "GENERATION", "OBJECTS", "SETTLED", "HOSTS"}}
			for _, s := range items {
				t.Row(s.Name, generationOf(s), strconv.Itoa(s.Objects), strconv.Itoa(s.Settled), strconv.Itoa(s.Hosts))
			}
			return t
		},
	})
}

func generationOf(s site.Overview) string {
	if s.Next == 0 {
		return strconv.FormatUint(s.Generation, 10)
	}
	return fmt.Sprintf("%d, %d on its way", s.Generation, s.Next)
}

// readSite reads a site's file ("-": what comes in) and gives its name.
func readSite(file string) ([]byte, string, error) {
	var b []byte
	var err error
	if file == "-" {
		b, err = io.ReadAll(os.Stdin)
	} else {
		b, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, "", err
	}
	d, err := site.Parse(b)
	if err != nil {
		return nil, "", err
	}
	return b, d.Name, nil
}

func planCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	cmd := &cobra.Command{Use: "plan FILE", Short: "Show what applying a site would do, and in which order", Args: cli.Args("FILE"), Example: "  coopr change plan figure1.yaml"}
	cli.FormFlag(cmd, output.FormTable, output.FormJSON, output.FormYAML)
	cmd.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		b, _, err := readSite(args[0])
		if err != nil {
			return err
		}
		p, err := c.PlanSite(ctx, b)
		if err != nil {
			return err
		}
		if out.Structured() {
			return out.Encode(p)
		}
		showPreview(out, &p)
		return nil
	})
	return cmd
}

// showPreview tells what a generation changes, and a possible order.
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
	}{{"+", "added", p.Added, output.Green}, {"~", "changed", p.Changed, output.Yellow}, {"-", "removed", p.Removed, output.Red}, {"*", "rewired", p.Rewired, output.Plain}} {
		for _, n := range part.names {
			out.Printf("  %s %s (%s)\n", out.Paint(part.c, part.mark), n, part.what)
		}
	}
	if p.Same > 0 {
		out.Printf("  %s stay as they are\n", words.Count(p.Same, "object"))
	}
	if len(p.Rounds) > 0 {
		out.Println("A possible order; what shares a number can happen at the same time:")
	}
	for i, round := range p.Rounds {
		for _, s := range round {
			out.Printf("  %3d. %s: %s → %s (%s) on %s\n", i+1, s.Object, s.From, s.To, s.Action, s.Host)
		}
	}
	for _, n := range p.Stuck {
		out.Printf("  %s %s would not get where it should\n", out.Paint(output.Red, "!"), n)
	}
	for _, t := range p.Trouble {
		out.Printf("  %s %s\n", out.Paint(output.Red, "!"), t)
	}
}

// followFlags let a command go on until a site is settled.
type followFlags struct {
	wait    bool
	timeout time.Duration
}

func (f *followFlags) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.wait, "wait", false, "show the progress until everything is where it should be")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 0, "with --wait: give up after so long (0: never)")
}

func applyCmd(app cli.App) *cobra.Command {
	var f followFlags
	cmd := &cobra.Command{Use: "apply FILE", Short: "Put a site into force, as its next generation", Args: cli.Args("FILE"),
		Example: "  coopr change apply figure1.yaml --wait"}
	f.flags(cmd)
	cmd.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		b, name, err := readSite(args[0])
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

// applied tells what was begun, and follows it if that is wanted.
func applied(ctx context.Context, app cli.App, c *client.Client, name string, ans api.SiteApplied, f followFlags) error {
	out := app.Printer()
	if ans.Unchanged {
		out.Printf("Generation %d of site %s says the same: nothing to do.\n", ans.Generation, name)
	} else {
		showPreview(out, &ans.ChangePreview)
	}
	if !f.wait {
		if !ans.Unchanged {
			out.Printf("It is on its way. See it: coopr change status %s --watch\n", name)
		}
		return nil
	}
	if f.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, f.timeout, fmt.Errorf("site %s is not settled after %s: coopr change explain %s", name, f.timeout, name))
		defer cancel()
	}
	return watchSite(ctx, app, c, name, ans.Generation)
}

func statusCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	var watch, wait bool
	cmd := &cobra.Command{Use: "status SITE", Short: "Show how a site's objects are, and what they wait for", Args: cli.Args("SITE"),
		Example: "  coopr change status figure1 --watch\n  coopr change status figure1 --wait", ValidArgsFunction: completeSites(app)}
	cli.FormFlag(cmd, output.FormTable, output.FormJSON, output.FormYAML, output.FormWide)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show it again whenever it changes, until Ctrl-C")
	cmd.Flags().BoolVar(&wait, "wait", false, "show it again whenever it changes, until everything is where it should be")
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

// watchSite shows a site's status whenever it changes: until a generation (or a
// later one) is in force and settled, or for ever where it is 0.
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
			s, err = site.Standing{}, ctx.Err()
			continue
		}
		s, err = c.SiteStatus(ctx, name, max(s.Revision, 1))
	}
}

// showSite tells how a site is: one line an object, by host.
func showSite(out *output.Printer, s *site.Standing) {
	settled := out.Paint(output.Green, "all settled")
	if s.Settled < s.Objects {
		settled = out.Paint(output.Yellow, fmt.Sprintf("%d of %d settled", s.Settled, s.Objects))
	}
	out.Printf("Site %s, generation %s: %s, %s\n", s.Name, generationOf(s.Overview), words.Count(s.Objects, "object"), settled)
	if len(s.Switching) > 0 {
		out.Printf("Not switched yet: %s\n", output.Clip(strings.Join(s.Switching, ", "), 120))
	}
	t := output.Table{Head: []string{"OBJECT", "HOST", "STATE", "DOES", "WAITS FOR", "AGENT", "TYPE", "LIFE", "GENERATION"}, Wide: 4}
	for i := range s.Items {
		o := &s.Items[i]
		state := o.State
		if o.Phase == "moving" {
			state += " → " + o.To
		} else if o.State != o.Target && o.State != "unknown" {
			state += ", wants " + o.Target
		}
		t.Row(o.Name, o.Host, state, does(o), output.Clip(strings.Join(o.Waits, "; "), 100), o.Agent, o.Type,
			strconv.FormatUint(uint64(o.Incarnation), 10), strconv.FormatUint(o.Generation, 10))
	}
	out.Show(t)
}

// does says what an object is doing, in a word or two.
func does(o *site.ObjectStatus) string {
	var text string
	switch {
	case o.Phase == "unheard":
		text = "nobody answers for it"
	case o.Stuck:
		text = "stuck: no transition"
	case o.Oscillating:
		text = "oscillating"
	case o.Phase == "backoff":
		text = fmt.Sprintf("failed %d×: %s", o.Failures, output.Clip(o.Message, 90))
	case o.Phase == "moving", o.Phase == "checking":
		text = o.Phase
	case o.Removing && !o.Settled:
		text = "is being removed"
	case o.Removing:
		text = "ready to be removed"
	case o.Settled:
		text = "settled"
	default:
		text = "waiting"
	}
	if o.Settled && o.Drifts > 0 {
		text += fmt.Sprintf(" (drifted %d×)", o.Drifts)
	}
	return text
}

func explainCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	cmd := &cobra.Command{Use: "explain SITE [OBJECT]", Short: "Follow what an object waits for to the root; all that are not settled where none is named", Args: cli.Args("SITE", "[OBJECT"),
		Example: "  coopr change explain figure1 svcB", ValidArgsFunction: completeSites(app)}
	cmd.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		objects := args[1:]
		if len(objects) == 0 {
			s, err := c.SiteStatus(ctx, args[0], 0)
			if err != nil {
				return err
			}
			for _, o := range s.Items {
				if !o.Settled {
					objects = append(objects, o.Name)
				}
			}
			if len(objects) == 0 {
				out.Println("Everything is where it should be.")
			}
		}
		for _, o := range objects {
			chain, err := c.ExplainObject(ctx, args[0], o)
			if err != nil {
				return err
			}
			if len(chain) == 0 {
				out.Printf("%s is where it should be.\n", o)
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
	cmd := &cobra.Command{Use: "graph SITE", Short: "Draw a site's objects and dependencies", Args: cli.Args("SITE"),
		Example: "  coopr change graph figure1\n  coopr change graph figure1 --format svg > figure1.svg", ValidArgsFunction: completeSites(app)}
	cmd.Flags().StringVar(&format, "format", "text", "text, dot, svg or json")
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
			return cli.Usage(cmd, "there is no format %q: it must be text, dot, svg or json", format)
		}
		return nil
	})
	return cmd
}

func checkCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	cmd := &cobra.Command{Use: "check SITE", Short: "Check every object and report drift, changing nothing; the exit code is 4 where there is any", Args: cli.Args("SITE"),
		Example: "  coopr change check figure1", ValidArgsFunction: completeSites(app)}
	cli.FormFlag(cmd, output.FormTable, output.FormJSON, output.FormYAML)
	cmd.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		found, err := c.CheckSite(ctx, args[0])
		if err != nil {
			return err
		}
		drifted := 0
		t := output.Table{Head: []string{"OBJECT", "HOST", "KNOWN", "FOUND", "WHAT"}}
		for _, f := range found {
			what := f.Message
			if f.Drifted {
				drifted++
				what = strings.TrimSpace("drifted. " + what)
			}
			t.Row(f.Object, f.Host, f.Known, f.Found, output.Clip(what, 100))
		}
		if out.Structured() {
			err = out.Encode(found)
		} else {
			out.Show(t)
			out.Printf("%s checked, %d drifted.\n", words.Count(len(found), "object"), drifted)
		}
		if err == nil && drifted > 0 {
			return &client.Error{Status: 409, Title: "Drift", Detail: fmt.Sprintf("%s of site %s drifted; with check_interval it is repaired", words.Count(drifted, "object"), args[0])}
		}
		return err
	})
	return cmd
}

func historyCmd(app cli.App) *cobra.Command {
	return cli.List(app, cli.Listing[site.PastGeneration]{
		Use: "history SITE", Short: "Show a site's generations", Example: "  coopr change history figure1", Args: cli.Args("SITE"), Still: true, Empty: "There are none.",
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
	cmd := &cobra.Command{Use: "revert SITE [--to GENERATION]", Short: "Put the content of an earlier generation into force again", Args: cli.Args("SITE"),
		Example: "  coopr change revert figure1\n  coopr change revert figure1 --to 3 --wait", ValidArgsFunction: completeSites(app)}
	cmd.Flags().Uint64Var(&to, "to", 0, "number of the generation; the one before, if it is not given")
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
	out := app.Printer()
	var generation uint64
	cmd := &cobra.Command{Use: "show SITE", Short: "Print a site's document", Args: cli.Args("SITE"), Example: "  coopr change show figure1 -o yaml", ValidArgsFunction: completeSites(app)}
	cmd.Flags().Uint64Var(&generation, "generation", 0, "that of an earlier generation")
	cli.FormFlag(cmd, output.FormYAML, output.FormJSON)
	cmd.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		d, err := c.Site(ctx, args[0], generation)
		if err != nil {
			return err
		}
		return out.Encode(d)
	})
	return cmd
}

func releaseCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	var reason string
	cmd := &cobra.Command{Use: "release SITE OBJECT --reason TEXT", Short: "Say that an object whose home is gone holds nothing, so that others need not wait for it", Args: cli.Args("SITE", "OBJECT"),
		Example: "  coopr change release figure1 svcB --reason 'the machine was scrapped'", ValidArgsFunction: completeSites(app)}
	cmd.Flags().StringVar(&reason, "reason", "", "how you know (required)")
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		if reason == "" {
			return cli.Usage(cmd, "--reason is missing: say how you know, for those who read the audit log later")
		}
		if err := cli.Confirm(app, cmd, fmt.Sprintf("Are you sure that %s does nothing and holds nothing any more?", strings.Join(given[1:], " "))); err != nil {
			return err
		}
		return cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
			if _, err := c.ReleaseObject(ctx, args[0], args[1], reason); err != nil {
				return err
			}
			out.Printf("%s holds nothing any more.\n", args[1])
			return nil
		})(cmd, given)
	}
	return cmd
}

func deleteCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	cmd := &cobra.Command{Use: "delete SITE", Short: "Bring all objects of a site down in order, and forget it", Args: cli.Args("SITE"),
		Example: "  coopr change delete figure1 --yes", ValidArgsFunction: completeSites(app)}
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		if err := cli.Confirm(app, cmd, "Stop everything that the site has started, and forget it?"); err != nil {
			return err
		}
		return cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
			ans, _, err := c.DeleteSite(ctx, args[0])
			if err != nil {
				return err
			}
			showPreview(out, &ans.ChangePreview)
			return nil
		})(cmd, given)
	}
	return cmd
}
