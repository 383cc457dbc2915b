package progress

import (
	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/model"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
)

// rollout holds the flags for the order in which an operation changes nodes.
type rollout struct {
	strategy, batch string
	canary, staged  bool
	queue           bool
	supersede       bool
	maxFailures     int
}

func (r *rollout) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&r.strategy, "strategy", "",
		"order in which nodes are changed: serial, parallel, canary, parallel-canary, batch=N or batch=N%")
	f.StringVar(&r.batch, "batch", "", "nodes to change at a time, such as 2 or 25%; the same as --strategy batch=2")
	f.BoolVar(&r.canary, "canary", false, "wait for \"coopr plan resume\" before each of the first two nodes")
	f.IntVar(&r.maxFailures, "max-failures", 0, "continue while at most this many nodes have failed")
	f.BoolVar(&r.staged, "staged", false, "start each stage only after all nodes have completed the one before")
	f.BoolVar(&r.queue, "queue", false, "wait until another operation on the cluster ends; without this flag the new one is refused")
	switch cmd.Name() {
	case "configure", "upgrade", "sync-template":
		f.BoolVar(&r.supersede, "supersede", false, "take the place of a configure, upgrade or sync-template that is under way; "+
			"nodes that are as they are to be stay")
	}
	cli.CompleteValues(cmd, "strategy", "serial", "parallel", "canary", "parallel-canary", "batch=")
}

// read returns the rollout that the flags ask for.
func (r *rollout) read(cmd *cobra.Command) (model.Rollout, error) {
	out := model.Rollout{Strategy: r.strategy, MaxFailures: model.Int(r.maxFailures), Staged: r.staged, Queue: r.queue, Supersede: r.supersede}
	switch {
	case r.queue && r.supersede:
		return out, cli.Usage(cmd, "--queue and --supersede exclude each other: wait for the operation that is under way, or take its place")
	case r.batch != "" && (r.strategy != "" || r.canary), r.canary && r.strategy != "" && r.strategy != "serial" && r.strategy != "parallel":
		return out, cli.Usage(cmd, "--strategy, --batch and --canary exclude each other, except for --canary with --strategy serial or parallel")
	case r.batch != "":
		out.Strategy = "batch=" + r.batch
	case r.canary && r.strategy == "parallel":
		out.Strategy = "parallel-canary"
	case r.canary:
		out.Strategy = "canary"
	}
	return out, nil
}
