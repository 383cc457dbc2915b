package terminal

import (
	"errors"
	"io"
	"strings"
	"testing"
)

func TestReadLine(t *testing.T) {
	for _, x := range []struct {
		keys, line, rest string
		err              error
	}{
		{"secret\rmore", "secret", "more", nil},
		{"sef\x7fcreté\x08\n", "secret", "", nil},
		{"\x7f\x7fno\x15yes\r", "yes", "", nil},
		{"sec\x03ret\r", "", "ret\r", ErrInterrupted},
		{"\x04", "", "", io.EOF},
		{"all\x04\r", "all", "\r", nil},
		{"cut", "cut", "", io.EOF},
	} {
		in := strings.NewReader(x.keys)
		line, err := readLine(in)
		rest, _ := io.ReadAll(in)
		if string(line) != x.line || string(rest) != x.rest || !errors.Is(err, x.err) {
			t.Errorf("%q: %q, %v, and then %q", x.keys, line, err, rest)
		}
	}
}
