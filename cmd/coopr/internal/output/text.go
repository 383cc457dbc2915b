package output

import (
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"
)

// Moment returns a time in Unix milliseconds as text in UTC, or "" for the zero time.
func Moment(ms int64) string {
	if ms == 0 {
		return ""
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02 15:04:05Z")
}

// Span returns a duration in its two largest units.
func Span(d time.Duration) string {
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

// Bytes returns a number of bytes in the largest unit of which there is one.
func Bytes(n int64) string {
	for _, u := range []struct {
		name  string
		bytes int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= u.bytes {
			return strings.TrimSuffix(fmt.Sprintf("%.1f", float64(n)/float64(u.bytes)), ".0") + " " + u.name
		}
	}
	return fmt.Sprintf("%d B", n)
}

// Line returns a text on one line.
func Line(s string) string { return strings.Join(strings.Fields(s), " ") }

// Clip shortens a text to one line of at most width characters.
func Clip(s string, width int) string {
	s = Line(s)
	if utf8.RuneCountInString(s) <= width || width < 2 {
		return s
	}
	r := []rune(s)
	return string(r[:width-1]) + "…"
}

// control matches control characters but ends of lines and tabs. Colours and weights of text are matched as a whole.
var control = regexp.MustCompile(`\x1b\[[0-9;]*m|[\x00-\x08\x0b-\x1f\x7f-\x{9f}]`)

// Printable returns a text without control characters, except for ends of lines, tabs and colours. Names and messages come from agents,
// tasks and plugins: with other characters they could replace what a terminal shows, write to its clipboard or make it answer.
func Printable(text string) string {
	return control.ReplaceAllStringFunc(strings.ToValidUTF8(text, "\uFFFD"), func(found string) string {
		if strings.HasPrefix(found, "\x1b[") {
			return found
		}
		return ""
	})
}

// lineEnds matches the ends of lines, and tabs, with the space around them.
var lineEnds = regexp.MustCompile(`\s*[\n\t]\s*`)

// cell returns a text for a cell of a table: on one line, and without colours.
func cell(text string) string {
	text = control.ReplaceAllString(strings.ToValidUTF8(text, "\uFFFD"), "")
	return lineEnds.ReplaceAllString(strings.Trim(text, "\n\t"), " ")
}

// YesNo returns "yes" or "no".
func YesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
