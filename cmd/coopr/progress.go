package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"
)

// waitNewer is how long an agent is asked to wait for something newer: short, since
// only after it is an agent that has gone silent given up.
const waitNewer = 15 * time.Second

// manyTasks is from where on single tasks are not looked at any more: totals
// tell enough, and thousands of tasks are a lot to ask for again and again.
const manyTasks = 1000

// look is what one look at an operation showed.
type look struct {
	op    api.OperationDetails
	tasks []model.Task // all of them, or the failed ones where there are many
	all   bool
	err   error
}

// follow shows an operation's progress until it ends, and then how it ended.
// Ctrl-C leaves it running.
func (a *app) follow(ctx context.Context, c *client.Client, id string) error {
	w := a.out
	if a.structured() {
		w = a.err
	}
	var v viewer
	if a.outTerminal && !a.structured() {
		v = &bars{a: a, w: w}
	} else {
		v = &lines{a: a, w: w}
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	looks := make(chan look)
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.watchOperation(watching, c, id, looks)
	}()
	defer func() {
		stop()
		<-done
	}()
	// Times on a terminal go on while nothing happens.
	var tick <-chan time.Time
	if a.outTerminal && !a.structured() {
		t := time.NewTicker(time.Second)
		defer t.Stop()
		tick = t.C
	}
	said := map[string]bool{}
	var last look
	for {
		select {
		case <-ctx.Done():
			v.clear()
			return a.leave(id, last)
		case <-tick:
			v.draw(last)
			continue
		case last = <-looks:
		}
		if last.err != nil {
			v.clear()
			if ctx.Err() != nil {
				return a.leave(id, last)
			}
			if !errors.Is(last.err, client.ErrNotFound) {
				fmt.Fprintf(a.err, "The operation goes on. Watch it again: coopr operation watch %s\n", id)
			}
			return last.err
		}
		v.draw(last)
		for _, t := range last.tasks {
			if line, ok := trouble(t); ok && !said[line] {
				said[line] = true
				v.clear()
				fmt.Fprintln(w, a.paint(w, red, "✗")+" "+line)
			}
		}
		v.draw(last)
		if last.op.Status.Ended() {
			return a.ended(ctx, c, last)
		}
	}
}

// watchOperation looks at an operation whenever the state has changed, by
// reads that wait for that.
func (a *app) watchOperation(ctx context.Context, c *client.Client, id string, looks chan<- look) {
	read := client.Read{}
	for {
		var l look
		var meta client.Meta
		l.op, meta, l.err = c.Operation(ctx, id, read)
		if l.err == nil {
			l.all = l.op.Progress.Total <= manyTasks
			status, limit := "", manyTasks
			if !l.all {
				status, limit = model.TaskFailed.String(), 20
			}
			if l.op.Progress.Total > 0 {
				l.tasks, _, l.err = c.Tasks(ctx, id, status, client.Page{Limit: limit}, client.Read{})
			}
		}
		select {
		case <-ctx.Done():
			return
		case looks <- l:
		}
		if l.err != nil || l.op.Status.Ended() || !pause(ctx, a.pace) {
			return
		}
		read = client.Read{After: max(meta.Index, 1), Wait: waitNewer}
	}
}

// leave tells how to come back to an operation that goes on.
func (a *app) leave(id string, last look) error {
	if last.op.Status.Ended() {
		return errLeft
	}
	fmt.Fprintf(a.err, "\nThe operation goes on without you. Watch it again: coopr operation watch %s\nSee what it waits for: coopr operation explain %s\n", id, id)
	return errLeft
}

// trouble tells of a task that failed, for good or for now.
func trouble(t model.Task) (string, bool) {
	var what string
	switch {
	case t.Status == model.TaskFailed:
		what = "failed"
	case t.Status == model.TaskUncertain:
		what = "is uncertain: it is being looked at"
	case (t.Status == model.TaskReady || t.Status == model.TaskBlocked) && t.Attempt > 0 && t.Message != "":
		what = fmt.Sprintf("failed (attempt %d) and is tried again", t.Attempt)
	default:
		return "", false
	}
	line := taskName(t) + " " + what
	if t.Message != "" {
		line += ": " + clip(t.Message, 300)
	}
	return line + "\n  its log: coopr task log " + t.ID, true
}

