package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"
)

// flagNames completes a flag's value, whatever stands before it.
func flagNames(cmd *cobra.Command, flag string, names completion) {
	_ = cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, start string) ([]string, cobra.ShellCompDirective) {
		return names(cmd, nil, start)
	})
}

// fixedNames are the values that a flag can have.
func fixedNames(cmd *cobra.Command, flag string, names ...string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
}

func (a *app) completeProfiles() completion {
	return a.complete(func(ctx context.Context, c *client.Client) ([]string, error) {
		list, _, err := c.Profiles(ctx, true, client.Read{})
		var names []string
		for _, p := range list {
			names = append(names, shownProfile(p.Ref())+"\t"+p.Provisioner.Name+" "+p.Status)
		}
		return names, err
	})
}

func (a *app) completeProvisioners() completion {
	return a.complete(func(ctx context.Context, c *client.Client) ([]string, error) {
		list, _, err := c.Provisioners(ctx, client.Read{})
		var names []string
		for _, s := range list {
			names = append(names, s.Name+"\t"+clip(s.Description, 40))
		}
		return names, err
	})
}

func (a *app) completePrograms() completion {
	return a.complete(func(ctx context.Context, c *client.Client) ([]string, error) {
		list, _, err := c.Programs(ctx, client.Read{})
		var names []string
		for _, p := range list {
			names = append(names, p.Name+"\t"+clip(p.Label, 40))
		}
		return names, err
	})
}

func (a *app) completeSchedules() completion {
	return a.complete(func(ctx context.Context, c *client.Client) ([]string, error) {
		list, _, err := c.Schedules(ctx, client.Read{})
		var names []string
		for _, s := range list {
			names = append(names, s.Name+"\t"+s.Program+" "+s.Cron)
		}
		return names, err
	})
}

// completeRuns gives the ids of the runs of which fits says so; nil: of all.
func (a *app) completeRuns(fits func(*profile.Run) bool) completion {
	return a.complete(func(ctx context.Context, c *client.Client) ([]string, error) {
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
