package change

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/words"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

// liveSite shows a site on a terminal as it changes: which objects depend on which, what each object does or
// waits for, and the latest events. It ends as watchSite does.
func liveSite(ctx context.Context, app cli.App, c *client.Client, name string, until uint64) error {
	watching, stop := context.WithCancel(ctx)
	snapshots, events := make(chan snapshot), make(chan model.Event)
	listened := make(chan struct{})
	go func() {
		defer close(listened)
		filter := client.EventFilter{Types: []string{"object.changed", "site.changed"}}
		_ = c.Events(watching, filter, func(e model.Event) error { // the view works without events
			select {
			case events <- e:
			case <-watching.Done():
			}
			return nil
		})
	}()
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		watchSnapshots(watching, app, c, name, snapshots)
	}()
	defer func() {
		stop()
		<-listened
		<-watched
	}()
	v := &view{out: app.Printer(), name: name}
	for {
		select {
		case <-ctx.Done():
			if cli.Interrupted(ctx) {
				return nil
			}
			return context.Cause(ctx)
		case e := <-events:
			v.hear(e)
		case s := <-snapshots:
			if s.err != nil {
				return s.err
			}
			v.now = s
		}
		if v.now.graph == nil {
			continue // there is nothing to show yet
		}
		v.draw()
		if s := &v.now.status; until > 0 && s.Converged && s.Generation >= until {
			return nil
		}
	}
}

// snapshot is a site at one moment, with its dependencies.
type snapshot struct {
	status site.SiteStatus
	graph  *site.Graph
	err    error
}

// watchSnapshots sends a snapshot of a site each time the site changes, until ctx ends or a request fails.
func watchSnapshots(ctx context.Context, app cli.App, c *client.Client, name string, snapshots chan<- snapshot) {
	var s snapshot
	for after := uint64(0); ; after = max(s.status.Revision, 1) {
		was := s.status.Overview
		s.status, s.err = c.SiteStatus(ctx, name, after)
		changed := s.graph == nil || was.Generation != s.status.Generation || was.Next != s.status.Next
		if s.err == nil && changed {
			s.graph, s.err = c.SiteGraph(ctx, name)
		}
		if ctx.Err() != nil {
			return
		}
		select {
		case snapshots <- s:
		case <-ctx.Done():
			return
		}
		if s.err != nil || !cli.Pause(ctx, max(app.Pace()/10, 100*time.Millisecond)) {
			return
		}
	}
}

// view is what the terminal shows.
type view struct {
	out    *output.Printer
	name   string
	now    snapshot
	events []string // the latest events, newest last
	drawn  bool
}

// manyEvents is the number of events that are kept.
const manyEvents = 12

// hear keeps an event if it is about this site.
func (v *view) hear(e model.Event) {
	about, object, _ := strings.Cut(e.Subject, "/")
	if about != v.name {
		return
	}
	at := time.UnixMilli(e.Time).Format("15:04:05")
	text := ""
	switch {
	case e.Type == "site.changed":
		text = e.Status
	case e.Status == "moved":
		text = object + "  " + e.Message
	case e.Status == "drifted":
		text = object + "  was changed from outside: " + e.Message
	default:
		text = object + "  " + e.Status + ": " + e.Message
	}
	v.events = append(v.events, at+"  "+text)
	v.events = v.events[max(0, len(v.events)-manyEvents):]
}

// draw draws the view over the one before.
func (v *view) draw() {
	width, height := 100, 40
	if f, ok := v.out.Stdout.(*os.File); ok {
		if w, h, err := term.GetSize(int(f.Fd())); err == nil {
			width, height = w, h
		}
	}
	var b strings.Builder
	if !v.drawn {
		b.WriteString("\x1b[2J")
		v.drawn = true
	}
	b.WriteString("\x1b[H")
	for _, line := range v.lines(width, height) {
		b.WriteString(output.Printable(line) + "\x1b[K\n")
	}
	b.WriteString("\x1b[J")
	v.out.Control(b.String())
}

// siteSigns are the signs before objects, with their meaning.
var siteSigns = []struct {
	sign, meaning string
	c             output.Colour
}{
	{"✓", "converged", output.Green},
	{"●", "working", output.Yellow},
	{"○", "waiting", output.Yellow},
	{"✗", "failed, will be retried", output.Red},
	{"?", "no report from the agent", output.Red},
}

