package output

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

// The forms of output that the flag --output names.
const (
	FormTable = "table"
	FormWide  = "wide"
	FormJSON  = "json"
	FormYAML  = "yaml"
)

// Printer writes the output of one run of the command line. Results go to Stdout; warnings, progress
// and hints go to Stderr, so that the results can be read by a program.
type Printer struct {
	Stdout, Stderr io.Writer
	// Form is one of the forms above. It is set before a command runs.
	Form string
	// Terminal is true if Stdout is a terminal.
	Terminal bool
	// Width returns the width of that terminal in columns.
	Width func() int
	// Env looks up environment variables: NO_COLOR and TERM.
	Env func(string) string
	// Clock returns the present time.
	Clock func() time.Time
}

// Structured reports whether the output is meant for programs.
func (p *Printer) Structured() bool { return p.Form == FormJSON || p.Form == FormYAML }

// Interactive reports whether a person watches the output as it is drawn.
func (p *Printer) Interactive() bool { return p.Terminal && !p.Structured() }

// Encode writes v to Stdout as JSON or YAML.
func (p *Printer) Encode(v any) error { return Encode(p.Stdout, p.Form, v) }

// Result writes v to Stdout as JSON or YAML if that was asked for, and calls text otherwise.
func (p *Printer) Result(v any, text func()) error {
	if p.Structured() {
		return p.Encode(v)
	}
	text()
	return nil
}

// Again separates a new version of a result from the one before it: it clears a terminal, and writes
// a blank line or a document separator elsewhere.
func (p *Printer) Again() {
	switch {
	case p.Form == FormYAML:
		p.Println("---")
	case p.Form == FormJSON:
	case p.Terminal:
		p.Control("\x1b[H\x1b[2J")
	default:
		p.Println()
	}
}

// Print writes to Stdout. Like all methods that write text, it writes what is Printable.
func (p *Printer) Print(a ...any) { p.Fprint(p.Stdout, a...) }

// Println writes a line to Stdout.
func (p *Printer) Println(a ...any) { p.Fprint(p.Stdout, fmt.Sprintln(a...)) }

// Printf writes to Stdout.
func (p *Printer) Printf(format string, a ...any) { p.Fprintf(p.Stdout, format, a...) }

// Fprint writes to one of the printer's writers.
func (p *Printer) Fprint(w io.Writer, a ...any) {
	_, _ = io.WriteString(w, Printable(fmt.Sprint(a...)))
}

// Fprintf writes to one of the printer's writers.
func (p *Printer) Fprintf(w io.Writer, format string, a ...any) {
	p.Fprint(w, fmt.Sprintf(format, a...))
}

// Control writes to Stdout as it is, such as the escape sequences that move the cursor. Text of others in it must be Printable.
func (p *Printer) Control(sequences string) { _, _ = io.WriteString(p.Stdout, sequences) }

// Copy writes the output of programs to Stdout until its end, and returns how many bytes of it were read. A terminal gets what is
// Printable; a file or a program gets all.
func (p *Printer) Copy(r io.Reader) (n int64, err error) {
	if !p.Terminal {
		return io.Copy(p.Stdout, r)
	}
	for in := bufio.NewReader(r); ; {
		line, err := in.ReadString('\n')
		n += int64(len(line))
		if e := p.Output(p.Stdout, line); e != nil {
			return n, e
		}
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

// Output writes output of a program to one of the printer's writers. A terminal gets what is Printable; a file or a program gets all.
func (p *Printer) Output(w io.Writer, text string) error {
	if p.terminal(w) {
		text = Printable(text)
	}
	_, err := io.WriteString(w, text)
	return err
}

// terminal reports whether one of the printer's writers is a terminal.
func (p *Printer) terminal(w io.Writer) bool {
	if w == p.Stdout {
		return p.Terminal
	}
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Field writes "Name:  value" to Stdout, or nothing if the value is empty.
func (p *Printer) Field(name, value string) {
	if value != "" {
		p.Printf("%-12s %s\n", name+":", value)
	}
}

// Noteln writes a line to Stderr.
func (p *Printer) Noteln(a ...any) { p.Fprint(p.Stderr, fmt.Sprintln(a...)) }

// Notef writes to Stderr.
func (p *Printer) Notef(format string, a ...any) { p.Fprintf(p.Stderr, format, a...) }

// Warn writes a warning to Stderr.
func (p *Printer) Warn(what any) { p.label(Yellow, "warning:", what) }

// LeftOut writes to Stderr that an item was left out, and why.
func (p *Printer) LeftOut(what any) { p.label(Red, "left out:", what) }

// Error writes an error to Stderr.
func (p *Printer) Error(what any) { p.label(Red, "error:", what) }

func (p *Printer) label(c Colour, label string, what any) {
	p.Notef("%s %s\n", p.PaintTo(p.Stderr, c, label), what)
}

// Ago returns how long ago a time in Unix milliseconds was, or "" for the zero time.
func (p *Printer) Ago(ms int64) string {
	if ms == 0 {
		return ""
	}
	return Span(p.Clock().Sub(time.UnixMilli(ms)))
}

// Paint colours a text for Stdout.
func (p *Printer) Paint(c Colour, text string) string { return p.PaintTo(p.Stdout, c, text) }

// Status colours a status for Stdout, by what it means.
func (p *Printer) Status(word string) string { return p.Paint(ColourOf(word), word) }

// PaintTo colours a text for one of the printer's writers. The text stays plain unless the writer is a
// terminal that shows colours.
func (p *Printer) PaintTo(w io.Writer, c Colour, text string) string {
	if c == Plain || text == "" || p.Env("NO_COLOR") != "" || p.Env("TERM") == "dumb" {
		return text
	}
	if !p.terminal(w) {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}
