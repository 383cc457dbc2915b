package main

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// tour prints the steps of the demo, for a reader who has never seen Coopr.
type tour struct {
	out    io.Writer
	colour bool
	step   int
}

// newTour returns a tour on stdout, in colour only on a terminal.
func newTour() *tour {
	info, err := os.Stdout.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0
	return &tour{out: os.Stdout, colour: terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

func (t *tour) paint(code, s string) string {
	if !t.colour {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// chapter begins the next step.
func (t *tour) chapter(title string) {
	t.step++
	fmt.Fprintf(t.out, "\n%s %s\n", t.paint("36;1", fmt.Sprintf("%d.", t.step)), t.paint("1", title))
}

// say prints a paragraph.
func (t *tour) say(format string, a ...any) {
	fmt.Fprintf(t.out, "%s\n", fmt.Sprintf(format, a...))
}

// commands prints commands as the reader would type them.
func (t *tour) commands(lines ...string) {
	fmt.Fprintln(t.out)
	for _, line := range lines {
		fmt.Fprintln(t.out, t.paint("32", "$ "+line))
	}
}

// quote prints the output of a program.
func (t *tour) quote(text string) {
	for line := range strings.Lines(strings.TrimRight(text, "\n")) {
		fmt.Fprintf(t.out, "%s %s\n", t.paint("2", "│"), strings.TrimRight(line, "\n"))
	}
}
