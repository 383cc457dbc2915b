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

// nodeRunCmd returns a command that starts an operation on one node of a cluster.
func nodeRunCmd(app cli.App, word string, op model.OperationType, short string) *cobra.Command {
	var r progress.Starter
	use, names := word+" CLUSTER/NODE [SERVICE…]", []string{"CLUSTER", "NODE", "[SERVICE…"}
	example := fmt.Sprintf("  coopr node %s shop/1003", word)
	if op == model.OpReplaceNode {
		use, names = word+" CLUSTER/NODE", names[:2]
		example += " --yes"
	} else {
		example += fmt.Sprintf("\n  coopr node %s shop/1003 shop-web", word)
	}
	cmd := &cobra.Command{Use: use, Short: short, Args: cli.Args(names...), Example: example}
	r.AddFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		req := api.Operate{Type: op, Services: args[2:], Change: model.ChangeCluster{NodeNames: args[1:2]}}
		if op == model.OpReplaceNode {
			req.Change.Forced = true
			r.Question = fmt.Sprintf("Delete node %s and create it again?", args[1])
		}
		return operate(app, cmd, args[0], req, &r)
	}
	takeNode(app, cmd)
	return cmd
}

// recoveryCmd returns a command that pauses or resumes the automatic recovery of a cluster.
func recoveryCmd(app cli.App, word, short string, pause bool) *cobra.Command {
	out := app.Printer()
	var reason string
	cmd := &cobra.Command{
		Use: word + "-recovery NAME", Short: short, Args: cli.Args("NAME"), Example: fmt.Sprintf("  coopr cluster %s-recovery shop", word),
		ValidArgsFunction: cli.CompleteClusters(app),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "reason, kept in the audit log")
	cmd.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		cl, _, err := c.PauseRecovery(ctx, args[0], pause, reason)
		if err != nil {
			return err
		}
		state := "Automatic recovery of cluster %s is on.\n"
		if cl.RecoveryPaused != nil {
			state = "Automatic recovery of cluster %s is paused.\n"
		}
		out.Printf(state, cl.Name)
		return nil
	})
	return cmd
}

// healthLines shows the health of a cluster's nodes as far as it is known: a count of each status, and a
// line for each node that has a problem or is paused.
func healthLines(out *output.Printer, cl *api.ClusterDetails) {
	counts := map[string]int{}
	var sick []string
	for i := range cl.Nodes {
		n := &cl.Nodes[i]
		status := n.Health.Status()
		counts[status]++
		if status == model.MachineGone || status == string(model.Unhealthy) || status == "paused" {
			sick = append(sick, n.ShortName()+": "+healthOf(out.Clock(), n))
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
	out.Field("Health", strings.Join(words, ", "))
	if p := cl.RecoveryPaused; p != nil {
		out.Field("Recovery", strings.TrimRight("paused by "+p.By+": "+p.Reason, ": "))
	}
	for _, s := range sick {
		out.Printf("%-12s %s\n", "", s)
	}
}

// healthOf describes the health of a node and its recovery.
func healthOf(now time.Time, n *model.Node) string {
	h := n.Health
	words := []string{h.Status()}
	for _, s := range h.Failing() {
		words = append(words, s+": "+output.Line(h.Services[s].Message))
	}
	for s, how := range h.Paused {
		words = append(words, s+" "+strings.ToLower(how))
	}
	if h.Attempts > 0 && (h.Machine != "" || len(h.Failing()) > 0) {
		words = append(words, fmt.Sprintf("attempt %d was %s", h.Attempts, h.Operation))
	}
	if h.Next > now.UnixMilli() && len(h.Failing()) > 0 {
		words = append(words, "the next is due at "+output.Moment(h.Next))
	} else if h.Waits != "" {
		words = append(words, h.Waits)
	}
	return strings.Join(words, "; ")
}
