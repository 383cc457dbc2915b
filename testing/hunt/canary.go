// Package hunt searches for secrets in places where they must not be: files, answers, processes.
package hunt

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// Canary is a secret that a test has planted in one place.
type Canary struct {
	// Kind says what kind of secret it is, such as "password of a provider". Each canary of a hunt has another.
	Kind string
	// Value is the secret, of at least 8 bytes.
	Value string
}

// Plant returns a canary of random letters, with characters in the middle that URLs, shells and JSON escape.
func Plant(kind string) Canary { return Canary{kind, rand.Text() + ` '"\&/<+%é$ ` + rand.Text()} }

// Word returns a canary of random letters and digits only, for places that take nothing else.
func Word(kind string) Canary { return Canary{kind, rand.Text()} }

// The lengths in bytes of texts that are looked for. A run is cut in two halves from twice the length of a piece on.
const (
	shortest = 8
	piece    = 12
)

// parts returns what is looked for of a value: the whole, and the pieces that escaping, line breaks and limits of length leave whole.
// So a value is also found if half of it is missing, or if it was escaped in a way that nobody has thought of.
func parts(value string) []string {
	out := []string{value}
	for run := range strings.FieldsFuncSeq(value, func(r rune) bool {
		return !(r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || r == '_' || r == '-')
	}) {
		switch {
		case len(run) >= 2*piece:
			out = append(out, run[:len(run)/2], run[len(run)/2:])
		case len(run) >= piece && run != value:
			out = append(out, run)
		}
	}
	return out
}

// form is a text that stands for a part of a secret.
type form struct{ name, text string }

// forms returns a text as programs write it.
func forms(s string) []form {
	quoted, _ := json.Marshal(s) // a text can be encoded
	var plain bytes.Buffer
	e := json.NewEncoder(&plain)
	e.SetEscapeHTML(false)
	_ = e.Encode(s)
	inner := func(quoted string) string {
		return strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(quoted), `"`), `"`)
	}
	var backslashes strings.Builder
	for _, r := range s {
		if !strings.ContainsRune("%+,-./:=@_", r) && r < 0x80 && !('0' <= r && r <= '9' || 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z') {
			backslashes.WriteByte('\\')
		}
		backslashes.WriteRune(r)
	}
	out := []form{
		{"as it is", s},
		{"for a URL", url.QueryEscape(s)}, {"for a URL", url.PathEscape(s)},
		{"for a URL", lowerEscapes(url.QueryEscape(s))}, {"for a URL", lowerEscapes(url.PathEscape(s))},
		{"for a shell", strings.ReplaceAll(s, "'", `'\''`)}, {"for a shell", strings.ReplaceAll(s, "'", `'"'"'`)},
		{"for a shell", backslashes.String()},
		{"in JSON", inner(string(quoted))}, {"in JSON", inner(plain.String())}, {"in JSON", inner(strconv.QuoteToASCII(s))},
		{"in hexadecimal", hex.EncodeToString([]byte(s))}, {"in hexadecimal", strings.ToUpper(hex.EncodeToString([]byte(s)))},
	}
	for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 {
			// The text begins after 0, 1 or 2 other bytes of its group of three. Characters that depend on the text around it are left out.
			text := encoding.EncodeToString(append(make([]byte, before), s...))
			out = append(out, form{fmt.Sprintf("in base64 after %d bytes", before), text[(before*8+5)/6 : (before+len(s))*8/6]})
		}
	}
	return out
}

// lowerEscapes returns an escaped text with small letters in its escapes.
func lowerEscapes(s string) string {
	out := []byte(s)
	for i := 0; i+2 < len(out); i++ {
		if out[i] == '%' {
			copy(out[i+1:i+3], bytes.ToLower(out[i+1:i+3]))
		}
	}
	return string(out)
}
