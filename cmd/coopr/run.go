package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"
)

// jobError is a job that ended otherwise than well; the command ends with its code.
type jobError struct{ code int }

func (e *jobError) Error() string { return fmt.Sprintf("the job ended with exit status %d", e.code) }

// jobFlags are the flags of coopr run.
type jobFlags struct {
	req         api.StartRun
	name, on    string
	env, files  []string
	properties  []string
	timeout     string
	detach      bool
	quiet       bool
	fromProgram string
}

func (a *app) runCmd() *cobra.Command {
	var r jobFlags
	cmd := &cobra.Command{
		Use: "run [--profile PROFILE] [--nodes N] -- COMMAND [ARG…]", Short: "Run a job on a cluster of its own, and end with its exit code",
		Long: `Make a cluster by a profile, run a job on it, show what the job writes, and tear the
cluster down. A COMMAND that is a file here is taken along: its text is run on the
nodes. Any other one is a command on the nodes.

The command ends with the job's own exit code; with 1 where the cluster could not
be made. Ctrl-C leaves the job alone: coopr runs logs RUN --follow picks it up again.`,
		Example: `  coopr run --profile small --nodes 3 -- ./job.sh data
  coopr run -- uname -a
  coopr run --program wordcount --profile small`,
	}
	f := cmd.Flags()
	f.SetInterspersed(false)
	f.StringVar(&r.req.Profile, "profile", "", "the profile, SYSTEM:name or name; else as the preferences have it, else native")
	f.IntVarP(&r.req.Nodes, "nodes", "n", 0, "how many nodes, where the profile lets one choose")
	f.StringVar(&r.fromProgram, "program", "", "run this program; COMMAND and ARG are its arguments then")
	f.StringVar(&r.name, "name", "", "what the job is called; else by its command")
	f.StringVar(&r.on, "on", profile.OnEach, "where it runs: each node, or one")
	f.StringArrayVarP(&r.env, "env", "e", nil, "a variable of the job's environment, as NAME=value, where the value may be ${secure(SECRET)}; may be repeated")
	f.StringArrayVar(&r.files, "file", nil, "a file to take along; may be repeated")
	f.StringArrayVarP(&r.properties, "property", "p", nil, "override a property of the profile, as NAME=value; may be repeated")
	f.StringVar(&r.timeout, "timeout", "", "how long the job may take, such as 30m")
	f.BoolVarP(&r.detach, "detach", "d", false, "do not wait: print the run's id")
	f.BoolVarP(&r.quiet, "quiet", "q", false, "show only what the job writes")
	flagNames(cmd, "profile", a.completeProfiles())
	flagNames(cmd, "program", a.completePrograms())
	fixedNames(cmd, "on", profile.OnEach, profile.OnOne)
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		if err := r.request(cmd, given); err != nil {
			return err
		}
		return a.with(func(ctx context.Context, c *client.Client, _ []string) error {
			run, _, err := c.StartRun(ctx, r.req)
			if err != nil {
				return err
			}
			if r.detach {
				fmt.Fprintln(a.out, run.ID)
				return nil
			}
			return a.followRun(ctx, c, run, r.quiet)
		})(cmd, given)
	}
	return cmd
}

// request makes the request of the flags and the command line.
func (r *jobFlags) request(cmd *cobra.Command, given []string) error {
	if r.req.Runtime = map[string]string{}; r.fromProgram != "" {
		r.req.Program, r.req.Arguments = r.fromProgram, given
	} else {
		if len(given) == 0 {
			return usage(cmd, "COMMAND is missing: write it behind --, or name a program with --program")
		}
		p, err := r.program(given)
		if err != nil {
			return err
		}
		r.req.Inline = p
	}
	for _, pair := range r.properties {
		name, value, ok := strings.Cut(pair, "=")
		if !ok {
			return usage(cmd, "%q is no property: write NAME=value", pair)
		}
		r.req.Runtime[profile.PropertyPrefix+name] = value
	}
	return nil
}

