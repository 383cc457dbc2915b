package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/client"
)

func (a *app) taskCmd() *cobra.Command {
	var status string
	var page client.Page
	list := listCmd(a, listing[model.Task]{
		use: "list OPERATION", short: "List the tasks of an operation", args: args("OPERATION"),
		example: "  coopr task list 00000001-001\n  coopr task list 00000001-001 --status failed",
		empty:   "There are no such tasks.",
		fetch: func(ctx context.Context, c *client.Client, args []string, read client.Read) ([]model.Task, client.Meta, error) {
			return c.Tasks(ctx, args[0], status, page, read)
		},
		rows: func(items []model.Task) table {
			t := table{head: []string{"ID", "ACTION", "SERVICE", "NODE", "STATUS", "ATTEMPT", "TOOK", "AGENT", "MESSAGE"}, wide: 2}
			for _, x := range items {
				took := ""
				if x.LeasedAt > 0 && x.EndedAt >= x.LeasedAt {
					took = span(a.since(x.LeasedAt, x.EndedAt))
				} else if x.LeasedAt > 0 && x.Status.Held() {
					took = a.ago(x.LeasedAt)
				}
				node := x.Hostname
				if node == "" {
					node = x.Node
				}
				t.row(x.ID, x.Action.String(), x.Service, node, x.Status.String(), strconv.Itoa(x.Attempt), took, x.Agent, clip(x.Message, 80))
			}
			return t
		},
	})
	list.ValidArgsFunction = a.completeOperations()
	list.Flags().StringVar(&status, "status", "", "only this status: blocked, ready, leased, running, succeeded, failed, cancelled, uncertain")
	pageFlags(list, &page)

	get := &cobra.Command{Use: "get ID", Short: "Show a task with all its attempts", Args: args("ID"), Example: "  coopr task get 00000001-001/3"}
	a.outputFlag(get, asTable, asJSON, asYAML)
	get.RunE = a.with(func(ctx context.Context, c *client.Client, args []string) error {
		t, _, err := c.Task(ctx, args[0], client.Read{})
		if err != nil {
			return err
		}
		if a.structured() {
			return a.print(t)
		}
		fmt.Fprintf(a.out, "%s (%s)\n%s", taskName(t), t.ID, a.paint(a.out, colourOf(t.Status.String()), t.Status.String()))
		if t.Message != "" {
			fmt.Fprintf(a.out, ": %s", t.Message)
		}
		fmt.Fprintln(a.out)
		if len(t.Attempts) > 0 {
			fmt.Fprintln(a.out)
			tab := table{head: []string{"ATTEMPT", "AGENT", "OUTCOME", "BEGAN", "TOOK", "MESSAGE"}}
			for _, x := range t.Attempts {
				took := ""
				if x.Ended > 0 {
					took = span(a.since(x.Leased, x.Ended))
				}
				tab.row(strconv.Itoa(x.Number), x.Agent, x.Outcome, moment(x.Leased), took, clip(x.Message, 200))
			}
			a.show(tab)
		}
		fmt.Fprintf(a.out, "\nIts log: coopr task log %s\n", t.ID)
		return nil
	})

	var follow bool
	var attempt int
	log := &cobra.Command{
		Use: "log ID", Short: "Show a task's log, from whichever agent has it", Args: args("ID"),
		Example: "  coopr task log 00000001-001/3\n  coopr task log 00000001-001/3 --follow",
	}
	log.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the task ends")
	log.Flags().IntVar(&attempt, "attempt", 0, "an attempt other than the latest")
	log.RunE = a.with(func(ctx context.Context, c *client.Client, args []string) error {
		n, err := a.copyLog(ctx, c, args[0], attempt, follow)
		if err == nil && n == 0 {
			fmt.Fprintf(a.err, "Nothing was logged. How it went: coopr task get %s\n", args[0])
		}
		return err
	})
	return group("task", "Look at the tasks of operations", list, get, log)
}
