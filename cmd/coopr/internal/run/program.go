package run

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

// ProgramCommand returns the command "program".
func ProgramCommand(app cli.App) *cobra.Command {
	out := app.Printer()
	list := cli.List(app, cli.Listing[profile.Program]{
		Use: "list", Short: "List programs", Example: "  coopr program list",
		Empty: "There are no programs. To create one: coopr program put NAME -f FILE",
		Fetch: func(ctx context.Context, c *client.Client, _ []string, read client.Read) ([]profile.Program, client.Meta, error) {
			return c.Programs(ctx, read)
		},
		Rows: func(items []profile.Program) output.Table {
			t := output.Table{Head: []string{"NAME", "VERSION", "STEPS", "LABEL"}}
			for _, p := range items {
				var steps []string
				for _, s := range p.Steps {
					steps = append(steps, s.Name)
				}
				t.Row(p.Name, strconv.Itoa(p.Version), strings.Join(steps, " "), p.Label)
			}
			return t
		},
	})
	get := &cobra.Command{Use: "get NAME", Aliases: []string{"show"}, Short: "Show a program and the usage of its runs",
		Args: cli.Args("NAME"), Example: "  coopr program get wordcount", ValidArgsFunction: completePrograms(app)}
	cli.FormFlag(get, output.FormYAML, output.FormJSON)
	get.RunE = cli.Show(app, func(ctx context.Context, c *client.Client, args []string) (api.ProgramDetails, error) {
		v, _, err := c.Program(ctx, args[0], client.Read{})
		return v, err
	}, nil)
	var file string
	put := &cobra.Command{Use: "put NAME", Aliases: []string{"create", "edit"}, Short: "Create a program, or write its next version",
		Args: cli.Args("NAME"), Example: "  coopr program put wordcount -f wordcount.yaml", ValidArgsFunction: completePrograms(app)}
	put.Flags().StringVarP(&file, "file", "f", "-", "YAML or JSON file; -: standard input")
	put.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		var shown api.ProgramDetails // the form that "coopr program get" shows
		if err := readInto(app, file, &shown); err != nil {
			return err
		}
		p, _, err := c.PutProgram(ctx, args[0], shown.Program)
		if err == nil {
			out.Printf("Program %s was written as version %d.\n", p.Name, p.Version)
		}
		return err
	})
	del := &cobra.Command{Use: "delete NAME", Short: "Delete a program that has no schedules", Args: cli.Args("NAME"),
		Example: "  coopr program delete wordcount", ValidArgsFunction: completePrograms(app)}
	del.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		if err := c.DeleteProgram(ctx, args[0]); err != nil {
			return err
		}
		out.Printf("Program %s was deleted.\n", args[0])
		return nil
	})
	return cli.Group("program", "Manage programs: jobs that run on clusters of their own", list, get, put, del)
}

