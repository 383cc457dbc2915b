package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"
)

func (a *app) operationCmd() *cobra.Command {
	return group("operation", "Watch and steer operations", a.operationListCmd(), a.operationGetCmd(), a.operationWatchCmd(),
		a.orderCmd("pause", "Start no more tasks of an operation until it is resumed"),
		a.orderCmd("resume", "Go on with a paused operation"),
		a.orderCmd("abort", "End an operation: nothing more is started"),
		a.orderCmd("rollback", "End an operation and bring the cluster back to what it was before"),
		a.operationLogCmd(), a.operationExplainCmd())
}

func (a *app) operationListCmd() *cobra.Command {
	var cluster string
	var status []string
	var page client.Page
	cmd := listCmd(a, listing[api.OperationDetails]{
		use: "list", short: "List operations, the newest first", example: "  coopr operation list\n  coopr operation list --cluster shop --status running,paused",
		narrow: []string{"status", "cluster"}, empty: "There are no operations.",
		fetch: func(ctx context.Context, c *client.Client, _ []string, read client.Read) ([]api.OperationDetails, client.Meta, error) {
			return c.Operations(ctx, cluster, status, page, read)
		},
		rows: func(items []api.OperationDetails) table {
			t := table{head: []string{"ID", "CLUSTER", "TYPE", "STATUS", "TASKS", "AGE", "ACTOR", "MESSAGE"}, wide: 2}
			for _, op := range items {
				t.row(op.ID, op.Cluster, string(op.Type), string(op.Status), fmt.Sprintf("%d/%d", op.Progress.Done, op.Progress.Total), a.ago(op.CreatedAt), op.Actor, clip(op.Message, 80))
			}
			return t
		},
	})
	cmd.Flags().StringVar(&cluster, "cluster", "", "only of this cluster")
	cmd.Flags().StringSliceVar(&status, "status", nil, "only these statuses: accepted, running, paused, aborting, rolling-back, succeeded, failed, aborted, rolled-back")
	pageFlags(cmd, &page)
	return cmd
}

func (a *app) operationGetCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "get ID", Short: "Show an operation", Args: args("ID"),
		Example: "  coopr operation get 00000001-001", ValidArgsFunction: a.completeOperations(),
	}
	a.outputFlag(cmd, asTable, asJSON, asYAML)
	cmd.RunE = a.with(func(ctx context.Context, c *client.Client, args []string) error {
		op, _, err := c.Operation(ctx, args[0], client.Read{})
		if err != nil {
			return err
		}
		if a.structured() {
			return a.print(op)
		}
		line := func(name, value string) {
			if value != "" {
				fmt.Fprintf(a.out, "%-12s %s\n", name+":", value)
			}
		}
		line("Id", op.ID)
		line("Cluster", op.Cluster)
		line("Type", string(op.Type))
		line("Status", a.paint(a.out, colourOf(string(op.Status)), string(op.Status)))
		line("Message", op.Message)
		line("Services", strings.Join(op.Services, ", "))
		line("Actor", op.Actor)
		line("Follows", op.Follows)
		line("Started", moment(op.CreatedAt))
		line("Ended", moment(op.EndedAt))
		line("Tasks", fmt.Sprintf("%d of %d done", op.Progress.Done, op.Progress.Total))
		for i := range model.TaskStatuses {
			s := model.TaskStatus(i).String()
			if n := op.Progress.Counts[s]; n > 0 {
				fmt.Fprintf(a.out, "%-12s %d %s\n", "", n, s)
			}
		}
		return nil
	})
	return cmd
}

func (a *app) operationWatchCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "watch ID", Short: "Watch an operation until it ends", Args: args("ID"),
		Example: "  coopr operation watch 00000001-001", ValidArgsFunction: a.completeOperations(),
	}
	cmd.RunE = a.with(func(ctx context.Context, c *client.Client, args []string) error {
		return a.follow(ctx, c, args[0])
	})
	return cmd
}

func (a *app) orderCmd(order, short string) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: order + " ID", Short: short, Args: args("ID"),
		Example: fmt.Sprintf("  coopr operation %s 00000001-001 --reason \"the rack is being moved\"", order), ValidArgsFunction: a.completeOperations(),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for those who read the operation later")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if order == "abort" || order == "rollback" {
			if err := a.confirm(cmd, fmt.Sprintf("%s operation %s?", strings.ToUpper(order[:1])+order[1:], args[0])); err != nil {
				return err
			}
		}
		return a.with(func(ctx context.Context, c *client.Client, args []string) error {
			op, _, err := c.Order(ctx, args[0], order, reason)
			if err != nil {
				return err
			}
			fmt.Fprintf(a.out, "Operation %s is %s.\n", op.ID, op.Status)
			return nil
		})(cmd, args)
	}
	return cmd
}

// operationLogCmd shows the logs of an operation's tasks one after another.
func (a *app) operationLogCmd() *cobra.Command {
	var status string
	cmd := &cobra.Command{
		Use: "log ID", Short: "Show the logs of an operation's tasks, or of those that failed", Args: args("ID"),
		Example: "  coopr operation log 00000001-001 --status failed", ValidArgsFunction: a.completeOperations(),
	}
	cmd.Flags().StringVar(&status, "status", "", "only of tasks with this status, such as failed")
	cmd.RunE = a.with(func(ctx context.Context, c *client.Client, args []string) error {
		for offset := 0; ; {
			tasks, meta, err := c.Tasks(ctx, args[0], status, client.Page{Offset: offset, Limit: manyTasks}, client.Read{})
			if err != nil {
				return err
			}
			for _, t := range tasks {
				if t.Attempt == 0 {
					continue // it has not begun
				}
				fmt.Fprintln(a.out, a.paint(a.out, bold, fmt.Sprintf("== %s (%s), %s", taskName(t), t.ID, t.Status)))
				if _, err := a.copyLog(ctx, c, t.ID, 0, false); err != nil {
					fmt.Fprintf(a.err, "%s: %v\n", t.ID, err)
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

func (a *app) copyLog(ctx context.Context, c *client.Client, task string, attempt int, follow bool) (int64, error) {
	r, err := c.TaskLog(ctx, task, attempt, follow)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	return io.Copy(a.out, r)
}
