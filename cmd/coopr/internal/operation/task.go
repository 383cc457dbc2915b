package operation

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/output"
	"github.com/coopr/coopr/cmd/coopr/internal/progress"
)

// taskStatuses are the statuses of tasks, as the API takes them.
var taskStatuses = []string{"blocked", "ready", "leased", "running", "succeeded", "failed", "cancelled", "uncertain"}

// TaskCommand returns the command "task".
func TaskCommand(app cli.App) *cobra.Command {
	out := app.Printer()
	var status string
	var page client.Page
	list := cli.List(app, cli.Listing[model.Task]{
		Use: "list OPERATION", Short: "List the tasks of an operation", Args: cli.Args("OPERATION"),
		Narrow:  []string{"status"},
		Example: "  coopr task list 00000001-001\n  coopr task list 00000001-001 --status failed",
		Empty:   "There are no tasks.",
		Fetch: func(ctx context.Context, c *client.Client, args []string, read client.Read) ([]model.Task, client.Meta, error) {
			return c.Tasks(ctx, args[0], status, page, read)
		},
		Rows: func(items []model.Task) output.Table {
			t := output.Table{Head: []string{"ID", "ACTION", "SERVICE", "NODE", "STATUS", "TOOK", "ATTEMPT", "AGENT", "MESSAGE"}, Wide: 3}
			for _, x := range items {
				took := ""
				if x.LeasedAt > 0 && x.EndedAt >= x.LeasedAt {
					took = output.Span(since(x.LeasedAt, x.EndedAt))
				} else if x.LeasedAt > 0 && x.Status.Held() {
					took = out.Ago(x.LeasedAt)
				}
				node := cmp.Or(x.Hostname, x.Node, model.AgentSteps)
				t.Row(x.ID, progress.Does(x), x.Service, node, x.Status.String(), took, strconv.Itoa(x.Attempt), x.Agent, x.Message)
			}
			return t
		},
	})
	list.ValidArgsFunction = cli.CompleteOperations(app)
	list.Flags().StringVar(&status, "status", "",
		"only tasks with this status: blocked, ready, leased, running, succeeded, failed, cancelled, uncertain")
	cli.CompleteValues(list, "status", taskStatuses...)
	cli.OffsetFlag(list, &page)

	get := &cobra.Command{Use: "get ID", Short: "Show a task with all its attempts", Args: cli.Args("ID"),
		ValidArgsFunction: cli.CompleteTasks(app),
		Example:           "  coopr task get 00000001-001/3"}
	cli.FormFlag(get, output.FormTable, output.FormJSON, output.FormYAML)
	get.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		t, _, err := c.Task(ctx, args[0], client.Read{})
		if err != nil {
			return err
		}
		if out.Structured() {
			return out.Encode(t)
		}
		out.Printf("%s (%s)\n%s", progress.TaskName(t), t.ID, out.Status(t.Status.String()))
		if t.Message != "" {
			out.Printf(": %s", t.Message)
		}
		out.Println()
		if len(t.Attempts) > 0 {
			out.Println()
			tab := output.Table{Head: []string{"ATTEMPT", "AGENT", "OUTCOME", "BEGAN", "TOOK", "MESSAGE"}}
			for _, x := range t.Attempts {
				took := ""
				if x.Ended > 0 {
					took = output.Span(since(x.Leased, x.Ended))
				}
				tab.Row(strconv.Itoa(x.Number), x.Agent, x.Outcome, output.Moment(x.Leased), took, x.Message)
			}
			out.Show(tab)
		}
		out.Printf("\nLog: coopr task log %s\n", t.ID)
		return nil
	})

	var follow bool
	var attempt int
	log := &cobra.Command{
		Use: "log ID", Short: "Show the log of a task", Args: cli.Args("ID"),
		ValidArgsFunction: cli.CompleteTasks(app),
		Example:           "  coopr task log 00000001-001/3\n  coopr task log 00000001-001/3 --follow",
	}
	log.Flags().BoolVarP(&follow, "follow", "f", false, "follow the log until the task ends")
	log.Flags().IntVar(&attempt, "attempt", 0, "number of an earlier attempt (default: the latest)")
	log.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		n, err := copyLog(ctx, out, c, args[0], attempt, follow)
		if err == nil && n == 0 {
			out.Notef("The log is empty. To see the result of the task: coopr task get %s\n", args[0])
		}
		return err
	})
	return cli.Group("task", "Show the tasks of operations and their logs", list, get, log)
}

// since returns the time between two moments in Unix milliseconds.
func since(from, to int64) time.Duration { return time.Duration(to-from) * time.Millisecond }
