// Package operation holds the commands for operations and their tasks.
package operation

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/output"
	"github.com/coopr/coopr/cmd/coopr/internal/progress"
)

// Command returns the command "operation".
func Command(app cli.App) *cobra.Command {
	return cli.Group("operation", "Show and control operations", listCmd(app), getCmd(app), watchCmd(app),
		orderCmd(app, "pause", "Pause an operation: start no more of its tasks"),
		orderCmd(app, "resume", "Resume a paused operation"),
		orderCmd(app, "abort", "Abort an operation: start no more of its tasks and end it"),
		orderCmd(app, "rollback", "Abort an operation and restore the previous state of the cluster"),
		logCmd(app), explainCmd(app))
}

func listCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	var cluster string
	var status []string
	var page client.Page
	cmd := cli.List(app, cli.Listing[api.OperationDetails]{
		Use: "list", Short: "List operations, newest first",
		Example: "  coopr operation list\n  coopr operation list --cluster shop --status running,paused",
		Narrow:  []string{"status", "cluster"}, Empty: "There are no operations.",
		Fetch: func(ctx context.Context, c *client.Client, _ []string, read client.Read) ([]api.OperationDetails, client.Meta, error) {
			return c.Operations(ctx, cluster, status, page, read)
		},
		Rows: func(items []api.OperationDetails) output.Table {
			t := output.Table{Head: []string{"ID", "CLUSTER", "TYPE", "STATUS", "TASKS", "AGE", "ACTOR", "MESSAGE", "CLUSTER ID"}, Wide: 3}
			for _, op := range items {
				t.Row(op.ID, cmp.Or(op.ClusterName, op.Cluster), string(op.Type), string(op.Status),
					fmt.Sprintf("%d/%d", op.Progress.Done, op.Progress.Total), out.Ago(op.CreatedAt), op.Actor, op.Message, op.Cluster)
			}
			return t
		},
	})
	cmd.Flags().StringVar(&cluster, "cluster", "", "only operations of this cluster")
	cmd.Flags().StringSliceVar(&status, "status", nil,
		"only operations with these statuses: accepted, running, paused, aborting, rolling-back, succeeded, failed, aborted, "+
			"rolled-back, superseded")
	cli.CompleteFlag(cmd, "cluster", cli.CompleteClusters(app))
	cli.CompleteValues(cmd, "status", "accepted", "running", "paused", "aborting", "rolling-back", "succeeded", "failed", "aborted",
		"rolled-back", "superseded")
	cli.OffsetFlag(cmd, &page)
	return cmd
}

func getCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	cmd := &cobra.Command{
		Use: "get ID", Short: "Show an operation", Args: cli.Args("ID"),
		Example: "  coopr operation get 00000001-001", ValidArgsFunction: cli.CompleteOperations(app),
	}
	cli.FormFlag(cmd, output.FormTable, output.FormJSON, output.FormYAML)
	cmd.RunE = cli.Show(app, func(ctx context.Context, c *client.Client, args []string) (api.OperationDetails, error) {
		op, _, err := c.Operation(ctx, args[0], client.Read{})
		return op, err
	}, func(op api.OperationDetails) {
		out.Field("Id", op.ID)
		out.Field("Cluster", op.Cluster)
		out.Field("Type", string(op.Type))
		out.Field("Status", out.Status(string(op.Status)))
		out.Field("Message", op.Message)
		out.Field("Services", strings.Join(op.Services, ", "))
		out.Field("Left out", strings.Join(op.Skipped, ", "))
		out.Field("Actor", op.Actor)
		out.Field("Follows", op.Follows)
		out.Field("Started", output.Moment(op.CreatedAt))
		out.Field("Ended", output.Moment(op.EndedAt))
		out.Field("Tasks", fmt.Sprintf("%d of %d done", op.Progress.Done, op.Progress.Total))
		for i := range model.TaskStatuses {
			s := model.TaskStatus(i).String()
			if n := op.Progress.Counts[s]; n > 0 {
				out.Printf("%-12s %d %s\n", "", n, s)
			}
		}
	})
	return cmd
}

func watchCmd(app cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "watch ID", Short: "Watch an operation until it ends", Args: cli.Args("ID"),
		Example: "  coopr operation watch 00000001-001", ValidArgsFunction: cli.CompleteOperations(app),
	}
	cmd.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		return progress.Follow(ctx, app, c, args[0])
	})
	return cmd
}

func orderCmd(app cli.App, order, short string) *cobra.Command {
	out := app.Printer()
	var reason string
	cmd := &cobra.Command{
		Use: order + " ID", Short: short, Args: cli.Args("ID"),
		Example:           fmt.Sprintf("  coopr operation %s 00000001-001 --reason 'the rack is being moved'", order),
		ValidArgsFunction: cli.CompleteOperations(app),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "reason, shown with the operation and in the audit log")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if order == "abort" || order == "rollback" {
			if err := cli.Confirm(app, cmd, fmt.Sprintf("%s operation %s?", strings.ToUpper(order[:1])+order[1:], args[0])); err != nil {
				return err
			}
		}
		return cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
			op, _, err := c.Order(ctx, args[0], order, reason)
			if err != nil {
				return err
			}
			out.Printf("Operation %s is %s.\n", op.ID, op.Status)
			return nil
		})(cmd, args)
	}
	return cmd
}

// logCmd shows the logs of an operation's tasks one after another.
func logCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	var status string
	cmd := &cobra.Command{
		Use: "log ID", Short: "Show the logs of the tasks of an operation", Args: cli.Args("ID"),
		Example: "  coopr operation log 00000001-001 --status failed", ValidArgsFunction: cli.CompleteOperations(app),
	}
	cmd.Flags().StringVar(&status, "status", "", "only logs of tasks with this status, such as failed")
	cli.CompleteValues(cmd, "status", taskStatuses...)
	cmd.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		for offset := 0; ; {
			tasks, meta, err := c.Tasks(ctx, args[0], status, client.Page{Offset: offset, Limit: progress.ManyTasks}, client.Read{})
			if err != nil {
				return err
			}
			for _, t := range tasks {
				if t.Attempt == 0 {
					continue // it has not started
				}
				out.Println(out.Paint(output.Bold, fmt.Sprintf("== %s (%s), %s", progress.TaskName(t), t.ID, t.Status)))
				if _, err := copyLog(ctx, out, c, t.ID, 0, false); err != nil {
					out.Notef("%s: %v\n", t.ID, err)
				}
			}
			offset += len(tasks)
			if len(tasks) == 0 || offset >= meta.Total {
				return nil
			}
		}
	})
	return cmd
}

// copyLog writes the log of a task and returns its length in bytes. Attempt 0 is the latest.
func copyLog(ctx context.Context, out *output.Printer, c *client.Client, task string, attempt int, follow bool) (int64, error) {
	r, err := c.TaskLog(ctx, task, attempt, follow)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	if r.Missing != "" {
		out.Notef("Output of %s is missing: %s. Its last lines follow if the leader has them.\n", task, r.Missing)
	}
	return out.Copy(r)
}