func (r *jobFlags) program(given []string) (*profile.Program, error) {
	s := profile.Step{Name: "run", On: r.on, Command: given, Env: map[string]string{}, Files: map[string]string{}}
	base := filepath.Base(given[0])
	if text, err := os.ReadFile(given[0]); err == nil {
		if !utf8.Valid(text) {
			return nil, fmt.Errorf("%s is no script: put programs on the nodes' image, or name a command there", given[0])
		}
		s.Script, s.Command, s.Args = string(text), nil, given[1:]
	}
	for _, pair := range r.env {
		name, value, _ := strings.Cut(pair, "=")
		s.Env[name] = value
	}
	for _, file := range r.files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		s.Files[filepath.Base(file)] = string(text)
	}
	if r.name == "" {
		r.name = strings.TrimSuffix(base, filepath.Ext(base))
	}
	if model.CheckName(r.name) != "" {
		r.name = "job"
	}
	p := &profile.Program{Name: r.name, Steps: []profile.Step{s}}
	if r.timeout != "" {
		m, err := millis(r.timeout)
		if err != nil {
			return nil, fmt.Errorf("--timeout: %w", err)
		}
		p.Timeout = m
	}
	return p, nil
}

// followRun shows a run until its program is over.
func (a *app) followRun(ctx context.Context, c *client.Client, run api.RunDetails, quiet bool) error {
	say := func(format string, args ...any) {
		if !quiet {
			fmt.Fprintf(a.err, "%s %s\n", a.paint(a.err, faint, "run "+run.ID+":"), fmt.Sprintf(format, args...))
		}
	}
	say("making a cluster by profile %s", run.Profile)
	for _, name := range run.Ignored {
		say("the profile does not let one choose %s: its own value counts", name)
	}
	left := func(err error) error {
		if errors.Is(context.Cause(ctx), errInterrupted) {
			fmt.Fprintf(a.err, "The run goes on. See it again: coopr runs logs %s --follow; end it: coopr runs stop %s\n", run.ID, run.ID)
			return errLeft
		}
		return err
	}
	run, err := awaitRun(ctx, c, run, func(r api.RunDetails) bool { return r.Operation != "" || r.Status.Ended() })
	if err != nil {
		return left(err)
	}
	if n := run.Cluster.NumNodes; n != nil && run.Cluster.Up > 0 {
		say("%s after %s", count(*n, "node"), time.Duration(run.ProvisioningMillis)*time.Millisecond)
	}
	if run.Operation != "" {
		if err := c.RunLog(ctx, run.ID, true, a.showLine(run)); err != nil {
			return left(err)
		}
	}
	if run, err = awaitRun(ctx, c, run, func(r api.RunDetails) bool { return r.Status.Ended() }); err != nil {
		return left(err)
	}
	return a.told(run, say)
}

// showLine prints what a program wrote, with the node's name before it where there are several.
func (a *app) showLine(run api.RunDetails) func(api.RunLine) error {
	return func(l api.RunLine) error {
		w := a.out
		if l.Stderr {
			w = a.err
		}
		prefix := ""
		if s, _ := run.Program.Step(l.Step); s.On != profile.OnOne && run.Cluster.NumNodes != nil && *run.Cluster.NumNodes > 1 {
			prefix = l.Node + " | "
		}
		_, err := fmt.Fprintln(w, prefix+l.Text)
		return err
	}
}

// told says how a run ended, and gives the error that the command ends with.
func (a *app) told(run api.RunDetails, say func(string, ...any)) error {
	defer func() {
		if run.Cluster.Status == profile.Waiting {
			say("its nodes are kept %s", keptUntil(run))
			say("  look at them:     coopr runs get %s", run.ID)
			say("  keep them longer: coopr runs extend %s 1h", run.ID)
			say("  end them:         coopr runs deprovision %s", run.ID)
		}
	}()
	if run.Status == profile.Completed {
		say("completed")
		if run.ExitCode != nil && *run.ExitCode != 0 {
			return &jobError{*run.ExitCode} // one that the program expects, and its own
		}
		return nil
	}
	if run.Failure == profile.FailedProvisioning {
		return fmt.Errorf("run %s: %s", run.ID, run.Message)
	}
	say("%s: %s", strings.ToLower(string(run.Status)), run.Message)
	if run.ExitCode != nil && *run.ExitCode > 0 {
		return &jobError{*run.ExitCode}
	}
	return &jobError{1}
}

