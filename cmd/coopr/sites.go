package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"
)

// changeObjectsCmd is "coopr change": sites of change objects.
func (a *app) changeObjectsCmd() *cobra.Command {
	return group("change", "Keep things right with change objects: plan, apply, watch, check and revert sites",
		a.siteListCmd(), a.sitePlanCmd(), a.siteApplyCmd(), a.siteStatusCmd(), a.siteExplainCmd(), a.siteGraphCmd(), a.siteCheckCmd(),
		a.siteHistoryCmd(), a.siteRevertCmd(), a.siteShowCmd(), a.siteReleaseCmd(), a.siteDeleteCmd())
}

func (a *app) completeSites() completion {
	return a.complete(func(ctx context.Context, c *client.Client) ([]string, error) {
		all, err := c.Sites(ctx)
		var out []string
		for _, s := range all {
			out = append(out, s.Name)
		}
		return out, err
	})
}

func (a *app) siteListCmd() *cobra.Command {
	return listCmd(a, listing[site.Overview]{
		use: "list", short: "List the sites", example: "  coopr change list", still: true,
		empty: "There are no sites: write one, and `coopr change apply FILE`.",
		fetch: func(ctx context.Context, c *client.Client, _ []string, _ client.Read) ([]site.Overview, client.Meta, error) {
			all, err := c.Sites(ctx)
			return all, client.Meta{}, err
		},
		rows: func(items []site.Overview) table {
			t := table{head: []string{"NAME", "GENERATION", "OBJECTS", "SETTLED", "HOSTS"}}
			for _, s := range items {
				t.row(s.Name, generationOf(s), strconv.Itoa(s.Objects), strconv.Itoa(s.Settled), strconv.Itoa(s.Hosts))
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

func (a *app) sitePlanCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "plan FILE", Short: "Show what applying a site would do, and in which order", Args: args("FILE"), Example: "  coopr change plan figure1.yaml"}
	a.outputFlag(cmd, asTable, asJSON, asYAML)
	cmd.RunE = a.with(func(ctx context.Context, c *client.Client, args []string) error {
		b, _, err := readSite(args[0])
		if err != nil {
			return err
		}
		p, err := c.PlanSite(ctx, b)
		if err != nil {
			return err
		}
		if a.structured() {
			return a.print(p)
		}
		a.showPreview(&p)
		return nil
	})
	return cmd
}

// showPreview tells what a generation changes, and a possible order.
func (a *app) showPreview(p *site.ChangePreview) {
	fmt.Fprintf(a.out, "Site %s, generation %d", p.Site, p.Generation)
	if p.Base != 0 {
		fmt.Fprintf(a.out, " after %d", p.Base)
	}
	fmt.Fprintln(a.out)
	for _, part := range []struct {
		mark, what string
		names      []string
		c          colour
	}{{"+", "added", p.Added, green}, {"~", "changed", p.Changed, yellow}, {"-", "removed", p.Removed, red}, {"*", "rewired", p.Rewired, plain}} {
		for _, n := range part.names {
			fmt.Fprintf(a.out, "  %s %s (%s)\n", a.paint(a.out, part.c, part.mark), n, part.what)
		}
	}
	if p.Same > 0 {
		fmt.Fprintf(a.out, "  %s stay as they are\n", count(p.Same, "object"))
	}
	if len(p.Rounds) > 0 {
		fmt.Fprintln(a.out, "A possible order; what shares a number can happen at the same time:")
	}
	for i, round := range p.Rounds {
		for _, s := range round {
			fmt.Fprintf(a.out, "  %3d. %s: %s → %s (%s) on %s\n", i+1, s.Object, s.From, s.To, s.Action, s.Host)
		}
	}
	for _, n := range p.Stuck {
		fmt.Fprintf(a.out, "  %s %s would not get where it should\n", a.paint(a.out, red, "!"), n)
	}
	for _, t := range p.Trouble {
		fmt.Fprintf(a.out, "  %s %s\n", a.paint(a.out, red, "!"), t)
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

func (a *app) siteApplyCmd() *cobra.Command {
	var f followFlags
	cmd := &cobra.Command{Use: "apply FILE", Short: "Put a site into force, as its next generation", Args: args("FILE"),
		Example: "  coopr change apply figure1.yaml --wait"}
	f.flags(cmd)
	cmd.RunE = a.with(func(ctx context.Context, c *client.Client, args []string) error {
		b, name, err := readSite(args[0])
		if err != nil {
			return err
		}
		ans, _, err := c.ApplySite(ctx, name, b)
		if err != nil {
			return err
		}
		return a.applied(ctx, c, name, ans, f)
	})
	return cmd
}

// applied tells what was begun, and follows it if that is wanted.
func (a *app) applied(ctx context.Context, c *client.Client, name string, ans api.SiteApplied, f followFlags) error {
	if ans.Unchanged {
		fmt.Fprintf(a.out, "Generation %d of site %s says the same: nothing to do.\n", ans.Generation, name)
	} else {
		a.showPreview(&ans.ChangePreview)
	}
	if !f.wait {
		if !ans.Unchanged {
			fmt.Fprintf(a.out, "It is on its way. See it: coopr change status %s --watch\n", name)
		}
		return nil
	}
	if f.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, f.timeout, fmt.Errorf("site %s is not settled after %s: coopr change explain %s", name, f.timeout, name))
		defer cancel()
	}
	return a.watchSite(ctx, c, name, ans.Generation)
}

func (a *app) siteStatusCmd() *cobra.Command {
	var watch, wait bool
	cmd := &cobra.Command{Use: "status SITE", Short: "Show how a site's objects are, and what they wait for", Args: args("SITE"),
		Example: "  coopr change status figure1 --watch\n  coopr change status figure1 --wait", ValidArgsFunction: a.completeSites()}
	a.outputFlag(cmd, asTable, asJSON, asYAML, asWide)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show it again whenever it changes, until Ctrl-C")
	cmd.Flags().BoolVar(&wait, "wait", false, "show it again whenever it changes, until everything is where it should be")
	cmd.RunE = a.with(func(ctx context.Context, c *client.Client, args []string) error {
		if watch || wait {
			until := uint64(0)
			if wait {
				until = 1
			}
			return a.watchSite(ctx, c, args[0], until)
		}
		s, err := c.SiteStatus(ctx, args[0], 0)
		if err != nil {
			return err
		}
		if a.structured() {
			return a.print(s)
		}
		a.showSite(&s)
		return nil
	})
	return cmd
}

// watchSite shows a site's status whenever it changes: until a generation (or a
// later one) is in force and settled, or for ever where it is 0.
func (a *app) watchSite(ctx context.Context, c *client.Client, name string, until uint64) error {
	if a.outTerminal && !a.structured() && a.output != asWide {
		return a.liveSite(ctx, c, name, until)
	}
	s, err := c.SiteStatus(ctx, name, 0)
	for first, last := true, ""; ; first = false {
		if err != nil {
			if errors.Is(context.Cause(ctx), errInterrupted) {
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
			case a.structured():
				if err := a.print(s); err != nil {
					return err
				}
			default:
				if !first {
					fmt.Fprintln(a.out)
				}
				a.showSite(&s)
			}
		}
		if until > 0 && s.Converged && s.Generation >= until {
			return nil
		}
		if !pause(ctx, max(a.pace/4, 250*time.Millisecond)) {
			s, err = site.Standing{}, ctx.Err()
			continue
		}
		s, err = c.SiteStatus(ctx, name, max(s.Revision, 1))
	}
}

// showSite tells how a site is: one line an object, by host.
func (a *app) showSite(s *site.Standing) {
	settled := a.paint(a.out, green, "all settled")
	if s.Settled < s.Objects {
		settled = a.paint(a.out, yellow, fmt.Sprintf("%d of %d settled", s.Settled, s.Objects))
	}
	fmt.Fprintf(a.out, "Site %s, generation %s: %s, %s\n", s.Name, generationOf(s.Overview), count(s.Objects, "object"), settled)
	if len(s.Switching) > 0 {
		fmt.Fprintf(a.out, "Not switched yet: %s\n", clip(strings.Join(s.Switching, ", "), 120))
	}
	t := table{head: []string{"OBJECT", "HOST", "STATE", "DOES", "WAITS FOR", "AGENT", "TYPE", "LIFE", "GENERATION"}, wide: 4}
	for i := range s.Items {
		o := &s.Items[i]
		state := o.State
		if o.Phase == "moving" {
			state += " → " + o.To
		} else if o.State != o.Target && o.State != "unknown" {
			state += ", wants " + o.Target
		}
		t.row(o.Name, o.Host, state, a.does(o), clip(strings.Join(o.Waits, "; "), 100), o.Agent, o.Type,
			strconv.FormatUint(uint64(o.Incarnation), 10), strconv.FormatUint(o.Generation, 10))
	}
	a.show(t)
}

// does says what an object is doing, in a word or two.
func (a *app) does(o *site.ObjectStatus) string {
	var text string
	switch {
	case o.Phase == "unheard":
		text = "nobody answers for it"
	case o.Stuck:
		text = "stuck: no transition"
	case o.Oscillating:
		text = "oscillating"
	case o.Phase == "backoff":
		text = fmt.Sprintf("failed %d×: %s", o.Failures, clip(o.Message, 90))
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

func (a *app) siteExplainCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "explain SITE [OBJECT]", Short: "Follow what an object waits for to the root; all that are not settled where none is named", Args: args("SITE", "[OBJECT"),
		Example: "  coopr change explain figure1 svcB", ValidArgsFunction: a.completeSites()}
	cmd.RunE = a.with(func(ctx context.Context, c *client.Client, args []string) error {
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
				fmt.Fprintln(a.out, "Everything is where it should be.")
			}
		}
		for _, o := range objects {
			chain, err := c.ExplainObject(ctx, args[0], o)
			if err != nil {
				return err
			}
			if len(chain) == 0 {
				fmt.Fprintf(a.out, "%s is where it should be.\n", o)
			}
			for i, l := range chain {
				fmt.Fprintf(a.out, "%s%s %s\n", strings.Repeat("  ", i), l.Object, l.Text)
			}
		}
		return nil
	})
	return cmd
}

func (a *app) siteGraphCmd() *cobra.Command {
	var format string
	cmd := &cobra.Command{Use: "graph SITE", Short: "Draw a site's objects and dependencies", Args: args("SITE"),
		Example: "  coopr change graph figure1\n  coopr change graph figure1 --format svg > figure1.svg", ValidArgsFunction: a.completeSites()}
	cmd.Flags().StringVar(&format, "format", "text", "text, dot, svg or json")
	cmd.RunE = a.with(func(ctx context.Context, c *client.Client, args []string) error {
		g, err := c.SiteGraph(ctx, args[0])
		if err != nil {
			return err
		}
		switch format {
		case "text":
			fmt.Fprint(a.out, g.Text())
		case "dot":
			fmt.Fprint(a.out, g.DOT())
		case "svg":
			fmt.Fprint(a.out, g.SVG())
		case "json":
			return encode(a.out, asJSON, g)
		default:
			return usage(cmd, "there is no format %q: it must be text, dot, svg or json", format)
		}
		return nil
	})
	return cmd
}

func (a *app) siteCheckCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "check SITE", Short: "Check every object and report drift, changing nothing; the exit code is 4 where there is any", Args: args("SITE"),
		Example: "  coopr change check figure1", ValidArgsFunction: a.completeSites()}
	a.outputFlag(cmd, asTable, asJSON, asYAML)
	cmd.RunE = a.with(func(ctx context.Context, c *client.Client, args []string) error {
		found, err := c.CheckSite(ctx, args[0])
		if err != nil {
			return err
		}
		drifted := 0
		t := table{head: []string{"OBJECT", "HOST", "KNOWN", "FOUND", "WHAT"}}
		for _, f := range found {
			what := f.Message
			if f.Drifted {
				drifted++
				what = strings.TrimSpace("drifted. " + what)
			}
			t.row(f.Object, f.Host, f.Known, f.Found, clip(what, 100))
		}
		if a.structured() {
			err = a.print(found)
		} else {
			a.show(t)
			fmt.Fprintf(a.out, "%s checked, %d drifted.\n", count(len(found), "object"), drifted)
		}
		if err == nil && drifted > 0 {
			return &client.Error{Status: 409, Title: "Drift", Detail: fmt.Sprintf("%s of site %s drifted; with check_interval it is repaired", count(drifted, "object"), args[0])}
		}
		return err
	})
	return cmd
}

