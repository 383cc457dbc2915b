package progress

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/words"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

// ManyTasks is the number of tasks above which single tasks are not fetched any more: totals are enough
// then, and fetching thousands of tasks repeatedly would be expensive.
const ManyTasks = 1000

// manyFailed is the number of failed tasks that are fetched of an operation with many tasks.
const manyFailed = 20

// snapshot is an operation as it was at one moment.
type snapshot struct {
	op    api.OperationDetails
	tasks []model.Task // all of them, or some that failed if there are many
	all   bool         // tasks holds all tasks
	err   error
}

// Follow shows the progress of an operation until it ends, and then its result. Ctrl-C leaves the
// operation running.
func Follow(ctx context.Context, app cli.App, c *client.Client, id string) error {
	out := app.Printer()
	w := out.Stdout // results alone go to the standard output if a program reads it
	if out.Structured() {
		w = out.Stderr
	}
	var v view
	var tick <-chan time.Time
	if out.Interactive() {
		v = &bars{out: out}
		t := time.NewTicker(time.Second) // so that the times shown continue while nothing happens
		defer t.Stop()
		tick = t.C
	} else {
		v = &lines{w: w}
	}
	watching, stop := context.WithCancel(ctx)
	snapshots := make(chan snapshot)
	done := make(chan struct{})
	go func() {
		defer close(done)
		watch(watching, c, id, app.Pace(), snapshots)
	}()
	defer func() {
		stop()
		<-done
	}()
	said := map[string]bool{}
	var last snapshot
	for {
		select {
		case <-ctx.Done():
			v.clear()
			return leave(out, id, last)
		case <-tick:
			v.draw(last)
			continue
		case last = <-snapshots:
		}
		if last.err != nil {
			v.clear()
			if ctx.Err() != nil {
				return leave(out, id, last)
			}
			if !errors.Is(last.err, client.ErrNotFound) {
				out.Notef("The operation continues. To watch it again: coopr operation watch %s\n", id)
			}
			return last.err
		}
		v.draw(last)
		for _, t := range last.tasks {
			if line, ok := failure(t); ok && !said[line] {
				said[line] = true
				v.clear()
				out.Fprint(w, out.PaintTo(w, output.Red, "✗")+" "+line+"\n")
			}
		}
		v.draw(last)
		if last.op.Status.Ended() {
			return ended(ctx, out, w, c, last)
		}
	}
}

// watch sends a snapshot of an operation whenever the operation has changed, until it ends or a read fails.
func watch(ctx context.Context, c *client.Client, id string, pace time.Duration, snapshots chan<- snapshot) {
	read := client.Read{}
	for {
		var s snapshot
		var meta client.Meta
		s.op, meta, s.err = c.Operation(ctx, id, read)
		if s.err == nil {
			s.all = s.op.Progress.Total <= ManyTasks
			status, limit := "", ManyTasks
			if !s.all {
				status, limit = model.TaskFailed.String(), manyFailed
			}
			if s.op.Progress.Total > 0 {
				s.tasks, _, s.err = c.Tasks(ctx, id, status, client.Page{Limit: limit}, client.Read{})
			}
		}
		select {
		case <-ctx.Done():
			return
		case snapshots <- s:
		}
		if s.err != nil || s.op.Status.Ended() || !cli.Pause(ctx, pace) {
			return
		}
		read = cli.Newer(meta)
	}
}

// leave prints how to watch again an operation that continues.
func leave(out *output.Printer, id string, last snapshot) error {
	if !last.op.Status.Ended() {
		out.Notef("\nThe operation continues. To watch it again: coopr operation watch %s\n"+
			"To see what it waits for: coopr operation explain %s\n", id, id)
	}
	return cli.ErrLeft
}

// failure describes a task that failed, for good or for now. It returns false for any other task.
func failure(t model.Task) (string, bool) {
	var what string
	switch {
	case t.Status == model.TaskFailed:
		what = "failed"
	case t.Status == model.TaskUncertain:
		what = "has an uncertain outcome, which is being checked"
	case (t.Status == model.TaskReady || t.Status == model.TaskBlocked) && t.Attempt > 0 && t.Message != "":
		what = fmt.Sprintf("failed (attempt %d) and will be retried", t.Attempt)
	default:
		return "", false
	}
	line := TaskName(t) + " " + what
	if t.Message != "" {
		line += ": " + output.Clip(t.Message, 300)
	}
	return line + "\n  log: coopr task log " + t.ID, true
}