// keptUntil says how long the nodes of a run that waits are there.
func keptUntil(r api.RunDetails) string {
	if r.Cluster.ExpiresAt == 0 {
		return "until somebody ends them"
	}
	return "until " + moment(r.Cluster.ExpiresAt)
}

// awaitRun waits until a run is as it should be. With an error it gives the run as it was
// known last.
func awaitRun(ctx context.Context, c *client.Client, run api.RunDetails, ready func(api.RunDetails) bool) (api.RunDetails, error) {
	read := client.Read{}
	for {
		r, m, err := c.Run(ctx, run.ID, read)
		if err != nil {
			return run, err // what was known of it
		}
		if run = r; ready(run) {
			return run, nil
		}
		read = client.Read{After: max(m.Index, 1), Wait: waitNewer}
	}
}

func (a *app) runsCmd() *cobra.Command {
	var f client.RunFilter
	var page client.Page
	list := listCmd(a, listing[api.RunDetails]{
		use: "list", short: "List runs, the newest first", example: "  coopr runs list\n  coopr runs list --status WAITING\n  coopr runs list --orphaned",
		empty: "There are no runs.", narrow: []string{"program", "profile", "schedule", "status", "orphaned"},
		fetch: func(ctx context.Context, c *client.Client, _ []string, read client.Read) ([]api.RunDetails, client.Meta, error) {
			return c.Runs(ctx, f, page, read)
		},
		rows: func(items []api.RunDetails) table {
			t := table{head: []string{"RUN", "PROGRAM", "PROFILE", "STATUS", "CLUSTER", "NODES", "AGE", "EXPIRES", "MESSAGE"}}
			for _, r := range items {
				nodes := ""
				if r.Cluster.NumNodes != nil {
					nodes = strconv.Itoa(*r.Cluster.NumNodes)
				}
				message := r.Message
				if r.Lost() {
					message = r.Orphan.Reason
				}
				t.row(r.ID, r.Program.Name, r.Profile, string(r.Status), string(r.Cluster.Status), nodes, a.ago(r.Created), moment(r.Cluster.ExpiresAt), clip(message, 60))
			}
			return t
		},
	})
	s := list.Flags()
	s.StringVar(&f.Program, "program", "", "only of this program")
	s.StringVar(&f.Profile, "profile", "", "only with this profile")
	s.StringVar(&f.Schedule, "schedule", "", "only those that this schedule began")
	s.StringVar(&f.Status, "status", "", "only with one of these statuses, of the program or the cluster")
	s.BoolVar(&f.Orphaned, "orphaned", false, "only those whose clusters may still be there")
	flagNames(list, "program", a.completePrograms())
	flagNames(list, "profile", a.completeProfiles())
	flagNames(list, "schedule", a.completeSchedules())
	pageFlags(list, &page)

	get := &cobra.Command{Use: "get RUN", Aliases: []string{"show"}, Short: "Show a run: its program, its cluster and its nodes", Args: args("RUN"), Example: "  coopr runs get 05q8v3k1m2n4p6r8", ValidArgsFunction: a.completeRuns(nil)}
	a.outputFlag(get, asTable, asJSON, asYAML)
	get.RunE = a.with(func(ctx context.Context, c *client.Client, args []string) error {
		r, _, err := c.Run(ctx, args[0], client.Read{})
		switch {
		case err != nil:
			return err
		case a.structured():
			return a.print(r)
		}
		a.showRun(r)
		return nil
	})
	var follow bool
	logs := &cobra.Command{Use: "logs RUN", Short: "Show what a run's program wrote", Args: args("RUN"), Example: "  coopr runs logs 05q8v3k1m2n4p6r8 --follow", ValidArgsFunction: a.completeRuns(nil)}
	logs.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the program is over")
	logs.RunE = a.with(func(ctx context.Context, c *client.Client, args []string) error {
		r, _, err := c.Run(ctx, args[0], client.Read{})
		if err == nil {
			err = c.RunLog(ctx, args[0], follow, a.showLine(r))
		}
		return err
	})
	return group("runs", "Look at runs, and steer them", list, get, logs, a.runStopCmd(), a.runExtendCmd(), a.runForceCmd(),
		a.runOrderCmd("deprovision", "Tear down the nodes of a run that were kept", waits, func(string) any { return nil }),
		a.runOrderCmd("retry", "Try to tear down once more what is left of an orphaned run", (*profile.Run).Lost, func(string) any { return nil }),
		a.runOrderCmd("purge", "Take a run off the list of orphans: nothing is left of it", (*profile.Run).Lost, func(reason string) any { return api.OrderBody{Reason: reason} }))
}

