package act

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coopr/coopr/engine/change/builtin"
	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
)

// handover is how long a plugin of another agent may continue to work on a node after that agent
// has lost the node's objects: the plugin host's grace and a reserve. Objects of other types do not
// wait for it, because their scripts end within the margin of the agent's lease.
const handover = 12 * time.Second

// automated is an object whose check and actions an automator carries out.
type automated struct {
	*object
	plugin  string
	content *builtin.Automated
}

// verbs maps the actions of change objects to those of automators.
var verbs = map[string]model.Action{"start": model.Start, "stop": model.Stop, "restart": model.Start, "cleanup": model.Stop}

func (a *automated) check(ctx context.Context) (string, string, error) {
	if len(a.content.Check) == 0 {
		st, err := a.stamped(ctx)
		if err != nil || st == nil {
			return "down", "", err
		}
		state, err := a.told(ctx)
		return state, "", err
	}
	res, said, err := a.do(ctx, model.Check, a.content.Check)
	if err != nil {
		return "", "", err
	}
	switch res.Outcome {
	case pb.Outcome_OUTCOME_SUCCEEDED:
		state, err := a.told(ctx)
		return state, said, err
	case pb.Outcome_OUTCOME_RETRYABLE, pb.Outcome_OUTCOME_FATAL:
		return "down", res.Message, nil
	}
	return "", said, fmt.Errorf("the check was not carried out: %s", res.Message)
}

func (a *automated) run(ctx context.Context, action string) error {
	fields := map[string]map[string]any{"start": a.content.Start, "stop": a.content.Stop, "restart": a.content.Restart,
		"cleanup": a.content.Cleanup}[action]
	if len(fields) == 0 && (action == "restart" || action == "cleanup") {
		// Stop what is in place with the stop action of its own content.
		was, err := inPlace(ctx, a.object, a.content)
		if err != nil {
			return err
		}
		if err := a.must(ctx, "stop", was.Stop); err != nil {
			return err
		}
		if action == "restart" {
			fields = a.content.Start
		}
	}
	if err := a.must(ctx, action, fields); err != nil {
		return err
	}
	return a.stamp(ctx, action == "start" || action == "restart")
}

// must has the automator carry out an action, and fails if the action does not succeed. Without
// fields it does nothing.
func (a *automated) must(ctx context.Context, action string, fields map[string]any) error {
	if len(fields) == 0 {
		return nil
	}
	res, _, err := a.do(ctx, verbs[action], fields)
	if err != nil {
		return fmt.Errorf("%s: %w", action, err)
	}
	if res.Outcome != pb.Outcome_OUTCOME_SUCCEEDED {
		return fmt.Errorf("%s: %s", action, res.Message)
	}
	return nil
}

// do has the automator carry out a task on the object's machine. It returns the result and
// the last line of the output.
func (a *automated) do(ctx context.Context, verb model.Action, fields map[string]any) (*pb.Result, string, error) {
	if a.p.cfg.Automate == nil {
		return nil, "", errors.New("this agent runs no plugins")
	}
	host := a.job.Object.Host
	if strings.HasPrefix(host, "node:") {
		select {
		case <-time.After(handover - a.job.Held):
		case <-ctx.Done():
			return nil, "", context.Cause(ctx)
		}
	}
	in := model.TaskInput{TaskName: verb.String(), NodeID: host}
	if a.job.Node != nil {
		in.Config = a.job.Node.Config()
	} else {
		in.Config.Results = map[string]any{"transport": "local", "providerid": a.m.Dir()}
	}
	in.Config.Service = &model.TaskService{Name: a.job.Object.Name, Action: model.TaskAction{Type: a.plugin, Fields: fields}}
	// The id is random, because nothing asks later whether this task was done.
	t := &pb.Task{
		Id: "change/" + a.job.Site + "/" + a.job.Object.Name + "/" + rand.Text(), Fence: uint64(time.Now().UnixMicro()), Attempt: 1,
		Tenant: a.job.Tenant, Cluster: in.Config.ClusterName, Node: host, Action: verb.String(), Service: a.job.Object.Name, Plugin: a.plugin,
		Automator: true, Secrets: slices.Clone(a.job.Secrets),
	}
	in.TaskID = t.Id
	if until, ok := ctx.Deadline(); ok {
		t.TimeoutMs = max(time.Until(until).Milliseconds(), 1)
	}
	var err error
	if t.Input, err = json.Marshal(in); err != nil {
		return nil, "", err
	}
	out := &said{}
	res := a.p.cfg.Automate(ctx, t, out)
	return res, out.last(), nil
}

// said keeps the end of a task's log.
type said struct{ tail }

// Log adds a line.
func (s *said) Log(l *pb.LogLine) { _, _ = s.Write([]byte(l.Text + "\n")) }

// Save discards the value, because change objects save none.
func (*said) Save(*pb.SaveState) {}
