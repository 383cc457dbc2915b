package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/model/decode"
	"github.com/coopr/coopr/internal/words"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/progress"
)

func createCmd(app cli.App) *cobra.Command {
	var r progress.Starter
	var req model.CreateCluster
	var nodes int
	var file, lease string
	var set, fields, labels []string
	cmd := &cobra.Command{
		Use: "create NAME --template TEMPLATE --nodes N", Short: "Create a cluster", Args: cli.Args("NAME"),
		Long: `Create a cluster from a template.

The command shows the plan first: the nodes, their services, the stages and the
cost. Then it starts the work and shows the progress until the end. Ctrl-C stops
only the display; the work continues.`,
		Example: `  coopr cluster create shop --template shop --nodes 3
  coopr cluster create shop -t shop -n 3 --dry-run
  coopr cluster create shop -t shop -n 5 --set nginx.workers=8 --yes --detach`,
	}
	f := cmd.Flags()
	f.StringVarP(&req.ClusterTemplate, "template", "t", "", "cluster template (required)")
	f.IntVarP(&nodes, "nodes", "n", 0, "number of nodes (required)")
	f.StringVar(&req.Description, "description", "", "purpose of the cluster")
	f.StringVar(&req.Provider, "provider", "", "provider (default: from the template)")
	f.StringVar(&req.HardwareType, "hardware", "", "hardware type of all nodes (default: from the template)")
	f.StringVar(&req.ImageType, "image", "", "image type of all nodes (default: from the template)")
	f.StringSliceVar(&req.Services, "services", nil, "services, separated by commas (default: from the template)")
	f.StringVar(&req.Comparator, "comparator", "",
		"which layouts to prefer: original, cost, or the comparator of a plugin (default: from the template)")
	f.StringVar(&file, "config", "", "JSON or YAML file with configuration that overrides the template's")
	f.StringArrayVar(&set, "set", nil, "one configuration value, as path.to.key=value; may be repeated")
	f.StringArrayVar(&fields, "provider-field", nil, "value of a provider field, as name=value; may be repeated")
	f.StringArrayVar(&labels, "label", nil, "label of the cluster, as key=value; may be repeated")
	f.StringVar(&lease, "lease", "", "lifetime of the cluster, such as 2h or 3d; 0: no limit (default: from the template)")
	f.StringVar(&req.DNSSuffix, "dns-suffix", "", "domain of the nodes (default: from the template)")
	f.StringVar(&req.OnFailure, "on-failure", "", "what to do when a task fails for good: delete (default), pause or leave")
	cli.CompleteValues(cmd, "on-failure", "delete", "pause", "leave")
	resolveFlag(f, &req.ResolveOnFailure)
	r.AddFlags(cmd)
	for flag, kind := range map[string]model.Kind{"template": model.KindClusterTemplate, "provider": model.KindProvider,
		"hardware": model.KindHardwareType, "image": model.KindImageType, "services": model.KindService} {
		cli.CompleteFlag(cmd, flag, cli.CompleteDefinitions(app, kind))
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for _, flag := range []string{"template", "nodes"} {
			if !cmd.Flags().Changed(flag) {
				return cli.Usage(cmd, "--%s is missing", flag)
			}
		}
		req.Name, req.NumMachines = args[0], model.Int(nodes)
		var err error
		if req.Config, err = configOf(app, cmd, file, set); err != nil {
			return err
		}
		if req.ProviderFields, err = providerFields(cmd, fields); err != nil {
			return err
		}
		for _, text := range labels {
			key, value, _ := strings.Cut(text, "=")
			if req.Labels == nil {
				req.Labels = map[string]string{}
			}
			req.Labels[key] = value
		}
		if lease != "" {
			ms, err := model.ParseMillis(lease)
			if err != nil {
				return cli.Usage(cmd, "--lease: %v", err)
			}
			req.InitialLeaseDuration = &ms
		}
		if req.Rollout, err = r.Rollout(cmd); err != nil {
			return err
		}
		if faults := req.Check(); len(faults) > 0 {
			return withFlags(faults)
		}
		return r.Run(app, cmd, progress.Request{
			Creates: true, Question: fmt.Sprintf("Create cluster %s?", req.Name),
			Title: fmt.Sprintf("Cluster %s of template %s, %s", req.Name, req.ClusterTemplate, words.Count(nodes, "node")),
			Send: func(ctx context.Context, c *client.Client, dry bool) (api.StartedBody, error) {
				st, _, err := c.CreateCluster(ctx, req, dry)
				var problem *client.Error
				if errors.As(err, &problem) {
					problem.Faults = withFlags(problem.Faults)
				}
				return st, err
			},
		})
	}
	return cmd
}