// Does returns the name of a task's action as people read it: "INSTALL", or "DRAIN" for an action of the service's own.
func Does(t model.Task) string {
	if t.Own != "" {
		return strings.ToUpper(t.Own)
	}
	return t.Action.String()
}

// TaskName returns the name of a task as people read it: "INSTALL nginx on shop1-1000.local".
func TaskName(t model.Task) string {
	name := Does(t)
	if t.Service != "" {
		name += " " + t.Service
	}
	return name + " on " + cmp.Or(t.Hostname, t.Node, "an agent")
}

// ended shows the result of an operation, and where to find what it made. It returns an error unless the
// operation succeeded.
func ended(ctx context.Context, out *output.Printer, w io.Writer, c *client.Client, s snapshot) error {
	op := s.op
	var cluster *api.ClusterDetails
	name := op.Cluster
	if cl, _, err := c.Cluster(ctx, op.Cluster, client.Read{}); err == nil {
		cluster, name = &cl, cl.Name
	}
	if out.Structured() {
		result := struct {
			Operation api.OperationDetails `json:"operation"`
			Cluster   *api.ClusterDetails  `json:"cluster,omitempty"`
		}{op, cluster}
		if err := out.Encode(result); err != nil {
			return err
		}
	}
	if op.Status == model.OpSucceeded {
		succeeded(out, w, op, cluster, name)
		return nil
	}
	became := map[model.OperationStatus]string{model.OpFailed: "has failed", model.OpAborted: "was aborted",
		model.OpRolledBack: "has failed and was rolled back", model.OpSuperseded: "was superseded"}[op.Status]
	text := fmt.Sprintf("operation %s (%s cluster %s) %s", op.ID, op.Type, name, became)
	if op.Message != "" {
		text += ": " + op.Message
	}
	out.Error(text)
	out.Notef("To see what failed: coopr operation log %s --status failed\n", op.ID)
	switch {
	case cluster == nil || cluster.Status == model.ClusterTerminated:
	case op.Type == model.OpCreate && op.OnFailure == "delete":
		out.Notef("What it created is being removed. To watch: coopr cluster watch %s\n", name)
	case op.Type == model.OpCreate:
		out.Notef("To remove what is left: coopr cluster delete %s\n", name)
	case cluster.Status == model.ClusterFailed:
		out.Noteln(RepairHint(name))
	}
	return cli.ErrReported
}

func succeeded(out *output.Printer, w io.Writer, op api.OperationDetails, cluster *api.ClusterDetails, name string) {
	done := out.PaintTo(w, output.Green, "✓")
	took := output.Span(time.Duration(op.EndedAt-op.CreatedAt) * time.Millisecond)
	switch {
	case op.Type == model.OpDelete:
		out.Fprintf(w, "%s Cluster %s was deleted (%s).\n", done, name, took)
	case cluster == nil:
		out.Fprintf(w, "%s Operation %s succeeded (%s).\n", done, op.ID, took)
	default:
		if op.Message != "" {
			out.Fprintf(w, "%s%s.\n", strings.ToUpper(op.Message[:1]), op.Message[1:])
		}
		out.Fprintf(w, "%s Cluster %s is %s: %s (%s).\n", done, name, cluster.Status, words.Count(len(cluster.Nodes), "node"), took)
		if !out.Structured() {
			ShowLinks(out, cluster.Links)
			out.Printf("Details: coopr cluster get %s\n", name)
		}
	}
}

// ShowLinks writes the links of a cluster.
func ShowLinks(out *output.Printer, links []model.Link) {
	head := "Links:"
	for _, l := range links {
		out.Printf("%-12s %s  %s\n", head, l.Label, out.Paint(output.Blue, l.URL))
		head = ""
	}
}

// RepairHint returns the commands that help with a cluster that has failed.
func RepairHint(cluster string) string {
	return fmt.Sprintf("Cluster %s stays as it is. To restore an earlier state: coopr cluster history %s, then coopr cluster rollback %s "+
		"--to N\nIf you repair it by hand, mark it as repaired: coopr cluster resolve %s --reason TEXT",
		cluster, cluster, cluster, cluster)
}