func (a *app) showRun(r api.RunDetails) {
	fmt.Fprintf(a.out, "%s of %s with profile %s\n", r.ID, r.Program.Name, r.Profile)
	fmt.Fprintf(a.out, "Program: %s", a.paint(a.out, colourOf(strings.ToLower(string(r.Status))), string(r.Status)))
	if r.ExitCode != nil {
		fmt.Fprintf(a.out, ", exit code %d", *r.ExitCode)
	}
	switch {
	case r.Message != "":
		fmt.Fprintf(a.out, ": %s", r.Message)
	case r.Halt != nil:
		fmt.Fprintf(a.out, ": %s", r.Halt.Reason)
	}
	for _, x := range r.Exits {
		fmt.Fprintf(a.out, "\n  step %s on %s ended with exit code %d", x.Step, x.Node, x.Code)
	}
	fmt.Fprintf(a.out, "\nCluster: %s", r.Cluster.Status)
	if r.Cluster.ID != "" {
		fmt.Fprintf(a.out, " (%s, %s)", r.Cluster.Name, r.Cluster.ID)
	}
	if r.Cluster.Status == profile.Waiting {
		fmt.Fprintf(a.out, ", its nodes are kept %s", keptUntil(r))
	}
	fmt.Fprintln(a.out)
	if t := r.Current(); t != nil {
		fmt.Fprintf(a.out, "Under way: %s, %s", t.Type, t.Status)
		if t.Error != "" {
			fmt.Fprintf(a.out, "; tried %s: %s", count(t.Failures, "time"), t.Error)
		}
		fmt.Fprintln(a.out)
	}
	if r.Lost() {
		fmt.Fprintf(a.out, "Orphaned: %s\n", r.Orphan.Reason)
	}
	begun := fmt.Sprintf("Begun: %s by %s", moment(r.Created), r.Actor)
	if r.Schedule != "" {
		begun += fmt.Sprintf(", by schedule %s for %s", r.Schedule, moment(r.Due))
	}
	fmt.Fprintln(a.out, begun)
	if r.Ended > 0 && r.Started > 0 {
		fmt.Fprintf(a.out, "Provisioned in %s, the program took %s\n", time.Duration(r.ProvisioningMillis)*time.Millisecond, time.Duration(r.Ended-r.Started)*time.Millisecond)
	}
	if len(r.Ignored) > 0 {
		fmt.Fprintf(a.out, "Locked by the profile, not overridden: %s\n", strings.Join(r.Ignored, ", "))
	}
	fmt.Fprintf(a.out, "Node-minutes: %d\n", r.NodeMinutes)
	if len(r.Cluster.Nodes) > 0 {
		fmt.Fprintln(a.out)
		t := table{head: []string{"NODE", "HOSTNAME", "ADDRESS"}}
		for _, n := range r.Cluster.Nodes {
			t.row(n.ID, n.Properties["hostname"], n.Properties["access_v4"])
		}
		a.show(t)
	}
	t := table{head: []string{"PLAN", "OPERATION"}}
	for _, p := range [][2]string{{"provision", r.ProvisionOperation}, {"program", r.Operation}, {"deprovision", r.DeprovisionOperation}} {
		if p[1] != "" {
			t.row(p[0]+":"+r.ID, p[1])
		}
	}
	if len(t.rows) > 0 {
		fmt.Fprintln(a.out)
		a.show(t)
	}
}