// ScheduleCommand returns the command "schedule".
func ScheduleCommand(app cli.App) *cobra.Command {
	out := app.Printer()
	list := cli.List(app, cli.Listing[api.ScheduleDetails]{
		Use: "list", Short: "List schedules", Example: "  coopr schedule list",
		Empty: "There are no schedules.",
		Fetch: func(ctx context.Context, c *client.Client, _ []string, read client.Read) ([]api.ScheduleDetails, client.Meta, error) {
			return c.Schedules(ctx, read)
		},
		Rows: func(items []api.ScheduleDetails) output.Table {
			t := output.Table{Head: []string{"NAME", "PROGRAM", "CRON", "ZONE", "STATUS", "NEXT", "LAST RUN", "SKIPPED", "MESSAGE"}}
			for _, s := range items {
				t.Row(s.Name, s.Program, s.Cron, s.TimeZone, s.Status, output.Moment(s.Next), s.LastRun, strconv.FormatInt(s.Skipped, 10),
					s.Message)
			}
			return t
		},
	})
	get := &cobra.Command{Use: "get NAME", Aliases: []string{"show"}, Short: "Show a schedule", Args: cli.Args("NAME"),
		Example: "  coopr schedule get nightly", ValidArgsFunction: completeSchedules(app)}
	cli.FormFlag(get, output.FormYAML, output.FormJSON)
	get.RunE = cli.Show(app, func(ctx context.Context, c *client.Client, args []string) (api.ScheduleDetails, error) {
		v, _, err := c.Schedule(ctx, args[0], client.Read{})
		return v, err
	}, nil)
	var named profile.Schedule
	var file, chosen string
	put := &cobra.Command{Use: "put NAME", Aliases: []string{"create", "edit"},
		Short: "Create or change a schedule; values without a flag stay unchanged", Args: cli.Args("NAME"),
		ValidArgsFunction: completeSchedules(app),
		Example:           "  coopr schedule put nightly --program wordcount --cron '30 2 * * *' --zone Europe/Berlin"}
	f := put.Flags()
	f.StringVarP(&file, "file", "f", "", "YAML or JSON file; -: standard input")
	f.StringVar(&named.Program, "program", "", "program to run")
	f.StringVar(&named.Cron, "cron", "", "times as minute, hour, day of the month, month, day of the week")
	f.StringVar(&named.TimeZone, "zone", "", "time zone of the times (default UTC)")
	f.StringVar(&named.Concurrency, "concurrency", "", "what to do while an earlier run is active: skip (default), allow, queue or replace")
	f.StringVar(&named.CatchUp, "catchup", "", "which missed runs to start later: latest (default), none or all")
	f.StringVar(&chosen, "profile", "", "profile of the runs")
	cli.CompleteFlag(put, "program", completePrograms(app))
	cli.CompleteFlag(put, "profile", completeProfiles(app))
	cli.CompleteValues(put, "concurrency", profile.Skip, profile.Allow, profile.Queue, profile.Replace)
	cli.CompleteValues(put, "catchup", profile.CatchLatest, profile.CatchNone, profile.CatchAll)
	put.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		var s profile.Schedule
		if file != "" {
			var shown api.ScheduleDetails // the form that "coopr schedule get" shows
			if err := readInto(app, file, &shown); err != nil {
				return err
			}
			s = shown.Schedule
		} else if have, _, err := c.Schedule(ctx, args[0], client.Read{}); err == nil {
			s = have.Schedule
		} else if !errors.Is(err, client.ErrNotFound) {
			return err
		}
		for into, value := range map[*string]string{
			&s.Program: named.Program, &s.Cron: named.Cron, &s.TimeZone: named.TimeZone, &s.Concurrency: named.Concurrency,
			&s.CatchUp: named.CatchUp,
		} {
			if value != "" {
				*into = value
			}
		}
		if chosen != "" {
			if s.Properties == nil {
				s.Properties = map[string]string{}
			}
			s.Properties[profile.ProfileKey] = chosen
		}
		put, _, err := c.PutSchedule(ctx, args[0], s)
		if err == nil {
			next := "the next run is due at " + output.Moment(put.Next)
			if put.Status == profile.Disabled {
				next = "it is disabled"
			}
			out.Printf("Schedule %s was written; %s.\n", put.Name, next)
		}
		return err
	})
	verb := func(use, short string, do func(context.Context, *client.Client, string) error) *cobra.Command {
		cmd := &cobra.Command{Use: use + " NAME", Short: short, Args: cli.Args("NAME"), Example: "  coopr schedule " + use + " nightly",
			ValidArgsFunction: completeSchedules(app)}
		cmd.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
			if err := do(ctx, c, args[0]); err != nil {
				return err
			}
			out.Printf("Schedule %s was %sd.\n", args[0], use)
			return nil
		})
		return cmd
	}
	return cli.Group("schedule", "Manage schedules, which start runs at set times", list, get, put,
		verb("delete", "Delete a schedule", func(ctx context.Context, c *client.Client, n string) error { return c.DeleteSchedule(ctx, n) }),
		verb("enable", "Enable a schedule", func(ctx context.Context, c *client.Client, n string) error {
			return c.EnableSchedule(ctx, n,
				true)
		}),
		verb("disable", "Disable a schedule: it starts no more runs", func(ctx context.Context, c *client.Client,
			n string) error {
			return c.EnableSchedule(ctx, n, false)
		}))
}