// createFlags maps the fields of the request to the arguments that set them.
var createFlags = map[string]string{
	"name": "NAME", "numMachines": "--nodes", "clusterTemplate": "--template", "dnsSuffix": "--dns-suffix",
	"initialLeaseDuration": "--lease", "onFailure": "--on-failure", "provider": "--provider", "hardwaretype": "--hardware",
	"imagetype": "--image", "services": "--services", "comparator": "--comparator", "labels": "--label",
}

// withFlags names the arguments that faults are about instead of the fields of the request.
func withFlags(faults model.Faults) model.Faults {
	for _, f := range faults {
		if flag := createFlags[f.Path]; flag != "" {
			f.Path = flag
		}
	}
	return faults
}

// operate starts an operation on a cluster and follows it until it ends.
func operate(app cli.App, cmd *cobra.Command, cluster string, op api.Operate, r *progress.Starter) error {
	var err error
	if op.Rollout, err = r.Rollout(cmd); err != nil {
		return err
	}
	return r.Run(app, cmd, progress.Request{
		Title: operateTitle(op.Type, cluster) + onNodes(op.NodeChoice),
		Send: func(ctx context.Context, c *client.Client, dry bool) (api.StartedBody, error) {
			op.DryRun = dry
			st, _, err := c.Operate(ctx, cluster, op)
			if errors.Is(err, client.ErrConflict) {
				return st, cli.Hinted(err, whatFirst(ctx, c, cluster))
			}
			return st, err
		},
	})
}

// whatFirst returns advice on a cluster that does not accept an operation.
func whatFirst(ctx context.Context, c *client.Client, cluster string) string {
	cl, _, err := c.Cluster(ctx, cluster, client.Read{})
	switch {
	case err != nil:
	case cl.Status == model.ClusterFailed:
		return progress.RepairHint(cl.Name)
	case cl.Status == model.ClusterIncomplete:
		return "The creation of the cluster failed. To remove what is left: coopr cluster delete " + cl.Name
	case cl.Operation != "" && !cl.Progress.ActionStatus.Ended():
		return fmt.Sprintf("Operation %s is %s. To watch it: coopr operation watch %s", cl.Operation, cl.Progress.ActionStatus, cl.Operation)
	}
	return ""
}

// operateTitle returns the heading of an operation's plan.
func operateTitle(op model.OperationType, cluster string) string {
	words := map[model.OperationType]string{
		model.OpAddServices: "Add services to cluster %s", model.OpRemoveServices: "Remove services from cluster %s",
		model.OpRecover: "Restart a node of cluster %s", model.OpPauseNode: "Pause a node of cluster %s",
		model.OpResumeNode:  "Resume a node of cluster %s",
		model.OpReplaceNode: "Replace nodes of cluster %s", model.OpRollback: "Roll cluster %s back",
		model.OpSyncTemplate: "Update cluster %s to the newest version of its template",
	}[op]
	if words == "" {
		words = strings.ToUpper(string(op)[:1]) + string(op)[1:] + " cluster %s"
	}
	return fmt.Sprintf(words, cluster)
}

// configOf returns the configuration in a file, with the values of --set over it.
func configOf(app cli.App, cmd *cobra.Command, file string, set []string) (map[string]any, error) {
	var config map[string]any
	if file != "" {
		data, err := cli.ReadFile(app, file)
		if err != nil {
			return nil, err
		}
		if err := decode.Strict(data, &config); err != nil {
			return nil, cli.InFile(err, file)
		}
		if config == nil {
			config = map[string]any{}
		}
	}
	for _, s := range set {
		path, value, ok := strings.Cut(s, "=")
		keys := strings.Split(path, ".")
		if !ok || slices.Contains(keys, "") {
			return nil, cli.Usage(cmd, "--set %q must have the form path.to.key=value", s)
		}
		// The value is parsed as YAML, so that 8 is a number and [a, b] a list.
		var v any
		if err := yaml.Unmarshal([]byte(value), &v); err != nil {
			v = value
		}
		if config == nil {
			config = map[string]any{}
		}
		at := config
		for _, k := range keys[:len(keys)-1] {
			next, ok := at[k].(map[string]any)
			if !ok {
				next = map[string]any{}
				at[k] = next
			}
			at = next
		}
		at[keys[len(keys)-1]] = v
	}
	return config, nil
}
