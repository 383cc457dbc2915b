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

func ProgramCommand(app cli.App) *cobra.Command {
	out := app.Printer()
	list := cli.List(app, cli.Listing[profile.Program]{
		Use: "list", Short: "List programs", Example: "  coopr program list",
		Empty: "There are no programs: keep one with coopr program put NAME -f FILE.",
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
	get := &cobra.Command{Use: "get NAME", Aliases: []string{"show"}, Short: "Show a program, and what its runs used", Args: cli.Args("NAME"), Example: "  coopr program get wordcount", ValidArgsFunction: completePrograms(app)}
	cli.FormFlag(get, output.FormYAML, output.FormJSON)
	get.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		p, _, err := c.Program(ctx, args[0], client.Read{})
		if err != nil {
			return err
		}
		return out.Encode(p)
	})
	var file string
	put := &cobra.Command{Use: "put NAME", Aliases: []string{"create", "edit"}, Short: "Write the next version of a program", Args: cli.Args("NAME"), Example: "  coopr program put wordcount -f wordcount.yaml", ValidArgsFunction: completePrograms(app)}
	put.Flags().StringVarP(&file, "file", "f", "-", "a YAML or JSON file; - for standard input")
	put.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		var shown api.ProgramDetails // as coopr program get shows it
		if err := readInto(app, file, &shown); err != nil {
			return err
		}
		p, _, err := c.PutProgram(ctx, args[0], shown.Program)
		if err == nil {
			out.Printf("Program %s is kept, at version %d.\n", p.Name, p.Version)
		}
		return err
	})
	del := &cobra.Command{Use: "delete NAME", Short: "Delete a program that has no schedules", Args: cli.Args("NAME"), Example: "  coopr program delete wordcount", ValidArgsFunction: completePrograms(app)}
	del.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		if err := c.DeleteProgram(ctx, args[0]); err != nil {
			return err
		}
		out.Printf("Program %s is deleted.\n", args[0])
		return nil
	})
	return cli.Group("program", "Programs: jobs that run on clusters of their own", list, get, put, del)
}

func ScheduleCommand(app cli.App) *cobra.Command {
	out := app.Printer()
	list := cli.List(app, cli.Listing[api.ScheduleDetails]{
		Use: "list", Short: "List schedules", Example: "  coopr schedule list",
		Empty: "There are no schedules.",
		Fetch: func(ctx context.Context, c *client.Client, _ []string, read client.Read) ([]api.ScheduleDetails, client.Meta, error) {
			return c.Schedules(ctx, read)
		},
		Rows: func(items []api.ScheduleDetails) output.Table {
			t := output.Table{Head: []string{"NAME", "PROGRAM", "CRON", "ZONE", "STATUS", "NEXT", "LAST RUN", "LEFT OUT", "MESSAGE"}}
			for _, s := range items {
				t.Row(s.Name, s.Program, s.Cron, s.TimeZone, s.Status, output.Moment(s.Next), s.LastRun, strconv.FormatInt(s.Skipped, 10), output.Clip(s.Message, 60))
			}
			return t
		},
	})
	get := &cobra.Command{Use: "get NAME", Aliases: []string{"show"}, Short: "Show a schedule", Args: cli.Args("NAME"), Example: "  coopr schedule get nightly", ValidArgsFunction: completeSchedules(app)}
	cli.FormFlag(get, output.FormYAML, output.FormJSON)
	get.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		s, _, err := c.Schedule(ctx, args[0], client.Read{})
		if err != nil {
			return err
		}
		return out.Encode(s)
	})
	var named profile.Schedule
	var file, chosen string
	put := &cobra.Command{Use: "put NAME", Aliases: []string{"create", "edit"}, Short: "Create a schedule, or change one: what is not named stays as it is", Args: cli.Args("NAME"), ValidArgsFunction: completeSchedules(app),
		Example: "  coopr schedule put nightly --program wordcount --cron '30 2 * * *' --zone Europe/Berlin"}
	f := put.Flags()
	f.StringVarP(&file, "file", "f", "", "a YAML or JSON file; - for standard input")
	f.StringVar(&named.Program, "program", "", "the program to run")
	f.StringVar(&named.Cron, "cron", "", "when: minute, hour, day of the month, month, day of the week")
	f.StringVar(&named.TimeZone, "zone", "", "by which clock; UTC")
	f.StringVar(&named.Concurrency, "concurrency", "", "while an earlier run goes on: skip (the usual), allow, queue or replace")
	f.StringVar(&named.CatchUp, "catchup", "", "of what was due while nobody could begin it: latest (the usual), none or all")
	f.StringVar(&chosen, "profile", "", "the profile of the runs")
	cli.CompleteFlag(put, "program", completePrograms(app))
	cli.CompleteFlag(put, "profile", completeProfiles(app))
	cli.CompleteValues(put, "concurrency", profile.Skip, profile.Allow, profile.Queue, profile.Replace)
	cli.CompleteValues(put, "catchup", profile.CatchLatest, profile.CatchNone, profile.CatchAll)
	put.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		var s profile.Schedule
		if file != "" {
			var shown api.ScheduleDetails // as coopr schedule get shows it
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
			&s.Program: named.Program, &s.Cron: named.Cron, &s.TimeZone: named.TimeZone, &s.Concurrency: named.Concurrency, &s.CatchUp: named.CatchUp,
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
			next := "it is due next at " + output.Moment(put.Next)
			if put.Status == profile.Disabled {
				next = "it is disabled"
			}
			out.Printf("Schedule %s is kept; %s.\n", put.Name, next)
		}
		return err
	})
	verb := func(use, short string, do func(context.Context, *client.Client, string) error) *cobra.Command {
		cmd := &cobra.Command{Use: use + " NAME", Short: short, Args: cli.Args("NAME"), Example: "  coopr schedule " + use + " nightly", ValidArgsFunction: completeSchedules(app)}
		cmd.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
			if err := do(ctx, c, args[0]); err != nil {
				return err
			}
			out.Printf("Schedule %s is %sd.\n", args[0], use)
			return nil
		})
		return cmd
	}
	return cli.Group("schedule", "Schedules: runs by the clock", list, get, put,
		verb("delete", "Delete a schedule", func(ctx context.Context, c *client.Client, n string) error { return c.DeleteSchedule(ctx, n) }),
		verb("enable", "Let a schedule begin runs", func(ctx context.Context, c *client.Client, n string) error { return c.EnableSchedule(ctx, n, true) }),
		verb("disable", "Let a schedule begin no more runs", func(ctx context.Context, c *client.Client, n string) error { return c.EnableSchedule(ctx, n, false) }))
}