// taskName gives "INSTALL nginx on shop1-1000.local".
func taskName(t model.Task) string {
	name := t.Action.String()
	if t.Service != "" {
		name += " " + t.Service
	}
	host := t.Hostname
	if host == "" {
		host = t.Node
	}
	if host != "" {
		name += " on " + host
	}
	return name
}

// ended tells how an operation ended and where to find what it made.
func (a *app) ended(ctx context.Context, c *client.Client, l look) error {
	op := l.op
	cl, _, err := c.Cluster(ctx, op.Cluster, client.Read{})
	found := err == nil
	name := op.Cluster
	if found {
		name = cl.Name
	}
	if a.structured() {
		out := struct {
			Operation api.OperationDetails `json:"operation"`
			Cluster   *api.ClusterDetails  `json:"cluster,omitempty"`
		}{Operation: op}
		if found {
			out.Cluster = &cl
		}
		if err := a.print(out); err != nil {
			return err
		}
	}
	w := a.out
	if a.structured() {
		w = a.err
	}
	took := span(time.Duration(op.EndedAt-op.CreatedAt) * time.Millisecond)
	if op.Status == model.OpSucceeded {
		switch {
		case op.Type == model.OpDelete:
			fmt.Fprintf(w, "%s Cluster %s is deleted (%s).\n", a.paint(w, green, "✓"), name, took)
		case found:
			if op.Message != "" {
				fmt.Fprintf(w, "%s%s.\n", strings.ToUpper(op.Message[:1]), op.Message[1:])
			}
			fmt.Fprintf(w, "%s Cluster %s is %s: %s (%s).\n", a.paint(w, green, "✓"), name, cl.Status, count(len(cl.Nodes), "node"), took)
			if !a.structured() {
				a.links(cl.Links)
				fmt.Fprintf(w, "More: coopr cluster get %s\n", name)
			}
		default:
			fmt.Fprintf(w, "%s Operation %s has succeeded (%s).\n", a.paint(w, green, "✓"), op.ID, took)
		}
		return nil
	}
	became := map[model.OperationStatus]string{model.OpFailed: "has failed", model.OpAborted: "was aborted", model.OpRolledBack: "has failed and is rolled back"}[op.Status]
	text := fmt.Sprintf("operation %s (%s cluster %s) %s", op.ID, op.Type, name, became)
	if op.Message != "" {
		text += ": " + op.Message
	}
	a.complain(text)
	next := fmt.Sprintf("See what failed: coopr operation log %s --status failed", op.ID)
	switch {
	case !found || cl.Status == model.ClusterTerminated:
	case op.Type == model.OpCreate && op.OnFailure == "delete":
		next += fmt.Sprintf("\nWhat it made is being removed: coopr cluster watch %s", name)
	case op.Type == model.OpCreate:
		next += fmt.Sprintf("\nRemove what is left: coopr cluster delete %s", name)
	case cl.Status == model.ClusterFailed:
		next += "\n" + wayOut(name)
	}
	fmt.Fprintln(a.err, next)
	return errReported
}

// wayOut tells what can be done with a cluster that has failed.
func wayOut(cluster string) string {
	return fmt.Sprintf("Cluster %s is left as it is. Bring it back to what it was: coopr cluster history %s, then coopr cluster rollback %s --to N\nOr put it in order by hand and say so: coopr cluster resolve %s --reason TEXT",
		cluster, cluster, cluster, cluster)
}

// viewer shows looks.
type viewer interface {
	draw(look)
	clear() // makes room for a line that stays
}

// phase is how far the tasks of one action are.
type phase struct {
	action                       model.Action
	total, done, running, failed int
}

func phases(tasks []model.Task) []phase {
	byAction := make([]phase, model.Run+1)
	for _, t := range tasks {
		if int(t.Action) >= len(byAction) {
			continue
		}
		p := &byAction[t.Action]
		p.action = t.Action
		p.total++
		switch {
		case t.Status == model.TaskFailed:
			p.failed++
		case t.Status == model.TaskSucceeded:
			p.done++
		case t.Status.Held():
			p.running++
		}
	}
	// In the order of a node's life, but what is stopped is so before anything
	// is done to it.
	var out []phase
	if p := byAction[model.Stop]; p.total > 0 {
		out = append(out, p)
		byAction[model.Stop].total = 0
	}
	for _, p := range byAction {
		if p.total > 0 {
			out = append(out, p)
		}
	}
	return out
}

