// Package run holds the commands for runs, and for the profiles, programs, schedules and secrets that they use.
package run

import (
	"context"
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
	"github.com/coopr/coopr/internal/words"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

// jobFlags holds the flags of "coopr run".
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

// Command returns the command "run".
func Command(app cli.App) *cobra.Command {
	out := app.Printer()
	var r jobFlags
	cmd := &cobra.Command{
		Use: "run [--profile PROFILE] [--nodes N] -- COMMAND [ARG…]", Short: "Run a job on a cluster of its own",
		Long: `Create a cluster with a profile, run a job on it, show the output of the job, and
delete the cluster.

If COMMAND is a local file, it is copied to the nodes and run there as a script.
Otherwise it is a command that exists on the nodes.

The exit code is that of the job, or 1 if the cluster could not be created. After
Ctrl-C the job continues; "coopr runs logs RUN --follow" shows its output again.`,
		Example: `  coopr run --profile small --nodes 3 -- ./job.sh data
  coopr run -- uname -a
  coopr run --program wordcount --profile small`,
	}
	f := cmd.Flags()
	f.SetInterspersed(false)
	f.StringVar(&r.req.Profile, "profile", "", "profile, as NAME or SYSTEM:NAME (default: from the preferences, or native)")
	f.IntVarP(&r.req.Nodes, "nodes", "n", 0, "number of nodes, if the profile allows the choice")
	f.StringVar(&r.fromProgram, "program", "", "run this program; COMMAND and ARG become its arguments")
	f.StringVar(&r.name, "name", "", "name of the job (default: from COMMAND)")
	f.StringVar(&r.on, "on", profile.OnEach, "nodes on which the job runs: each or one")
	f.StringArrayVarP(&r.env, "env", "e", nil,
		"environment variable of the job, as NAME=value; the value may be ${secure(SECRET)}; may be repeated")
	f.StringArrayVar(&r.files, "file", nil, "file to copy to the nodes; may be repeated")
	f.StringArrayVarP(&r.properties, "property", "p", nil, "override a property of the profile, as NAME=value; may be repeated")
	f.StringVar(&r.timeout, "timeout", "", "time limit of the job, such as 30m")
	f.BoolVarP(&r.detach, "detach", "d", false, "print the id of the run and do not wait")
	f.BoolVarP(&r.quiet, "quiet", "q", false, "show only the output of the job")
	cli.CompleteFlag(cmd, "profile", completeProfiles(app))
	cli.CompleteFlag(cmd, "program", completePrograms(app))
	cli.CompleteValues(cmd, "on", profile.OnEach, profile.OnOne)
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		if err := r.request(cmd, given); err != nil {
			return err
		}
		return cli.Run(app, func(ctx context.Context, c *client.Client, _ []string) error {
			run, _, err := c.StartRun(ctx, r.req)
			if err != nil {
				return err
			}
			if r.detach {
				out.Println(run.ID)
				return nil
			}
			return followRun(ctx, out, c, run, r.quiet)
		})(cmd, given)
	}
	return cmd
}

// request builds the request from the flags and the arguments.
func (r *jobFlags) request(cmd *cobra.Command, given []string) error {
	if r.req.Runtime = map[string]string{}; r.fromProgram != "" {
		r.req.Program, r.req.Arguments = r.fromProgram, given
	} else {
		if len(given) == 0 {
			return cli.Usage(cmd, "COMMAND is missing: write it after --, or name a program with --program")
		}
		p, err := r.program(given)
		if err != nil {
			return err
		}
		r.req.Inline = p
	}
	for _, pair := range r.properties {
		name, value, ok := cli.Pair(pair)
		if !ok {
			return cli.Usage(cmd, "--property %q must have the form NAME=value", pair)
		}
		r.req.Runtime[profile.PropertyPrefix+name] = value
	}
	return nil
}

