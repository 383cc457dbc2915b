package progress

import (
	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/model"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
)

// rollout are the flags that say how nodes take turns in an operation.
type rollout struct {
	strategy, batch string
	canary, staged  bool
	queue           bool
	maxFailures     int
}

func (r *rollout) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&r.strategy, "strategy", "", "how nodes take turns: serial, parallel, canary, parallel-canary, batch=N or batch=N%")
	f.StringVar(&r.batch, "batch", "", "so many nodes at a time, such as 2 or 25%: the same as --strategy batch=2")
	f.BoolVar(&r.canary, "canary", false, "let two nodes wait for \"coopr plan resume\", one by one, before the rest follows")
	f.IntVar(&r.maxFailures, "max-failures", 0, "go on while no more nodes than this have failed")
	f.BoolVar(&r.staged, "staged", false, "let all nodes wait for each other at every stage, as the original does")
	f.BoolVar(&r.queue, "queue", false, "where another operation is under way, wait for it to end; else this one is refused")
	_ = cmd.RegisterFlagCompletionFunc("strategy", cobra.FixedCompletions([]string{"serial", "parallel", "canary", "parallel-canary", "batch="}, cobra.ShellCompDirectiveNoFileComp))
}

func (r *rollout) read(cmd *cobra.Command) (model.Rollout, error) {
	out := model.Rollout{Strategy: r.strategy, MaxFailures: model.Int(r.maxFailures), Staged: r.staged, Queue: r.queue}
	switch {
	case r.batch != "" && (r.strategy != "" || r.canary), r.canary && r.strategy != "" && r.strategy != "serial" && r.strategy != "parallel":
		return out, cli.Usage(cmd, "--strategy, --batch and --canary are ways for nodes to take turns: choose one (--canary goes with --strategy parallel)")
	case r.batch != "":
		out.Strategy = "batch=" + r.batch
	case r.canary && r.strategy == "parallel":
		out.Strategy = "parallel-canary"
	case r.canary:
		out.Strategy = "canary"
	}
	return out, nil
}
