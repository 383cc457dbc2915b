// Termsvg turns what a terminal was sent into a picture of it: text with
// escape sequences in, SVG out. It makes docs/demo.svg from a recorded run:
//
//	script -qec 'make demo' demo.term
//	go run ./termsvg -title 'make demo' <demo.term >../docs/demo.svg
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	title := flag.String("title", "", "text of the window's title bar")
	columns := flag.Int("columns", 100, "width of the terminal, in characters")
	flag.Parse()
	if err := run(os.Stdin, os.Stdout, *title, *columns); err != nil {
		fmt.Fprintln(os.Stderr, "termsvg:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer, title string, columns int) error {
	if columns < 1 {
		return fmt.Errorf("columns: want 1 or more, got %d", columns)
	}
	b, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	s := newScreen(columns)
	s.write(string(b))
	_, err = out.Write(draw(s.lines, columns, title))
	return err
}