// lines returns the lines of the view. They fit the screen.
func (v *view) lines(width, height int) []string {
	s := &v.now.status
	paint := func(c output.Colour, text string) string { return v.out.Paint(c, text) }
	said := fmt.Sprintf("%d of %d objects have converged", s.ConvergedObjects, s.Objects)
	if s.Converged {
		said = paint(output.Green, "all "+words.Count(s.Objects, "object")+" have converged")
	}
	generation := fmt.Sprintf("generation %d is in force", s.Generation)
	if s.Next != 0 {
		generation = fmt.Sprintf("generation %d is being applied", s.Next)
		if s.Generation != 0 {
			generation += fmt.Sprintf(" after %d", s.Generation)
		}
	}
	out := []string{fmt.Sprintf("Site %s: %s; %s.", v.name, generation, said), ""}
	if len(s.Switching) > 0 {
		out = append(out, output.Clip("Agents that have not switched: "+strings.Join(s.Switching, ", "), width), "")
	}
	items, relies := v.ordered()
	room := max(3, height-len(out)-min(len(v.events), manyEvents)-8)
	hidden := 0
	if len(items) > room { // converged objects can be left out
		hidden = len(items)
		items = slices.DeleteFunc(items, func(o *site.ObjectStatus) bool { return o.Converged })
		items = items[:min(len(items), room-1)]
		hidden -= len(items)
	}
	rows := [][]string{{"OBJECT", "HOST", "DEPENDS ON", "STATE", ""}}
	var signs []string
	for _, o := range items {
		sign, text := statusOf(o)
		state := o.State
		if o.Phase == "moving" {
			state += " → " + o.To
		}
		rows = append(rows, []string{o.Name, o.Host, strings.Join(relies[o.Name], ", "), state, text})
		signs = append(signs, sign)
	}
	var widths [4]int
	for _, r := range rows {
		for i := range widths {
			if i == 2 {
				r[i] = output.Clip(r[i], 30)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(r[i]))
		}
	}
	for i, r := range rows {
		line := ""
		for j, w := range widths {
			line += r[j] + strings.Repeat(" ", w-utf8.RuneCountInString(r[j])+2)
		}
		line = strings.TrimRight(cut(line+r[4], width-3), " ")
		if i == 0 {
			out = append(out, "  "+line)
			continue
		}
		sign := signs[i-1]
		for _, k := range siteSigns {
			if k.sign == sign {
				sign = paint(k.c, sign)
			}
		}
		out = append(out, sign+" "+line)
	}
	if hidden > 0 {
		out = append(out, fmt.Sprintf("  … and %d more", hidden))
	}
	legend := "  "
	for _, k := range siteSigns {
		legend += k.sign + " " + k.meaning + "   "
	}
	out = append(out, "", cut(strings.TrimRight(legend, " "), width))
	if len(v.events) > 0 {
		out = append(out, "", "Latest events:")
		for _, p := range v.events {
			out = append(out, cut("  "+p, width))
		}
	}
	return out
}

// cut shortens a line to a width. Unlike output.Clip, it keeps the spaces.
func cut(s string, width int) string {
	if r := []rune(s); len(r) > width && width > 1 {
		return string(r[:width-1]) + "…"
	}
	return s
}

// ordered returns the objects, dependencies first, and the dependencies of each object. An object depends on
// another one if it needs that object's preferred state to reach its own.
func (v *view) ordered() ([]*site.ObjectStatus, map[string][]string) {
	s, g := &v.now.status, v.now.graph
	preferred := map[string]string{}
	for _, n := range g.Nodes {
		preferred[n.Name] = n.Preferred
	}
	relies := map[string][]string{}
	for _, e := range g.Edges {
		when := e.When
		if !e.Hold {
			_, when, _ = strings.Cut(e.When, "→")
		}
		if e.State == preferred[e.To] && (when == preferred[e.From] || when == "*") && !slices.Contains(relies[e.From], e.To) {
			relies[e.From] = append(relies[e.From], e.To)
		}
	}
	depth := map[string]int{}
	var deep func(name string) int
	deep = func(name string) int {
		if d, ok := depth[name]; ok {
			return d
		}
		depth[name] = 0 // ends the recursion on a cycle; the compiler rejects cycles
		d := 0
		for _, on := range relies[name] {
			d = max(d, deep(on)+1)
		}
		depth[name] = d
		return d
	}
	var items []*site.ObjectStatus
	for i := range s.Items {
		items = append(items, &s.Items[i])
	}
	slices.SortStableFunc(items, func(a, b *site.ObjectStatus) int { return deep(a.Name) - deep(b.Name) })
	return items, relies
}

// statusOf returns the sign of an object, and a short description of what it is doing.
func statusOf(o *site.ObjectStatus) (sign, text string) {
	var waits []string
	for _, w := range o.Waits {
		waits = append(waits, plainWait(w))
	}
	why := ""
	if len(waits) > 0 {
		why = ": " + strings.Join(waits, ", and ")
	}
	switch {
	case o.Phase == "unheard":
		return "?", "no report from its agent"
	case o.Stuck:
		return "✗", "no transition leads to " + o.Target
	case o.Oscillating:
		return "✗", "oscillates, and is slowed down"
	case o.Phase == "backoff":
		return "✗", fmt.Sprintf("failed %d×: %s", o.Failures, o.Message)
	case o.Phase == "moving":
		return "●", "moving"
	case o.Phase == "checking":
		return "●", "being checked"
	case o.Removing && o.Converged:
		return "✓", "ready to be removed"
	case o.Removing:
		return "○", "to be removed" + why
	case o.Converged && o.Drifts > 0:
		return "✓", fmt.Sprintf("repaired %d×", o.Drifts)
	case o.Converged:
		return "✓", ""
	case o.State == o.Target && o.State != o.Preferred:
		return "○", "stays " + o.State + " while other objects need that"
	case o.State == "unknown":
		return "○", "to be checked" + why
	}
	return "○", "target " + o.Target + why
}

// plainWait rewrites a reason to wait as plain text.
func plainWait(w string) string {
	if rest, ok := strings.CutPrefix(w, "waits for "); ok {
		if i := strings.LastIndex(rest, " in "); i > 0 {
			return "waits until " + rest[:i] + " is " + rest[i+4:]
		}
	}
	if rest, ok := strings.CutPrefix(w, "held in "); ok {
		if state, who, ok := strings.Cut(rest, " by "); ok {
			return who + " still needs it " + state
		}
	}
	return w
}