// lines shows progress where there is no terminal: a line for what is done.
type lines struct {
	a      *app
	w      io.Writer
	status model.OperationStatus
	said   map[model.Action]int
	tenth  int
}

func (l *lines) clear() {}

func (l *lines) draw(k look) {
	op := k.op
	if op.Status != l.status && !op.Status.Ended() {
		text := fmt.Sprintf("%s %s: %s", op.Type, op.ID, op.Status)
		if op.Progress.Total > 0 {
			text += fmt.Sprintf(", %s", count(op.Progress.Total, "task"))
		}
		if op.Status == model.OpPaused {
			text += "; go on with: coopr operation resume " + op.ID + ", or end it: coopr operation rollback " + op.ID
		}
		fmt.Fprintln(l.w, text)
	}
	l.status = op.Status
	if !k.all {
		if tenth := 10 * op.Progress.Done / max(op.Progress.Total, 1); tenth > l.tenth {
			l.tenth = tenth
			fmt.Fprintf(l.w, "%d of %d tasks\n", op.Progress.Done, op.Progress.Total)
		}
		return
	}
	if l.said == nil {
		l.said = map[model.Action]int{}
	}
	for _, p := range phases(k.tasks) {
		// A phase may grow again (a machine is made anew): then it is said again.
		if p.done == p.total && l.said[p.action] != p.total {
			l.said[p.action] = p.total
			fmt.Fprintf(l.w, "%-10s %d/%d\n", p.action, p.done, p.total)
		}
	}
}

// bars shows progress on a terminal, drawn again in place.
type bars struct {
	a     *app
	w     io.Writer
	lines int
}

const barWidth = 24

func (b *bars) clear() {
	if b.lines > 0 {
		fmt.Fprintf(b.w, "\x1b[%dA\x1b[J", b.lines)
		b.lines = 0
	}
}

func (b *bars) draw(k look) {
	op := k.op
	if op.ID == "" {
		return
	}
	width := b.a.width()
	var out []string
	head := fmt.Sprintf("%s %s  %s", op.Type, op.ID, b.a.paint(b.w, colourOf(string(op.Status)), string(op.Status)))
	until := b.a.now().UnixMilli()
	if op.EndedAt > 0 {
		until = op.EndedAt
	}
	head += "  " + span(time.Duration(until-op.CreatedAt)*time.Millisecond)
	out = append(out, head)
	if k.all {
		for _, p := range phases(k.tasks) {
			note := ""
			if p.running > 0 {
				note += fmt.Sprintf("  %d running", p.running)
			}
			if p.failed > 0 {
				note += "  " + b.a.paint(b.w, red, fmt.Sprintf("%d failed", p.failed))
			}
			out = append(out, fmt.Sprintf("  %-10s %s %d/%d%s", p.action, b.bar(p.done, p.total), p.done, p.total, note))
		}
		shown := 0
		for _, t := range k.tasks {
			if t.Status == model.TaskRunning && shown < 4 && !op.Status.Ended() {
				shown++
				out = append(out, b.a.paint(b.w, faint, "  "+clip("… "+taskName(t)+", "+b.a.ago(t.LeasedAt), width-3)))
			}
		}
	} else {
		out = append(out, fmt.Sprintf("  %s %d/%d  %d running", b.bar(op.Progress.Done, op.Progress.Total), op.Progress.Done, op.Progress.Total, op.Progress.Counts["running"]))
	}
	if op.Status == model.OpPaused {
		out = append(out, "  paused: go on with coopr operation resume "+op.ID, "          or end it with coopr operation rollback "+op.ID)
	}
	b.clear()
	fmt.Fprintln(b.w, strings.Join(out, "\n"))
	b.lines = len(out)
}

func (b *bars) bar(done, total int) string {
	n := 0
	if total > 0 {
		n = barWidth * done / total
	}
	return b.a.paint(b.w, green, strings.Repeat("█", n)) + b.a.paint(b.w, faint, strings.Repeat("░", barWidth-n))
}
