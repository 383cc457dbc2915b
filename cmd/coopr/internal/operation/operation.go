// Package operation holds the commands for operations and their tasks.
package operation

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/output"
	"github.com/coopr/coopr/cmd/coopr/internal/progress"
)

func Command(app cli.App) *cobra.Command {
	return cli.Group("operation", "Watch and steer operations", listCmd(app), getCmd(app), watchCmd(app),
		orderCmd(app, "pause", "Start no more tasks of an operation until it is resumed"),
		orderCmd(app, "resume", "Go on with a paused operation"),
		orderCmd(app, "abort", "End an operation: nothing more is started"),
		orderCmd(app, "rollback", "End an operation and bring the cluster back to what it was before"),
		logCmd(app), explainCmd(app))
}

func listCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	var cluster string
	var status []string
	var page client.Page
	cmd := cli.List(app, cli.Listing[api.OperationDetails]{
		Use: "list", Short: "List operations, the newest first", Example: "  coopr operation list\n  coopr operation list --cluster shop --status running,paused",
		Narrow: []string{"status", "cluster"}, Empty: "There are no operations.",
		Fetch: func(ctx context.Context, c *client.Client, _ []string, read client.Read) ([]api.OperationDetails, client.Meta, error) {
			return c.Operations(ctx, cluster, status, page, read)
		},
		Rows: func(items []api.OperationDetails) output.Table {
			t := output.Table{Head: []string{"ID", "CLUSTER", "TYPE", "STATUS", "TASKS", "AGE", "ACTOR", "MESSAGE"}, Wide: 2}
			for _, op := range items {
				t.Row(op.ID, op.Cluster, string(op.Type), string(op.Status), fmt.Sprintf("%d/%d", op.Progress.Done, op.Progress.Total), out.Ago(op.CreatedAt), op.Actor, output.Clip(op.Message, 80))
			}
			return t
		},
	})
	cmd.Flags().StringVar(&cluster, "cluster", "", "only of this cluster")
	cmd.Flags().StringSliceVar(&status, "status", nil, "only these statuses: accepted, running, paused, aborting, rolling-back, succeeded, failed, aborted, rolled-back")
	cli.PageFlags(cmd, &page)
	return cmd
}

func getCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	cmd := &cobra.Command{
		Use: "get ID", Short: "Show an operation", Args: cli.Args("ID"),
		Example: "  coopr operation get 00000001-001", ValidArgsFunction: cli.CompleteOperations(app),
	}
	cli.FormFlag(cmd, output.FormTable, output.FormJSON, output.FormYAML)
	cmd.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		op, _, err := c.Operation(ctx, args[0], client.Read{})
		if err != nil {
			return err
		}
		if out.Structured() {
			return out.Encode(op)
		}
		line := func(name, value string) {
			if value != "" {
				out.Printf("%-12s %s\n", name+":", value)
			}
		}
		line("Id", op.ID)
		line("Cluster", op.Cluster)
		line("Type", string(op.Type))
		line("Status", out.Status(string(op.Status)))
		line("Message", op.Message)
		line("Services", strings.Join(op.Services, ", "))
		line("Actor", op.Actor)
		line("Follows", op.Follows)
		line("Started", output.Moment(op.CreatedAt))
		line("Ended", output.Moment(op.EndedAt))
		line("Tasks", fmt.Sprintf("%d of %d done", op.Progress.Done, op.Progress.Total))
		for i := range model.TaskStatuses {
			s := model.TaskStatus(i).String()
			if n := op.Progress.Counts[s]; n > 0 {
				out.Printf("%-12s %d %s\n", "", n, s)
			}
		}
		return nil
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
		Example: fmt.Sprintf("  coopr operation %s 00000001-001 --reason \"the rack is being moved\"", order), ValidArgsFunction: cli.CompleteOperations(app),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for those who read the operation later")
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

// operationLogCmd shows the logs of an operation's tasks one after another.
func logCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	var status string
	cmd := &cobra.Command{
		Use: "log ID", Short: "Show the logs of an operation's tasks, or of those that failed", Args: cli.Args("ID"),
		Example: "  coopr operation log 00000001-001 --status failed", ValidArgsFunction: cli.CompleteOperations(app),
	}
	cmd.Flags().StringVar(&status, "status", "", "only of tasks with this status, such as failed")
	cmd.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		for offset := 0; ; {
			tasks, meta, err := c.Tasks(ctx, args[0], status, client.Page{Offset: offset, Limit: progress.ManyTasks}, client.Read{})
			if err != nil {
				return err
			}
			for _, t := range tasks {
				if t.Attempt == 0 {
					continue // it has not begun
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

func copyLog(ctx context.Context, out *output.Printer, c *client.Client, task string, attempt int, follow bool) (int64, error) {
	r, err := c.TaskLog(ctx, task, attempt, follow)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	return io.Copy(out.Stdout, r)
}
