package sdk

import (
	"errors"
	"io"
	"strings"
	"testing"
)

// TestFirstLine checks that reading the settings leaves the rest of the input, and that settings that
// are cut off are an error.
func TestFirstLine(t *testing.T) {
	in := strings.NewReader("{\"a\":1}\nrest")
	line, err := firstLine(in)
	if rest, _ := io.ReadAll(in); err != nil || line != `{"a":1}` || string(rest) != "rest" {
		t.Errorf("%q, %q left, %v", line, rest, err)
	}
	if _, err := firstLine(strings.NewReader(`{"a"`)); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("half a line: %v", err)
	}
}