// program returns a program with the job as its only step.
func (r *jobFlags) program(given []string) (*profile.Program, error) {
	s := profile.Step{Name: "run", On: r.on, Command: given, Env: map[string]string{}, Files: map[string]string{}}
	base := filepath.Base(given[0])
	if text, err := os.ReadFile(given[0]); err == nil {
		if !utf8.Valid(text) {
			return nil, fmt.Errorf("%s is not a script; install binaries in the image of the nodes, or name a command that exists there", given[0])
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

// followRun shows a run until its program ends.
func followRun(ctx context.Context, out *output.Printer, c *client.Client, run api.RunDetails, quiet bool) error {
	say := func(format string, args ...any) {
		if !quiet {
			out.Notef("%s %s\n", out.PaintTo(out.Stderr, output.Faint, "run "+run.ID+":"), fmt.Sprintf(format, args...))
		}
	}
	say("creating a cluster with profile %s", run.Profile)
	for _, name := range run.Ignored {
		say("property %s is locked by the profile; the value of the profile is used", name)
	}
	left := func(err error) error {
		if cli.Interrupted(ctx) {
			out.Notef("The run continues. To see its output again: coopr runs logs %s --follow\nTo stop it: coopr runs stop %s\n", run.ID, run.ID)
			return cli.ErrLeft
		}
		return err
	}
	run, err := awaitRun(ctx, c, run, func(r api.RunDetails) bool { return r.Operation != "" || r.Status.Ended() })
	if err != nil {
		return left(err)
	}
	if n := run.Cluster.NumNodes; n != nil && run.Cluster.Up > 0 {
		say("%s ready after %s", words.Count(*n, "node"), time.Duration(run.ProvisioningMillis)*time.Millisecond)
	}
	if run.Operation != "" {
		if err := c.RunLog(ctx, run.ID, true, showLine(out, run)); err != nil {
			return left(err)
		}
	}
	if run, err = awaitRun(ctx, c, run, func(r api.RunDetails) bool { return r.Status.Ended() }); err != nil {
		return left(err)
	}
	return ended(run, say)
}

// showLine returns a function that shows a line of a program's output, after the node's name if there are
// several nodes.
func showLine(out *output.Printer, run api.RunDetails) func(api.RunLine) error {
	return func(l api.RunLine) error {
		w := out.Stdout
		if l.Stderr || l.Missing {
			w = out.Stderr
		}
		prefix := ""
		if s, _ := run.Program.Step(l.Step); s.On != profile.OnOne && run.Cluster.NumNodes != nil && *run.Cluster.NumNodes > 1 {
			prefix = l.Node + " | "
		}
		return out.Output(w, prefix+l.Text+"\n")
	}
}

// ended shows how a run ended, and returns the error with which the command ends.
func ended(run api.RunDetails, say func(string, ...any)) error {
	defer func() {
		if run.Cluster.Status == profile.Waiting {
			say("the nodes are kept %s", keptUntil(run))
			say("  show them:        coopr runs get %s", run.ID)
			say("  keep them longer: coopr runs extend %s 1h", run.ID)
			say("  delete them:      coopr runs deprovision %s", run.ID)
		}
	}()
	if run.Status == profile.Completed {
		say("completed")
		if run.ExitCode != nil && *run.ExitCode != 0 {
			return &cli.ExitError{Code: *run.ExitCode} // the program accepts this exit code as a success
		}
		return nil
	}
	if run.Failure == profile.FailedProvisioning {
		return fmt.Errorf("run %s: %s", run.ID, run.Message)
	}
	say("%s: %s", strings.ToLower(string(run.Status)), run.Message)
	if run.ExitCode != nil && *run.ExitCode > 0 {
		return &cli.ExitError{Code: *run.ExitCode}
	}
	return &cli.ExitError{Code: 1}
}

// keptUntil describes for how long the nodes of a waiting run are kept.
func keptUntil(r api.RunDetails) string {
	if r.Cluster.ExpiresAt == 0 {
		return "until they are deleted by hand"
	}
	return "until " + output.Moment(r.Cluster.ExpiresAt)
}

// awaitRun waits until ready returns true for a run. If it fails, it returns the latest known state of the
// run with the error.
func awaitRun(ctx context.Context, c *client.Client, run api.RunDetails, ready func(api.RunDetails) bool) (api.RunDetails, error) {
	read := client.Read{}
	for {
		r, m, err := c.Run(ctx, run.ID, read)
		if err != nil {
			return run, err
		}
		if run = r; ready(run) {
			return run, nil
		}
		read = cli.Newer(m)
	}
}

// RunsCommand returns the command "runs".
func RunsCommand(app cli.App) *cobra.Command {
	out := app.Printer()
	var f client.RunFilter
	var page client.Page
	list := cli.List(app, cli.Listing[api.RunDetails]{
		Use: "list", Short: "List runs, newest first",
		Example: "  coopr runs list\n  coopr runs list --status WAITING\n  coopr runs list --orphaned",
		Empty:   "There are no runs.", Narrow: []string{"program", "profile", "schedule", "status", "orphaned"},
		Fetch: func(ctx context.Context, c *client.Client, _ []string, read client.Read) ([]api.RunDetails, client.Meta, error) {
			return c.Runs(ctx, f, page, read)
		},
		Rows: func(items []api.RunDetails) output.Table {
			t := output.Table{Head: []string{"RUN", "PROGRAM", "PROFILE", "STATUS", "CLUSTER", "NODES", "AGE", "EXPIRES", "MESSAGE"}}
			for _, r := range items {
				nodes := ""
				if r.Cluster.NumNodes != nil {
					nodes = strconv.Itoa(*r.Cluster.NumNodes)
				}
				message := r.Message
				if r.Lost() {
					message = r.Orphan.Reason
				}
				t.Row(r.ID, r.Program.Name, r.Profile, string(r.Status), string(r.Cluster.Status), nodes, out.Ago(r.Created),
					output.Moment(r.Cluster.ExpiresAt), message)
			}
			return t
		},
	})
	s := list.Flags()
	s.StringVar(&f.Program, "program", "", "only runs of this program")
	s.StringVar(&f.Profile, "profile", "", "only runs with this profile")
	s.StringVar(&f.Schedule, "schedule", "", "only runs that this schedule started")
	s.StringVar(&f.Status, "status", "", "only runs with one of these statuses, of the program or of the cluster")
	s.BoolVar(&f.Orphaned, "orphaned", false, "only runs whose clusters may still exist")
	cli.CompleteFlag(list, "program", completePrograms(app))
	cli.CompleteFlag(list, "profile", completeProfiles(app))
	cli.CompleteFlag(list, "schedule", completeSchedules(app))
	cli.OffsetFlag(list, &page)

	get := &cobra.Command{Use: "get RUN", Aliases: []string{"show"}, Short: "Show a run: its program, its cluster and its nodes",
		Args: cli.Args("RUN"), Example: "  coopr runs get 05q8v3k1m2n4p6r8", ValidArgsFunction: completeRuns(app, nil)}
	cli.FormFlag(get, output.FormTable, output.FormJSON, output.FormYAML)
	get.RunE = cli.Show(app, func(ctx context.Context, c *client.Client, args []string) (api.RunDetails, error) {
		r, _, err := c.Run(ctx, args[0], client.Read{})
		return r, err
	}, func(r api.RunDetails) { showRun(out, r) })
	var follow bool
	logs := &cobra.Command{Use: "logs RUN", Short: "Show the output of a run", Args: cli.Args("RUN"),
		Example: "  coopr runs logs 05q8v3k1m2n4p6r8 --follow", ValidArgsFunction: completeRuns(app, nil)}
	logs.Flags().BoolVarP(&follow, "follow", "f", false, "follow the output until the program ends")
	logs.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		r, _, err := c.Run(ctx, args[0], client.Read{})
		if err == nil {
			err = c.RunLog(ctx, args[0], follow, showLine(out, r))
		}
		return err
	})
	return cli.Group("runs", "Show and control runs", list, get, logs, runStopCmd(app), runExtendCmd(app), runForceCmd(app),
		runOrderCmd(app, "deprovision", "Delete the nodes that were kept after a run", waits, func(string) any { return nil }),
		runOrderCmd(app, "retry", "Try again to delete the cluster of an orphaned run", (*profile.Run).Lost, func(string) any { return nil }),
		runOrderCmd(app, "purge", "Remove a run from the list of orphans, because nothing is left of it", (*profile.Run).Lost,
			func(reason string) any { return api.OrderBody{Reason: reason} }))
}

// showRun shows a run as text.
func showRun(out *output.Printer, r api.RunDetails) {
	out.Printf("Run %s of program %s with profile %s\n", r.ID, r.Program.Name, r.Profile)
	out.Printf("Program: %s", out.Paint(output.ColourOf(strings.ToLower(string(r.Status))), string(r.Status)))
	if r.ExitCode != nil {
		out.Printf(", exit code %d", *r.ExitCode)
	}
	switch {
	case r.Message != "":
		out.Printf(": %s", r.Message)
	case r.Halt != nil:
		out.Printf(": %s", r.Halt.Reason)
	}
	for _, x := range r.Exits {
		out.Printf("\n  step %s on %s ended with exit code %d", x.Step, x.Node, x.Code)
	}
	out.Printf("\nCluster: %s", r.Cluster.Status)
	if r.Cluster.ID != "" {
		out.Printf(" (%s, %s)", r.Cluster.Name, r.Cluster.ID)
	}
	if r.Cluster.Status == profile.Waiting {
		out.Printf(", nodes kept %s", keptUntil(r))
	}
	out.Println()
	if t := r.Current(); t != nil {
		out.Printf("Current task: %s, %s", t.Type, t.Status)
		if t.Error != "" {
			out.Printf("; failed %s: %s", words.Count(t.Failures, "time"), t.Error)
		}
		out.Println()
	}
	if r.Lost() {
		out.Printf("Orphaned: %s\n", r.Orphan.Reason)
	}
	started := fmt.Sprintf("Started: %s by %s", output.Moment(r.Created), r.Actor)
	if r.Schedule != "" {
		started += fmt.Sprintf(", by schedule %s for %s", r.Schedule, output.Moment(r.Due))
	}
	out.Println(started)
	if r.Ended > 0 && r.Started > 0 {
		out.Printf("Provisioning took %s; the program took %s\n", time.Duration(r.ProvisioningMillis)*time.Millisecond,
			time.Duration(r.Ended-r.Started)*time.Millisecond)
	}
	if len(r.Ignored) > 0 {
		out.Printf("Locked by the profile, so not overridden: %s\n", strings.Join(r.Ignored, ", "))
	}
	out.Printf("Node-minutes: %d\n", r.NodeMinutes)
	if len(r.Cluster.Nodes) > 0 {
		out.Println()
		t := output.Table{Head: []string{"NODE", "HOSTNAME", "ADDRESS"}}
		for _, n := range r.Cluster.Nodes {
			t.Row(n.ID, n.Properties["hostname"], n.Properties["access_v4"])
		}
		out.Show(t)
	}
	t := output.Table{Head: []string{"PLAN", "OPERATION"}}
	for _, p := range [][2]string{{"provision", r.ProvisionOperation}, {"program", r.Operation}, {"deprovision", r.DeprovisionOperation}} {
		if p[1] != "" {
			t.Row(p[0]+":"+r.ID, p[1])
		}
	}
	if len(t.Rows) > 0 {
		out.Println()
		out.Show(t)
	}
}

// runOrder sends an order about a run and shows the new state of the run.
func runOrder(ctx context.Context, out *output.Printer, c *client.Client, id, order string, body any) error {
	r, _, err := c.OrderRun(ctx, id, order, body)
	if err != nil {
		return err
	}
	what := ""
	switch {
	case order == "extend":
		what = "; the nodes are kept " + keptUntil(r)
	case order == "retry":
		what = "; the deletion is tried again"
	case order == "purge":
		what = "; it was removed from the list of orphans"
	}
	out.Printf("Run %s: program %s, cluster %s%s.\n", r.ID, r.Status, r.Cluster.Status, what)
	return nil
}

// runOrderCmd returns a command that sends an order about a run. If body returns a value, the order needs a
// reason. fits selects the runs that completion offers.
func runOrderCmd(app cli.App, order, short string, fits func(*profile.Run) bool, body func(reason string) any) *cobra.Command {
	out := app.Printer()
	var reason string
	cmd := &cobra.Command{Use: order + " RUN", Short: short, Args: cli.Args("RUN"),
		Example: "  coopr runs " + order + " 05q8v3k1m2n4p6r8", ValidArgsFunction: completeRuns(app, fits)}
	if body("x") != nil {
		cmd.Flags().StringVar(&reason, "reason", "", "reason, kept in the audit log (required)")
		cmd.Example += " --reason 'checked by hand'"
	}
	cmd.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		if cmd.Flags().Lookup("reason") != nil && reason == "" {
			return cli.Usage(cmd, "--reason is missing: say why; the audit log keeps the text")
		}
		return runOrder(ctx, out, c, args[0], order, body(reason))
	})
	return cmd
}

func runStopCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	var b api.StopBody
	cmd := &cobra.Command{Use: "stop RUN", Short: "Stop the program of a run, and delete or keep the nodes", Args: cli.Args("RUN"),
		Example: "  coopr runs stop 05q8v3k1m2n4p6r8 --keep", ValidArgsFunction: completeRuns(app, (*profile.Run).Active)}
	cmd.Flags().BoolVar(&b.KeepAlive, "keep", false, "keep the nodes for as long as the profile allows")
	cmd.Flags().StringVar(&b.Reason, "reason", "", "reason, kept in the audit log")
	cmd.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		return runOrder(ctx, out, c, args[0], "stop", b)
	})
	return cmd
}

func runExtendCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	cmd := &cobra.Command{Use: "extend RUN DURATION", Short: "Keep the nodes of a run for a time from now on; 0: without a limit",
		Args: cli.Args("RUN", "DURATION"), ValidArgsFunction: completeRuns(app, waits),
		Example: "  coopr runs extend 05q8v3k1m2n4p6r8 2h\n  coopr runs extend 05q8v3k1m2n4p6r8 0"}
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		if len(given) < 2 {
			return cli.Usage(cmd, "DURATION is missing")
		}
		m, err := millis(given[1])
		if err != nil {
			return cli.Usage(cmd, "%q is not a duration; use 30m, 2h or 3d, for example", given[1])
		}
		return cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
			body := api.ExtendBody{}
			if m > 0 {
				body.ExpireAt = out.Clock().UnixMilli() + int64(m)
			}
			return runOrder(ctx, out, c, args[0], "extend", body)
		})(cmd, given)
	}
	return cmd
}

func runForceCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	var orphan bool
	var b api.ForceBody
	cmd := &cobra.Command{Use: "force RUN", Short: "Mark the cluster of a run as deleted, if it cannot be deleted", Args: cli.Args("RUN"),
		ValidArgsFunction: completeRuns(app, (*profile.Run).Up),
		Example: "  coopr runs force 05q8v3k1m2n4p6r8 --reason 'deleted in the console'\n" +
			"  coopr runs force 05q8v3k1m2n4p6r8 --orphaned --reason 'the account is closed'"}
	cmd.Flags().BoolVar(&orphan, "orphaned", false, "the cluster may still exist: add the run to the list of orphans")
	cmd.Flags().StringVar(&b.Reason, "reason", "", "what was done, kept in the audit log (required)")
	cmd.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		if b.Reason == "" {
			return cli.Usage(cmd, "--reason is missing: say what was done; the audit log keeps the text")
		}
		if b.To = profile.Deprovisioned; orphan {
			b.To = profile.Orphaned
		}
		return runOrder(ctx, out, c, args[0], "force", b)
	})
	return cmd
}