// runOrder gives an order, and tells what the run is then.
func (a *app) runOrder(ctx context.Context, c *client.Client, id, order string, body any) error {
	r, _, err := c.OrderRun(ctx, id, order, body)
	if err != nil {
		return err
	}
	what := ""
	switch {
	case order == "extend":
		what = "; its nodes are kept " + keptUntil(r)
	case order == "retry":
		what = "; tearing it down is tried again"
	case order == "purge":
		what = "; it is off the list of orphans"
	}
	fmt.Fprintf(a.out, "Run %s: its program is %s, its cluster %s%s.\n", r.ID, r.Status, r.Cluster.Status, what)
	return nil
}

func (a *app) runOrderCmd(order, short string, fits func(*profile.Run) bool, body func(reason string) any) *cobra.Command {
	var reason string
	cmd := &cobra.Command{Use: order + " RUN", Short: short, Args: args("RUN"), Example: "  coopr runs " + order + " 05q8v3k1m2n4p6r8", ValidArgsFunction: a.completeRuns(fits)}
	if body("x") != nil {
		cmd.Flags().StringVar(&reason, "reason", "", "why; it is kept in the audit log")
		cmd.Example += " --reason 'looked for it by hand'"
	}
	cmd.RunE = a.with(func(ctx context.Context, c *client.Client, args []string) error {
		if cmd.Flags().Lookup("reason") != nil && reason == "" {
			return usage(cmd, "--reason is missing: say why")
		}
		return a.runOrder(ctx, c, args[0], order, body(reason))
	})
	return cmd
}

func (a *app) runStopCmd() *cobra.Command {
	var b api.StopBody
	cmd := &cobra.Command{Use: "stop RUN", Short: "End a run's program, and tear its nodes down or keep them", Args: args("RUN"), Example: "  coopr runs stop 05q8v3k1m2n4p6r8 --keep", ValidArgsFunction: a.completeRuns((*profile.Run).Active)}
	cmd.Flags().BoolVar(&b.KeepAlive, "keep", false, "keep the nodes, as long as the profile says")
	cmd.Flags().StringVar(&b.Reason, "reason", "", "why")
	cmd.RunE = a.with(func(ctx context.Context, c *client.Client, args []string) error {
		return a.runOrder(ctx, c, args[0], "stop", b)
	})
	return cmd
}

func (a *app) runExtendCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "extend RUN DURATION", Short: "Keep a run's nodes for longer, from now on; 0 until somebody ends them", Args: args("RUN", "DURATION"), ValidArgsFunction: a.completeRuns(waits),
		Example: "  coopr runs extend 05q8v3k1m2n4p6r8 2h\n  coopr runs extend 05q8v3k1m2n4p6r8 0"}
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		if len(given) < 2 {
			return usage(cmd, "DURATION is missing")
		}
		m, err := millis(given[1])
		if err != nil {
			return usage(cmd, "%q is no duration such as 30m, 2h or 3d", given[1])
		}
		return a.with(func(ctx context.Context, c *client.Client, args []string) error {
			body := api.ExtendBody{}
			if m > 0 {
				body.ExpireAt = a.now().UnixMilli() + int64(m)
			}
			return a.runOrder(ctx, c, args[0], "extend", body)
		})(cmd, given)
	}
	return cmd
}

func (a *app) runForceCmd() *cobra.Command {
	var orphan bool
	var b api.ForceBody
	cmd := &cobra.Command{Use: "force RUN", Short: "Take a run's cluster for torn down, whatever it is: for one that cannot be", Args: args("RUN"), ValidArgsFunction: a.completeRuns((*profile.Run).Up),
		Example: "  coopr runs force 05q8v3k1m2n4p6r8 --reason 'deleted in the console'\n  coopr runs force 05q8v3k1m2n4p6r8 --orphaned --reason 'the account is closed'"}
	cmd.Flags().BoolVar(&orphan, "orphaned", false, "it may be there still: put it on the list of orphans")
	cmd.Flags().StringVar(&b.Reason, "reason", "", "what was done; it is kept in the audit log")
	cmd.RunE = a.with(func(ctx context.Context, c *client.Client, args []string) error {
		if b.Reason == "" {
			return usage(cmd, "--reason is missing: say what was done")
		}
		if b.To = profile.Deprovisioned; orphan {
			b.To = profile.Orphaned
		}
		return a.runOrder(ctx, c, args[0], "force", b)
	})
	return cmd
}