func (a *app) siteHistoryCmd() *cobra.Command {
	return listCmd(a, listing[site.PastGeneration]{
		use: "history SITE", short: "Show a site's generations", example: "  coopr change history figure1", args: args("SITE"), still: true, empty: "There are none.",
		fetch: func(ctx context.Context, c *client.Client, args []string, _ client.Read) ([]site.PastGeneration, client.Meta, error) {
			all, err := c.SiteHistory(ctx, args[0])
			return all, client.Meta{}, err
		},
		rows: func(items []site.PastGeneration) table {
			t := table{head: []string{"GENERATION", "APPLIED", "STATE", "OBJECTS", "ACTOR", "CONTENT OF"}}
			for _, g := range items {
				of := ""
				if g.Reverts != 0 {
					of = strconv.FormatUint(g.Reverts, 10)
				}
				t.row(strconv.FormatUint(g.Number, 10), moment(g.Time), g.State, strconv.Itoa(g.Objects), g.Actor, of)
			}
			return t
		},
	})
}

func (a *app) siteRevertCmd() *cobra.Command {
	var f followFlags
	var to uint64
	cmd := &cobra.Command{Use: "revert SITE [--to GENERATION]", Short: "Put the content of an earlier generation into force again", Args: args("SITE"),
		Example: "  coopr change revert figure1\n  coopr change revert figure1 --to 3 --wait", ValidArgsFunction: a.completeSites()}
	cmd.Flags().Uint64Var(&to, "to", 0, "number of the generation; the one before, if it is not given")
	f.flags(cmd)
	cmd.RunE = a.with(func(ctx context.Context, c *client.Client, args []string) error {
		ans, _, err := c.RevertSite(ctx, args[0], to)
		if err != nil {
			return err
		}
		return a.applied(ctx, c, args[0], ans, f)
	})
	return cmd
}

