package model

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"

	"github.com/coopr/coopr/internal/mask"
)

// Redacted is printed in place of every secret.
const Redacted = mask.Mark

// Secret is a text that never prints: every way to format, log or encode it results in
// Redacted. It decodes from JSON and YAML like any text. Only Reveal returns it.
type Secret struct{ text string }

// NewSecret wraps a text as a secret.
func NewSecret(text string) Secret { return Secret{text} }

// Reveal returns the secret itself. Callers pass it to the one place that needs it and keep no
// copy.
func (s Secret) Reveal() string { return s.text }

// IsZero reports whether the secret is empty.
func (s Secret) IsZero() bool { return s.text == "" }

// String returns Redacted.
func (Secret) String() string { return Redacted }

// GoString returns Redacted.
func (Secret) GoString() string { return Redacted }

// Format writes Redacted for every verb and flag.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, Redacted) }

// LogValue returns Redacted for structured logs.
func (Secret) LogValue() slog.Value { return slog.StringValue(Redacted) }

// MarshalJSON writes Redacted.
func (Secret) MarshalJSON() ([]byte, error) { return json.Marshal(Redacted) }

// MarshalText writes Redacted.
func (Secret) MarshalText() ([]byte, error) { return []byte(Redacted), nil }

// UnmarshalJSON reads a text.
func (s *Secret) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, &s.text) }

// UnmarshalText sets the secret to the text b.
func (s *Secret) UnmarshalText(b []byte) error {
	s.text = string(b)
	return nil
}
