package sdk

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/coopr/coopr/plugins/sdk/wire"
)

// Settings decodes the plugin's settings from the agent's configuration: parse gets them as JSON, or
// "" if there are none. Main calls it once, before Serve. They arrive as the first line of standard
// input, because a process hands its environment on to others.
func Settings[T any](parse func(text string) (T, error)) (T, error) {
	if os.Getenv(wire.SettingsVar) != wire.SettingsOnInput {
		return parse("")
	}
	text, err := firstLine(os.Stdin)
	if err != nil {
		var none T
		return none, err
	}
	return parse(text)
}

// firstLine reads no byte beyond the line, as Serve waits for the end of the same input.
func firstLine(r io.Reader) (string, error) {
	var line []byte
	for b := []byte{0}; ; {
		n, err := r.Read(b)
		if n == 1 && b[0] == '\n' {
			return string(line), nil
		}
		line = append(line, b[:n]...)
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return "", fmt.Errorf("read the plugin's settings from standard input: %w", err)
		}
	}
}
