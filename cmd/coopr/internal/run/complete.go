package run

import (
	"context"

	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

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

// completeRuns gives the ids of the runs of which fits says so; nil: of all.
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

// runState is a run's two states in short.
func runState(r api.RunDetails) string { return string(r.Status) + ", " + string(r.Cluster.Status) }

// The runs that an order is for.
func waits(r *profile.Run) bool { return r.Cluster.Status == profile.Waiting }
