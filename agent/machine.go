package agent

import (
	"context"
	"encoding/json"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/host"
	pb "github.com/coopr/coopr/rpc/proto"
)

// onMachine notes, in the results of a node that lives in a folder of the
// agent's machine, which folder of which machine that is, so that its later
// tasks go to agents that have it.
type onMachine struct {
	host.Executor
	machine string
}

// Execute carries out a task.
func (o onMachine) Execute(ctx context.Context, t *pb.Task, sink host.Sink) *pb.Result {
	res := o.Executor.Execute(ctx, t, sink)
	if t.Action != model.Create.String() || len(res.Output) == 0 {
		return res
	}
	var out model.TaskOutput
	if json.Unmarshal(res.Output, &out) != nil || out.Result["transport"] != "local" {
		return res
	}
	out.Result[model.ResultMachine] = o.machine
	if b, err := json.Marshal(out); err == nil {
		res.Output = b
	}
	return res
}