func (a *app) siteShowCmd() *cobra.Command {
	var generation uint64
	cmd := &cobra.Command{Use: "show SITE", Short: "Print a site's document", Args: args("SITE"), Example: "  coopr change show figure1 -o yaml", ValidArgsFunction: a.completeSites()}
	cmd.Flags().Uint64Var(&generation, "generation", 0, "that of an earlier generation")
	a.outputFlag(cmd, asYAML, asJSON)
	cmd.RunE = a.with(func(ctx context.Context, c *client.Client, args []string) error {
		d, err := c.Site(ctx, args[0], generation)
		if err != nil {
			return err
		}
		return a.print(d)
	})
	return cmd
}

func (a *app) siteReleaseCmd() *cobra.Command {
	var reason string
	cmd := &cobra.Command{Use: "release SITE OBJECT --reason TEXT", Short: "Say that an object whose home is gone holds nothing, so that others need not wait for it", Args: args("SITE", "OBJECT"),
		Example: "  coopr change release figure1 svcB --reason 'the machine was scrapped'", ValidArgsFunction: a.completeSites()}
	cmd.Flags().StringVar(&reason, "reason", "", "how you know (required)")
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		if reason == "" {
			return usage(cmd, "--reason is missing: say how you know, for those who read the audit log later")
		}
		if err := a.confirm(cmd, fmt.Sprintf("Are you sure that %s does nothing and holds nothing any more?", strings.Join(given[1:], " "))); err != nil {
			return err
		}
		return a.with(func(ctx context.Context, c *client.Client, args []string) error {
			if _, err := c.ReleaseObject(ctx, args[0], args[1], reason); err != nil {
				return err
			}
			fmt.Fprintf(a.out, "%s holds nothing any more.\n", args[1])
			return nil
		})(cmd, given)
	}
	return cmd
}

func (a *app) siteDeleteCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "delete SITE", Short: "Bring all objects of a site down in order, and forget it", Args: args("SITE"),
		Example: "  coopr change delete figure1 --yes", ValidArgsFunction: a.completeSites()}
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		if err := a.confirm(cmd, "Stop everything that the site has started, and forget it?"); err != nil {
			return err
		}
		return a.with(func(ctx context.Context, c *client.Client, args []string) error {
			ans, _, err := c.DeleteSite(ctx, args[0])
			if err != nil {
				return err
			}
			a.showPreview(&ans.ChangePreview)
			return nil
		})(cmd, given)
	}
	return cmd
}
