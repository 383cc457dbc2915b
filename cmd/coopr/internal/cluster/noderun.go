package cluster

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/output"
	"github.com/coopr/coopr/cmd/coopr/internal/progress"
)

// nodeRunCmd makes a command that does something with one node of a cluster.
func nodeRunCmd(app cli.App, word string, op model.OperationType, short string) *cobra.Command {
	var r progress.Starter
	use, names := word+" CLUSTER NODE [SERVICE…]", []string{"CLUSTER", "NODE", "[SERVICE…"}
	example := fmt.Sprintf("  coopr node %s shop 1003", word)
	if op == model.OpReplaceNode {
		use, names = word+" CLUSTER NODE", names[:2]
		example += " --yes"
	} else {
		example += fmt.Sprintf("\n  coopr node %s shop 1003 shop-web", word)
	}
	cmd := &cobra.Command{Use: use, Short: short, Args: cli.Args(names...), Example: example, ValidArgsFunction: completeNodes(app)}
	r.AddFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		req := api.Operate{Type: op, Services: args[2:], Change: model.ChangeCluster{NodeNames: args[1:2]}}
		if op == model.OpReplaceNode {
			req.Change.Forced = true
			r.Question = fmt.Sprintf("Delete node %s and make it anew?", args[1])
		}
		return operate(app, cmd, args[0], req, &r)
	}
	return cmd
}

// completeNodes completes a cluster and one of its nodes.
func completeNodes(app cli.App) cli.Completion {
	return cli.CompletePart(app, func(ctx context.Context, c *client.Client, cluster string) ([]string, error) {
		cl, _, err := c.Cluster(ctx, cluster, client.Read{})
		var names []string
		for i := range cl.Nodes {
			names = append(names, cl.Nodes[i].ShortName())
		}
		return names, err
	})
}

// recoveryCmd makes a command that pauses, or resumes, what a cluster recovers by itself.
func recoveryCmd(app cli.App, word, short string, pause bool) *cobra.Command {
	out := app.Printer()
	var reason string
	cmd := &cobra.Command{
		Use: word + "-recovery NAME", Short: short, Args: cli.Args("NAME"), Example: fmt.Sprintf("  coopr cluster %s-recovery shop", word), ValidArgsFunction: cli.CompleteClusters(app),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for those who read it later")
	cmd.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		cl, _, err := c.PauseRecovery(ctx, args[0], pause, reason)
		if err != nil {
			return err
		}
		state := "What fails of cluster %s is recovered by itself.\n"
		if cl.RecoveryPaused != nil {
			state = "Nothing of cluster %s is recovered by itself.\n"
		}
		out.Printf(state, cl.Name)
		return nil
	})
	return cmd
}

// healthLines says how a cluster's nodes are, where that is known: all well in one
// line, others one by one with what is done about it.
func healthLines(out *output.Printer, line func(name, value string), cl *api.ClusterDetails) {
	counts := map[string]int{}
	var sick []string
	for i := range cl.Nodes {
		n := &cl.Nodes[i]
		status := n.Health.Status()
		counts[status]++
		if status == model.MachineGone || status == string(model.Unhealthy) || status == "paused" {
			sick = append(sick, n.ShortName()+": "+healthOf(n))
		}
	}
	if counts[""] == len(cl.Nodes) && cl.RecoveryPaused == nil {
		return
	}
	var words []string
	for status, n := range counts {
		if status == "" {
			status = "unknown"
		}
		words = append(words, fmt.Sprintf("%d %s", n, status))
	}
	sort.Strings(words)
	line("Health", strings.Join(words, ", "))
	if p := cl.RecoveryPaused; p != nil {
		line("Recovery", strings.TrimRight("paused by "+p.By+": "+p.Reason, ": "))
	}
	for _, s := range sick {
		out.Printf("%-12s %s\n", "", s)
	}
}

// healthOf says how a node is, and what is done about it.
func healthOf(n *model.Node) string {
	h := n.Health
	out := []string{h.Status()}
	for _, s := range h.Failing() {
		out = append(out, s+": "+output.Clip(h.Services[s].Message, 100))
	}
	for s, how := range h.Paused {
		out = append(out, s+" "+strings.ToLower(how))
	}
	if h.Attempts > 0 && (h.Machine != "" || len(h.Failing()) > 0) {
		out = append(out, fmt.Sprintf("attempt %d was %s", h.Attempts, h.Operation))
	}
	if h.Next > time.Now().UnixMilli() && len(h.Failing()) > 0 {
		out = append(out, "the next is due "+output.Moment(h.Next))
	} else if h.Waits != "" {
		out = append(out, h.Waits)
	}
	return strings.Join(out, "; ")
}
