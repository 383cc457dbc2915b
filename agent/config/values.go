package config

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
)

const redacted = "<redacted>"

// Secret is a value that prints, logs and encodes as "<redacted>". Only Reveal returns the value.
type Secret struct{ value string }

// NewSecret returns a secret with this value.
func NewSecret(value string) Secret { return Secret{value} }

// Reveal returns the value. The caller must not store it.
func (s Secret) Reveal() string { return s.value }

// IsZero reports whether there is no value. YAML and JSON omit such a secret (omitempty, omitzero).
func (s Secret) IsZero() bool { return s.value == "" }

func (s Secret) String() string {
	if s.IsZero() {
		return ""
	}
	return redacted
}

// GoString prints no more than whether there is a value.
func (s Secret) GoString() string { return s.String() }

// Format prints no more than whether there is a value.
func (s Secret) Format(f fmt.State, _ rune) { io.WriteString(f, s.String()) }

// LogValue logs no more than whether there is a value.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText writes no more than whether there is a value.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalYAML writes no more than whether there is a value.
func (s Secret) MarshalYAML() (any, error) { return s.String(), nil }

// Settings has a plugin's own settings. It prints their names, but not their values.
type Settings map[string]any

func (s Settings) shown() map[string]string {
	out := make(map[string]string, len(s))
	for key := range s {
		out[key] = redacted
	}
	return out
}

func (s Settings) String() string { return fmt.Sprint(s.shown()) }

// GoString prints the names of the settings only.
func (s Settings) GoString() string { return s.String() }

// Format prints the names of the settings only.
func (s Settings) Format(f fmt.State, _ rune) { io.WriteString(f, s.String()) }

// LogValue logs the names of the settings only.
func (s Settings) LogValue() slog.Value { return slog.AnyValue(s.shown()) }

// MarshalJSON writes the names of the settings only.
func (s Settings) MarshalJSON() ([]byte, error) { return json.Marshal(s.shown()) }

// MarshalYAML writes the names of the settings only.
func (s Settings) MarshalYAML() (any, error) { return s.shown(), nil }

// Size is a number of bytes, written as 4096, 64KiB, 16MiB or 1GiB.
type Size int64

var sizeUnits = []struct {
	name  string
	bytes int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

func (s Size) String() string {
	for _, u := range sizeUnits {
		if s != 0 && int64(s)%u.bytes == 0 {
			return fmt.Sprintf("%d%s", int64(s)/u.bytes, u.name)
		}
	}
	return "0B"
}

// MarshalText returns the size in the largest unit in which it is a whole number.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

func parseSize(text string) (Size, error) {
	number, factor := strings.TrimSpace(text), int64(1)
	for _, u := range sizeUnits {
		if rest, ok := strings.CutSuffix(number, u.name); ok {
			number, factor = strings.TrimSpace(rest), u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > (1<<62)/factor {
		return 0, fmt.Errorf("%q is not a size: write it as 4096, 64KiB, 16MiB or 1GiB", text)
	}
	return Size(n * factor), nil
}
