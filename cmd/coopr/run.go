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
	_ = cmd.RegisterFlagCompletionFunc("profile", a.completeProfiles())
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
	switch {
	case run.Cluster.Status != profile.Waiting:
	case run.Cluster.ExpiresAt == 0:
		say("its nodes are kept until you end them: coopr runs deprovision %s", run.ID)
	default:
		say("its nodes are kept until %s: look at them with coopr runs get %s, keep them longer with coopr runs extend %s 1h, end them with coopr runs deprovision %s",
			moment(run.Cluster.ExpiresAt), run.ID, run.ID, run.ID)
	}
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

// awaitRun waits until a run is as it should be.
func awaitRun(ctx context.Context, c *client.Client, run api.RunDetails, ready func(api.RunDetails) bool) (api.RunDetails, error) {
	read := client.Read{}
	for {
		r, m, err := c.Run(ctx, run.ID, read)
		if err != nil || ready(r) {
			return r, err
		}
		read = client.Read{After: max(m.Index, 1), Wait: time.Minute}
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
				t.row(r.ID, r.Program.Name, r.Profile, string(r.Status), string(r.Cluster.Status), nodes, a.ago(r.Created), moment(r.Cluster.ExpiresAt), clip(r.Message, 60))
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
	pageFlags(list, &page)

	get := &cobra.Command{Use: "get RUN", Aliases: []string{"show"}, Short: "Show a run: its program, its cluster and its nodes", Args: args("RUN"), Example: "  coopr runs get 05q8v3k1m2n4p6r8"}
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
	logs := &cobra.Command{Use: "logs RUN", Short: "Show what a run's program wrote", Args: args("RUN"), Example: "  coopr runs logs 05q8v3k1m2n4p6r8 --follow"}
	logs.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the program is over")
	logs.RunE = a.with(func(ctx context.Context, c *client.Client, args []string) error {
		r, _, err := c.Run(ctx, args[0], client.Read{})
		if err == nil {
			err = c.RunLog(ctx, args[0], follow, a.showLine(r))
		}
		return err
	})
	return group("runs", "Look at runs, and steer them", list, get, logs, a.runStopCmd(), a.runExtendCmd(), a.runForceCmd(),
		a.runOrderCmd("deprovision", "Tear down the nodes of a run that were kept", func(string) any { return nil }),
		a.runOrderCmd("retry", "Try to tear down once more what is left of an orphaned run", func(string) any { return nil }),
		a.runOrderCmd("purge", "Take a run off the list of orphans: nothing is left of it", func(reason string) any { return api.OrderBody{Reason: reason} }))
}

func (a *app) showRun(r api.RunDetails) {
	fmt.Fprintf(a.out, "%s of %s with profile %s\n", r.ID, r.Program.Name, r.Profile)
	fmt.Fprintf(a.out, "Program: %s", a.paint(a.out, colourOf(strings.ToLower(string(r.Status))), string(r.Status)))
	if r.ExitCode != nil {
		fmt.Fprintf(a.out, ", exit code %d", *r.ExitCode)
	}
	if r.Message != "" {
		fmt.Fprintf(a.out, ": %s", r.Message)
	}
	fmt.Fprintf(a.out, "\nCluster: %s", r.Cluster.Status)
	if r.Cluster.ID != "" {
		fmt.Fprintf(a.out, " (%s, %s)", r.Cluster.Name, r.Cluster.ID)
	}
	if r.Cluster.ExpiresAt > 0 {
		fmt.Fprintf(a.out, ", kept until %s", moment(r.Cluster.ExpiresAt))
	} else if r.Cluster.Status == profile.Waiting {
		fmt.Fprint(a.out, ", kept until somebody ends it")
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
	fmt.Fprintf(a.out, "Node-minutes: %d\n", r.NodeMinutes)
	if len(r.Cluster.Nodes) > 0 {
		fmt.Fprintln(a.out)
		t := table{head: []string{"NODE", "HOSTNAME", "ADDRESS"}}
		for _, n := range r.Cluster.Nodes {
			t.row(n.ID, n.Properties["hostname"], n.Properties["access_v4"])
		}
		a.show(t)
	}
	for kind, op := range map[string]string{"provision": r.ProvisionOperation, "program": r.Operation, "deprovision": r.DeprovisionOperation} {
		if op != "" {
			defer fmt.Fprintf(a.out, "Plan %s:%s is operation %s\n", kind, r.ID, op)
		}
	}
}

// runOrder gives an order, and tells what the run is then.
func (a *app) runOrder(ctx context.Context, c *client.Client, id, order string, body any) error {
	r, _, err := c.OrderRun(ctx, id, order, body)
	if err == nil {
		fmt.Fprintf(a.out, "Run %s: its program is %s, its cluster %s.\n", r.ID, r.Status, r.Cluster.Status)
	}
	return err
}

func (a *app) runOrderCmd(order, short string, body func(reason string) any) *cobra.Command {
	var reason string
	cmd := &cobra.Command{Use: order + " RUN", Short: short, Args: args("RUN"), Example: "  coopr runs " + order + " 05q8v3k1m2n4p6r8"}
	if body("x") != nil {
		cmd.Flags().StringVar(&reason, "reason", "", "why; it is kept in the audit log")
		cmd.Example += " --reason 'looked for it by hand'"
	}
	cmd.RunE = a.with(func(ctx context.Context, c *client.Client, args []string) error {
		return a.runOrder(ctx, c, args[0], order, body(reason))
	})
	return cmd
}

func (a *app) runStopCmd() *cobra.Command {
	var b api.StopBody
	cmd := &cobra.Command{Use: "stop RUN", Short: "End a run's program, and tear its nodes down or keep them", Args: args("RUN"), Example: "  coopr runs stop 05q8v3k1m2n4p6r8 --keep"}
	cmd.Flags().BoolVar(&b.KeepAlive, "keep", false, "keep the nodes, as long as the profile says")
	cmd.Flags().StringVar(&b.Reason, "reason", "", "why")
	cmd.RunE = a.with(func(ctx context.Context, c *client.Client, args []string) error {
		return a.runOrder(ctx, c, args[0], "stop", b)
	})
	return cmd
}

func (a *app) runExtendCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "extend RUN DURATION", Short: "Keep a run's nodes for longer, from now on; 0 until somebody ends them", Args: args("RUN", "DURATION"),
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
	cmd := &cobra.Command{Use: "force RUN", Short: "Take a run's cluster for torn down, whatever it is: for one that cannot be", Args: args("RUN"),
		Example: "  coopr runs force 05q8v3k1m2n4p6r8 --reason 'deleted in the console'\n  coopr runs force 05q8v3k1m2n4p6r8 --orphaned --reason 'the account is closed'"}
	cmd.Flags().BoolVar(&orphan, "orphaned", false, "it may be there still: put it on the list of orphans")
	cmd.Flags().StringVar(&b.Reason, "reason", "", "what was done; it is kept in the audit log")
	cmd.RunE = a.with(func(ctx context.Context, c *client.Client, args []string) error {
		if b.To = profile.Deprovisioned; orphan {
			b.To = profile.Orphaned
		}
		return a.runOrder(ctx, c, args[0], "force", b)
	})
	return cmd
}
