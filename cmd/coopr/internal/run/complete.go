package run

import (
	"context"

	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

// completeProfiles completes the names of profiles.
func completeProfiles(app cli.App) cli.Completion {
	return cli.Complete(app, func(ctx context.Context, c *client.Client) ([]string, error) {
		list, _, err := c.Profiles(ctx, true, client.Read{})
		var names []string
		for _, p := range list {
			names = append(names, shownProfile(p.Ref())+"\t"+p.Provisioner.Name+" "+p.Status)
		}
		return names, err
	})
}

// completeProvisioners completes the names of provisioners.
func completeProvisioners(app cli.App) cli.Completion {
	return cli.Complete(app, func(ctx context.Context, c *client.Client) ([]string, error) {
		list, _, err := c.Provisioners(ctx, client.Read{})
		var names []string
		for _, s := range list {
			names = append(names, s.Name+"\t"+output.Clip(s.Description, 40))
		}
		return names, err
	})
}

// completePrograms completes the names of programs.
func completePrograms(app cli.App) cli.Completion {
	return cli.Complete(app, func(ctx context.Context, c *client.Client) ([]string, error) {
		list, _, err := c.Programs(ctx, client.Read{})
		var names []string
		for _, p := range list {
			names = append(names, p.Name+"\t"+output.Clip(p.Label, 40))
		}
		return names, err
	})
}

// completeSchedules completes the names of schedules.
func completeSchedules(app cli.App) cli.Completion {
	return cli.Complete(app, func(ctx context.Context, c *client.Client) ([]string, error) {
		list, _, err := c.Schedules(ctx, client.Read{})
		var names []string
		for _, s := range list {
			names = append(names, s.Name+"\t"+s.Program+" "+s.Cron)
		}
		return names, err
	})
}

// completeRuns completes the ids of the runs for which fits returns true; nil: of all runs.
func completeRuns(app cli.App, fits func(*profile.Run) bool) cli.Completion {
	return cli.Complete(app, func(ctx context.Context, c *client.Client) ([]string, error) {
		list, _, err := c.Runs(ctx, client.RunFilter{}, client.Page{Limit: 100}, client.Read{})
		var names []string
		for _, r := range list {
			if fits == nil || fits(&r.Run) {
				names = append(names, r.ID+"\t"+r.Program.Name+" "+runState(r))
			}
		}
		return names, err
	})
}

// runState returns the states of a run's program and cluster.
func runState(r api.RunDetails) string { return string(r.Status) + ", " + string(r.Cluster.Status) }

// waits reports whether the nodes of a run are kept after its program has ended.
func waits(r *profile.Run) bool { return r.Cluster.Status == profile.Waiting }
