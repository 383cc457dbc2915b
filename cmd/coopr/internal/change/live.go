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

// liveSite shows a site on a terminal as it moves: who relies on whom, what each
// object does or waits for, and what has happened. It ends as watchSite does.
func liveSite(ctx context.Context, app cli.App, c *client.Client, name string, until uint64) error {
	watching, stop := context.WithCancel(ctx)
	looks, events := make(chan siteLook), make(chan model.Event)
	told := make(chan struct{})
	go func() {
		defer close(told)
		filter := client.EventFilter{Types: []string{"object.changed", "site.changed"}}
		_ = c.Events(watching, filter, func(e model.Event) error { // the view does without
			select {
			case events <- e:
			case <-watching.Done():
			}
			return nil
		})
	}()
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		lookAtSite(watching, app, c, name, looks)
	}()
	defer func() {
		stop()
		<-told
		<-looked
	}()
	v := &siteView{out: app.Printer(), name: name}
	for {
		select {
		case <-ctx.Done():
			if cli.Interrupted(ctx) {
				return nil
			}
			return context.Cause(ctx)
		case e := <-events:
			v.hear(e)
		case l := <-looks:
			if l.err != nil {
				return l.err
			}
			v.look = l
		}
		if v.look.graph == nil {
			continue // nothing has been seen yet
		}
		v.draw()
		if s := &v.look.standing; until > 0 && s.Converged && s.Generation >= until {
			return nil
		}
	}
}

// siteLook is a site at one moment, with the dependencies that it had then.
type siteLook struct {
	standing site.Standing
	graph    *site.Graph
	err      error
}

// lookAtSite looks whenever something has changed, until ctx ends or a look fails.
func lookAtSite(ctx context.Context, app cli.App, c *client.Client, name string, looks chan<- siteLook) {
	var l siteLook
	for after := uint64(0); ; after = max(l.standing.Revision, 1) {
		was := l.standing.Overview
		if l.standing, l.err = c.SiteStatus(ctx, name, after); l.err == nil && (l.graph == nil || was.Generation != l.standing.Generation || was.Next != l.standing.Next) {
			l.graph, l.err = c.SiteGraph(ctx, name)
		}
		if ctx.Err() != nil {
			return
		}
		select {
		case looks <- l:
		case <-ctx.Done():
			return
		}
		if l.err != nil || !cli.Pause(ctx, max(app.Pace()/10, 100*time.Millisecond)) {
			return
		}
	}
}

// siteView is what is on the terminal.
type siteView struct {
	out    *output.Printer
	name   string
	look   siteLook
	past   []string // what has happened, the last last
	drawn  bool
	screen func() (width, height int) // for tests; nil: the terminal's
}

// manyPast is how much of what has happened is kept.
const manyPast = 12

// hear takes what has happened, if it is about this site.
func (v *siteView) hear(e model.Event) {
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
		text = object + "  was changed by somebody else: " + e.Message
	default:
		text = object + "  " + e.Status + ": " + e.Message
	}
	v.past = append(v.past, at+"  "+text)
	v.past = v.past[max(0, len(v.past)-manyPast):]
}

func (v *siteView) draw() {
	width, height := 100, 40
	if v.screen != nil {
		width, height = v.screen()
	} else if f, ok := v.out.Stdout.(*os.File); ok {
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
		b.WriteString(line + "\x1b[K\n")
	}
	b.WriteString("\x1b[J")
	v.out.Print(b.String())
}

// The signs before objects, and what they mean.
var siteSigns = []struct {
	sign, meaning string
	c             output.Colour
}{{"✓", "where it should be", output.Green}, {"●", "at work", output.Yellow}, {"○", "waits for others", output.Yellow}, {"✗", "failed, is tried again", output.Red}, {"?", "nobody answers for it", output.Red}}

// lines gives what is to be seen: no more than a screen.
func (v *siteView) lines(width, height int) []string {
	s := &v.look.standing
	paint := func(c output.Colour, text string) string { return v.out.Paint(c, text) }
	said := fmt.Sprintf("%d of %d objects are where they should be", s.Settled, s.Objects)
	if s.Converged {
		said = paint(output.Green, "all "+words.Count(s.Objects, "object")+" are where they should be")
	}
	generation := fmt.Sprintf("generation %d is in force", s.Generation)
	if s.Next != 0 {
		generation = fmt.Sprintf("generation %d is on its way", s.Next)
		if s.Generation != 0 {
			generation += fmt.Sprintf(" after %d", s.Generation)
		}
	}
	out := []string{fmt.Sprintf("Site %s: %s; %s.", v.name, generation, said), ""}
	if len(s.Switching) > 0 {
		out = append(out, output.Clip("Not there yet: "+strings.Join(s.Switching, ", "), width), "")
	}
	items, relies := v.ordered()
	room := max(3, height-len(out)-min(len(v.past), manyPast)-8)
	hidden := 0
	if len(items) > room { // what is at rest can be left out
		hidden = len(items)
		items = slices.DeleteFunc(items, func(o *site.ObjectStatus) bool { return o.Settled })
		items = items[:min(len(items), room-1)]
		hidden -= len(items)
	}
	rows := [][]string{{"OBJECT", "ON", "RELIES ON", "STATE", ""}}
	var signs []string
	for _, o := range items {
		sign, text := v.does(o)
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
	if len(v.past) > 0 {
		out = append(out, "", "What has happened:")
		for _, p := range v.past {
			out = append(out, cut("  "+p, width))
		}
	}
	return out
}

// cut shortens a line to a width; unlike clip it keeps its spaces.
func cut(s string, width int) string {
	if r := []rune(s); len(r) > width && width > 1 {
		return string(r[:width-1]) + "…"
	}
	return s
}

// ordered gives the objects, those before who relies on them, and on whom each
// relies: whom it needs where that should be, to be where it should be itself.
func (v *siteView) ordered() ([]*site.ObjectStatus, map[string][]string) {
	s, g := &v.look.standing, v.look.graph
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
		depth[name] = 0 // a circle ends here; the compiler lets none through
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

// does gives an object's sign and what it is doing, as a sentence without its name.
func (v *siteView) does(o *site.ObjectStatus) (sign, text string) {
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
		return "?", "its agent is away"
	case o.Stuck:
		return "✗", "there is no way to " + o.Target
	case o.Oscillating:
		return "✗", "goes back and forth, and is slowed down"
	case o.Phase == "backoff":
		return "✗", fmt.Sprintf("failed %d×: %s", o.Failures, o.Message)
	case o.Phase == "moving":
		return "●", "on its way"
	case o.Phase == "checking":
		return "●", "is being looked at"
	case o.Removing && o.Settled:
		return "✓", "ready to be removed"
	case o.Removing:
		return "○", "is to be removed" + why
	case o.Settled && o.Drifts > 0:
		return "✓", fmt.Sprintf("repaired %d×", o.Drifts)
	case o.Settled:
		return "✓", ""
	case o.State == o.Target && o.State != o.Preferred:
		return "○", "stays " + o.State + " while others need that"
	case o.State == "unknown":
		return "○", "is to be looked at" + why
	}
	return "○", "is to be " + o.Target + why
}

// plainWait says what is waited for in everyday words.
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
