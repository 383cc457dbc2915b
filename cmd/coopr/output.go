package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
	"golang.org/x/term"
)

// The forms of output.
const (
	asTable = "table"
	asWide  = "wide"
	asJSON  = "json"
	asYAML  = "yaml"
)

// outputFlag gives a command its -o; the first form is the usual one.
func (a *app) outputFlag(cmd *cobra.Command, forms ...string) {
	cmd.Flags().StringP("output", "o", forms[0], "form of the output: "+strings.Join(forms, ", "))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(forms, cobra.ShellCompDirectiveNoFileComp))
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations["forms"] = strings.Join(forms, ",")
}

func (a *app) checkOutput(cmd *cobra.Command) error {
	forms := cmd.Annotations["forms"]
	if forms == "" {
		a.output = asTable
		return nil
	}
	a.output, _ = cmd.Flags().GetString("output")
	if !slices.Contains(strings.Split(forms, ","), a.output) {
		return usage(cmd, "there is no output %q: it must be one of %s", a.output, strings.ReplaceAll(forms, ",", ", "))
	}
	return nil
}

// structured says whether the output is for programs.
func (a *app) structured() bool { return a.output == asJSON || a.output == asYAML }

// print writes a value as JSON or YAML.
func (a *app) print(v any) error { return encode(a.out, a.output, v) }

func encode(w io.Writer, form string, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return err
	}
	if form != asYAML {
		_, err := w.Write(b.Bytes())
		return err
	}
	// JSON is YAML: read as such it keeps the order of its keys.
	var n yaml.Node
	if err := yaml.Unmarshal(b.Bytes(), &n); err != nil {
		return err
	}
	unflow(&n)
	y := yaml.NewEncoder(w)
	y.SetIndent(2)
	if err := y.Encode(&n); err != nil {
		return err
	}
	return y.Close()
}

// unflow takes JSON's style off, and the quotes where YAML needs none.
func unflow(n *yaml.Node) {
	n.Style = 0
	for _, c := range n.Content {
		unflow(c)
	}
}

// table is rows under a head; wide columns show with -o wide only.
type table struct {
	head []string
	wide int // so many columns at the end are wide ones
	rows [][]string
}

func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

// show writes the table; empty cells show as "-". On a terminal that is too narrow the
// widest columns go on below themselves: nothing is lost.
func (a *app) show(t table) {
	a.showTo(a.out, t)
}

func (a *app) showTo(w io.Writer, t table) {
	n := len(t.head)
	if a.output != asWide {
		n -= t.wide
	}
	widths := make([]int, n)
	all := append([][]string{t.head}, t.rows...)
	for _, row := range all {
		for i := range n {
			if row[i] == "" {
				row[i] = "-"
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	if w == a.out && a.outTerminal && a.width != nil {
		narrow(widths, all, a.width())
	}
	for r, row := range all {
		cells := make([][]string, n)
		lines := 1
		for i := range n {
			cells[i] = fold(row[i], widths[i])
			lines = max(lines, len(cells[i]))
		}
		for l := range lines {
			var b strings.Builder
			gap := "" // between columns; not at a line's end
			for i := range n {
				line := ""
				if l < len(cells[i]) {
					line = cells[i][l]
				}
				if line != "" {
					b.WriteString(gap + a.paint(w, cellColour(r, row[i]), line))
					gap = ""
				}
				gap += strings.Repeat(" ", max(widths[i]-utf8.RuneCountInString(line), 0)+2)
			}
			fmt.Fprintln(w, b.String())
		}
	}
}

// narrow makes the widths of columns fit a terminal, as far as columns with words in them can
// be folded. Ids stay whole: people copy them.
func narrow(widths []int, rows [][]string, terminal int) {
	over := 2 * (len(widths) - 1)
	for _, width := range widths {
		over += width
	}
	for over -= terminal; over > 0; {
		widest := -1
		for i, width := range widths {
			words := slices.ContainsFunc(rows, func(row []string) bool { return strings.ContainsAny(row[i], " ") })
			if words && width > leastRoom && (widest < 0 || width > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return
		}
		less := min(over, widths[widest]-leastRoom)
		widths[widest] -= less
		over -= less
	}
}

// cellColour is the colour of a cell in the row of this number; the first is the head.
func cellColour(row int, cell string) colour {
	if row == 0 {
		return bold
	}
	return colourOf(cell)
}

// leastRoom is how narrow a column may be and still be read when it is folded.
const leastRoom = 20

// fold divides a text into lines of at most so many letters, where it can behind a space or a
// comma.
func fold(text string, room int) []string {
	left := []rune(text)
	var out []string
	for len(left) > room {
		cut := room
		for i := room; i > room/2; i-- {
			if left[i-1] == ' ' || left[i-1] == ',' || left[i] == ' ' {
				cut = i
				break
			}
		}
		out = append(out, strings.TrimRight(string(left[:cut]), " "))
		left = []rune(strings.TrimLeft(string(left[cut:]), " "))
	}
	return append(out, string(left))
}

type colour string

const (
	plain  colour = ""
	bold   colour = "1"
	faint  colour = "2"
	red    colour = "31"
	green  colour = "32"
	yellow colour = "33"
	blue   colour = "34"
)

// colourOf knows the words that are worth a colour.
func colourOf(word string) colour {
	switch word {
	case "active", "succeeded", "alive", "healthy", "yes", "COMPLETE":
		return green
	case "failed", "inconsistent", "incomplete", "uncertain", "dead", "ERROR", "DELAYED":
		return red
	case "pending", "running", "paused", "aborting", "rolling-back", "leased", "suspect", "STARTING", "STARTED", "PREPARED", "IN_PROGRESS", "WAITING":
		return yellow
	case "terminated", "cancelled", "aborted", "rolled-back", "left", "blocked", "PENDING":
		return faint
	}
	return plain
}

// paint colours a text, on a terminal that wants colour.
func (a *app) paint(w io.Writer, c colour, text string) string {
	if c == plain || text == "" || a.env("NO_COLOR") != "" || a.env("TERM") == "dumb" {
		return text
	}
	terminal := w == a.out && a.outTerminal
	if f, ok := w.(*os.File); ok && w != a.out {
		terminal = term.IsTerminal(int(f.Fd()))
	}
	if !terminal {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}

// moment gives a time in Unix milliseconds as text.
func moment(ms int64) string {
	if ms == 0 {
		return ""
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02 15:04:05Z")
}

// ago gives how long ago a time in Unix milliseconds was.
func (a *app) ago(ms int64) string {
	if ms == 0 {
		return ""
	}
	return span(a.now().Sub(time.UnixMilli(ms)))
}

// span gives a duration in its two largest units.
func span(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
}

// clip shortens a text to one line of a width.
func clip(s string, width int) string {
	s = strings.Join(strings.Fields(s), " ")
	if utf8.RuneCountInString(s) <= width || width < 2 {
		return s
	}
	r := []rune(s)
	return string(r[:width-1]) + "…"
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
