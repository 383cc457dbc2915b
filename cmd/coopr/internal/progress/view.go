package progress

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/words"

	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

// view shows snapshots of an operation.
type view interface {
	draw(snapshot)
	// clear removes what was drawn, to make room for a line that stays.
	clear()
}

// phase counts the tasks of one action.
type phase struct {
	action                       model.Action
	total, done, running, failed int
}

// phases counts tasks by their action, in the order in which a node goes through the actions.
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
	// Services are stopped before anything else is done to a node.
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

// lines shows progress where there is no terminal: one line for each action that is complete.
type lines struct {
	w      io.Writer
	status model.OperationStatus
	said   map[model.Action]int
	tenth  int
}

func (l *lines) clear() {}

func (l *lines) draw(s snapshot) {
	op := s.op
	if op.Status != l.status && !op.Status.Ended() {
		text := fmt.Sprintf("%s %s: %s", op.Type, op.ID, op.Status)
		if op.Progress.Total > 0 {
			text += fmt.Sprintf(", %s", words.Count(op.Progress.Total, "task"))
		}
		if op.Status == model.OpPaused {
			text += "; to continue: coopr operation resume " + op.ID + "; to undo it: coopr operation rollback " + op.ID
		}
		fmt.Fprintln(l.w, output.Printable(text))
	}
	l.status = op.Status
	if !s.all {
		if tenth := 10 * op.Progress.Done / max(op.Progress.Total, 1); tenth > l.tenth {
			l.tenth = tenth
			fmt.Fprintf(l.w, "%d of %d tasks\n", op.Progress.Done, op.Progress.Total)
		}
		return
	}
	if l.said == nil {
		l.said = map[model.Action]int{}
	}
	for _, p := range phases(s.tasks) {
		// A phase can grow, for example when a machine is created again. It is reported again then.
		if p.done == p.total && l.said[p.action] != p.total {
			l.said[p.action] = p.total
			fmt.Fprintf(l.w, "%-10s %d/%d\n", p.action, p.done, p.total)
		}
	}
}

// bars shows progress on a terminal, drawn again in place.
type bars struct {
	out   *output.Printer
	drawn int // lines on the terminal
}

// barWidth is the width of a bar in characters.
const barWidth = 24

func (b *bars) clear() {
	if b.drawn > 0 {
		// The cursor is not in the first column if the terminal has echoed a key, such as ^C.
		b.out.Control(fmt.Sprintf("\r\x1b[%dA\x1b[J", b.drawn))
		b.drawn = 0
	}
}

func (b *bars) draw(s snapshot) {
	op := s.op
	if op.ID == "" {
		return
	}
	width := b.out.Width()
	head := fmt.Sprintf("%s %s  %s", op.Type, op.ID, b.out.Status(string(op.Status)))
	until := b.out.Clock().UnixMilli()
	if op.EndedAt > 0 {
		until = op.EndedAt
	}
	head += "  " + output.Span(time.Duration(until-op.CreatedAt)*time.Millisecond)
	text := []string{head}
	if s.all {
		for _, p := range phases(s.tasks) {
			note := ""
			if p.running > 0 {
				note += fmt.Sprintf("  %d running", p.running)
			}
			if p.failed > 0 {
				note += "  " + b.out.Paint(output.Red, fmt.Sprintf("%d failed", p.failed))
			}
			text = append(text, fmt.Sprintf("  %-10s %s %d/%d%s", p.action, b.bar(p.done, p.total), p.done, p.total, note))
		}
		shown := 0
		for _, t := range s.tasks {
			if t.Status == model.TaskRunning && shown < 4 && !op.Status.Ended() {
				shown++
				text = append(text, b.out.Paint(output.Faint, "  "+output.Clip("… "+TaskName(t)+", "+b.out.Ago(t.LeasedAt), width-3)))
			}
		}
	} else {
		text = append(text, fmt.Sprintf("  %s %d/%d  %d running", b.bar(op.Progress.Done, op.Progress.Total), op.Progress.Done,
			op.Progress.Total, op.Progress.Counts["running"]))
	}
	if op.Status == model.OpPaused {
		text = append(text, "  paused; to continue: coopr operation resume "+op.ID, "          to undo it:  coopr operation rollback "+op.ID)
	}
	b.clear()
	b.out.Println(strings.Join(text, "\n"))
	b.drawn = len(text)
}

// bar returns a bar of barWidth characters.
func (b *bars) bar(done, total int) string {
	n := 0
	if total > 0 {
		n = barWidth * done / total
	}
	return b.out.Paint(output.Green, strings.Repeat("█", n)) + b.out.Paint(output.Faint, strings.Repeat("░", barWidth-n))
}
