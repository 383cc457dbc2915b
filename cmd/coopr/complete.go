package main

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/client"
)

type completion = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

// complete gives live names to the shell; where the mesh does not answer at
// once there are none, and no noise.
func (a *app) complete(names func(context.Context, *client.Client) ([]string, error)) completion {
	return func(cmd *cobra.Command, given []string, start string) ([]string, cobra.ShellCompDirective) {
		const none = cobra.ShellCompDirectiveNoFileComp
		if len(given) > 0 {
			return nil, none
		}
		patience := a.patience
		a.patience = -1
		c, err := a.client()
		a.patience = patience
		if err != nil {
			return nil, none
		}
		defer c.Close()
		parent := cmd.Context()
		if parent == nil {
			parent = context.Background()
		}
		ctx, cancel := context.WithTimeout(parent, 2*time.Second)
		defer cancel()
		all, err := names(ctx, c)
		if err != nil {
			return nil, none
		}
		var out []string
		for _, n := range all {
			if strings.HasPrefix(n, start) {
				out = append(out, n)
			}
		}
		return out, none
	}
}

func (a *app) completeDefinitions(kind model.Kind) completion {
	return a.complete(func(ctx context.Context, c *client.Client) ([]string, error) {
		defs, _, err := c.Definitions(ctx, kind, client.Read{})
		var out []string
		for _, raw := range defs {
			var base model.Base
			if json.Unmarshal(raw, &base) == nil {
				out = append(out, base.Name+"\t"+clip(base.Description, 40))
			}
		}
		return out, err
	})
}

func (a *app) completeClusters() completion {
	return a.complete(func(ctx context.Context, c *client.Client) ([]string, error) {
		all, _, err := c.Clusters(ctx, nil, client.Read{})
		var out []string
		for _, cl := range all {
			if cl.Status != model.ClusterTerminated {
				out = append(out, cl.Name+"\t"+string(cl.Status))
			}
		}
		return out, err
	})
}

func (a *app) completeOperations() completion {
	return a.complete(func(ctx context.Context, c *client.Client) ([]string, error) {
		all, _, err := c.Operations(ctx, "", nil, client.Page{Limit: 50}, client.Read{})
		var out []string
		for _, op := range all {
			out = append(out, op.ID+"\t"+string(op.Type)+" "+string(op.Status))
		}
		return out, err
	})
}

func (a *app) completeTenants() completion {
	return a.complete(func(ctx context.Context, c *client.Client) ([]string, error) {
		all, _, err := c.Tenants(ctx, client.Read{})
		var out []string
		for _, t := range all {
			out = append(out, t.Name)
		}
		return out, err
	})
}
