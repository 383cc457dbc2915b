// Package terminal asks a person for secrets on a terminal.
package terminal

import (
	"context"
	"errors"
	"io"
	"os"
	"unicode/utf8"

	"golang.org/x/term"
)

// ErrInterrupted is returned when the person pressed Ctrl-C in place of an answer.
var ErrInterrupted = errors.New("interrupted")

// The keys that end or change a line, since the terminal itself does nothing for them.
const (
	interrupt = 3 // Ctrl-C
	end       = 4 // Ctrl-D
	backspace = 8
	discard   = 21 // Ctrl-U
	remove    = 127
)

// Ask writes a question and reads a line from a terminal, which does not show it. It returns ErrInterrupted at Ctrl-C, io.EOF at
// Ctrl-D in an empty line, and the cause of ctx if that ends first: then the read is left alone, and ends with the process. The
// terminal is as it was before in each case.
func Ask(ctx context.Context, in *os.File, out io.Writer, question string) (line []byte, err error) {
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, term.Restore(int(in.Fd()), before)) }()
	if _, err := io.WriteString(out, question); err != nil {
		return nil, err
	}
	type answer struct {
		line []byte
		err  error
	}
	typed := make(chan answer, 1)
	go func() {
		line, err := readLine(in)
		typed <- answer{line, err}
	}()
	select {
	case a := <-typed:
		return a.line, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// readLine reads the keys of a line, and none behind it.
func readLine(in io.Reader) (line []byte, err error) {
	for b := make([]byte, 1); ; {
		n, err := in.Read(b)
		if n == 0 {
			if err != nil {
				return line, err
			}
			continue
		}
		switch b[0] {
		case '\r', '\n':
			return line, nil
		case interrupt:
			return nil, ErrInterrupted
		case end:
			if len(line) == 0 {
				return nil, io.EOF
			}
			return line, nil
		case backspace, remove:
			_, size := utf8.DecodeLastRune(line)
			line = line[:len(line)-size]
		case discard:
			line = line[:0]
		default:
			line = append(line, b[0])
		}
	}
}
