// Package mask hides secrets in text.
package mask

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Mark stands in place of a secret.
const Mark = "[redacted]"

// short is the length in bytes below which a secret is hidden only where it stands alone: "1" is a part of
// too much.
const short = 8

// A Mask hides certain secrets. The zero value and nil hide nothing.
type Mask struct {
	long    *strings.Replacer
	alone   *regexp.Regexp
	longest int
}

// New returns a mask for secrets. It hides each of them as it is, and in the forms in which programs print
// it: its lines, and the value encoded in base64 (also in lines of 76 or 64 characters), for a URL, for a
// shell and in JSON.
func New(secrets ...string) *Mask {
	forms := map[string]bool{}
	for _, s := range secrets {
		for _, f := range formsOf(s) {
			forms[f] = true
		}
	}
	var long, alone []string
	for f := range forms {
		switch {
		case strings.TrimSpace(f) == "":
		case len(f) < short && utf8.ValidString(f): // a pattern has to be UTF-8
			alone = append(alone, regexp.QuoteMeta(f))
		default:
			long = append(long, f)
		}
	}
	m := &Mask{}
	// A longer form is looked for first: it may contain another.
	byLength := func(a, b string) int { return len(b) - len(a) }
	if slices.SortFunc(long, byLength); len(long) > 0 {
		m.longest = len(long[0])
		var pairs []string
		for _, f := range long {
			pairs = append(pairs, f, Mark)
		}
		m.long = strings.NewReplacer(pairs...)
	}
	if slices.SortFunc(alone, byLength); len(alone) > 0 {
		m.alone = regexp.MustCompile(`(^|[^\pL\pN_])(?:` + strings.Join(alone, "|") + `)($|[^\pL\pN_])`)
	}
	return m
}

// formsOf returns the forms of a secret that are hidden.
func formsOf(s string) []string {
	s = strings.TrimRight(s, "\r\n")
	forms := []string{s}
	for line := range strings.Lines(s) {
		if line = strings.TrimRight(line, "\r\n"); len(line) >= short {
			forms = append(forms, line)
		}
	}
	if len(s) < short {
		return forms
	}
	quoted, _ := json.Marshal(s) // a string can be encoded
	var plain bytes.Buffer
	e := json.NewEncoder(&plain)
	e.SetEscapeHTML(false)
	_ = e.Encode(s)
	inner, plainInner := string(quoted[1:len(quoted)-1]), strings.Trim(strings.TrimSpace(plain.String()), `"`)
	forms = append(forms, url.QueryEscape(s), url.PathEscape(s), strings.ReplaceAll(s, "'", `'\''`), strings.ReplaceAll(s, "'", `'"'"'`),
		inner, plainInner)
	encoded := []string{s, inner, plainInner} // a document in JSON may be encoded as a whole
	slices.Sort(encoded)
	for _, s := range slices.Compact(encoded) {
		forms = append(forms, base64Of(s)...)
	}
	return forms
}

// base64Of returns what base64 makes of a text, wherever it begins within what is encoded.
func base64Of(s string) (forms []string) {
	for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 {
			// A text that begins after 0, 1 or 2 other bytes of its group of three. The characters at the ends
			// depend on the text around it.
			text := encoding.EncodeToString(append(make([]byte, before), s...))
			from, to := (before*8+5)/6, (before+len(s))*8/6
			forms = append(forms, text[from:to])
		}
		for _, width := range []int{76, 64} { // of the lines of base64 and of PEM
			for line := range slices.Chunk([]byte(encoding.EncodeToString([]byte(s))), width) {
				if len(line) >= short {
					forms = append(forms, string(line))
				}
			}
		}
	}
	return forms
}

// Longest returns the length in bytes of the longest text that the mask hides, and 1 if it hides only short ones or none. If a text is
// cut in pieces, one byte less than that of the end of a piece may be the beginning of a secret.
func (m *Mask) Longest() int {
	if m == nil {
		return 1
	}
	return max(1, m.longest)
}

// Text returns a text without the secrets.
func (m *Mask) Text(s string) string {
	if m == nil {
		return s
	}
	if m.long != nil {
		s = m.long.Replace(s)
	}
	if m.alone != nil {
		for { // two matches may share a character
			next := m.alone.ReplaceAllString(s, "${1}"+Mark+"${2}")
			if next == s {
				break
			}
			s = next
		}
	}
	return s
}

// JSON returns a JSON value whose strings have none of the secrets. Numbers and keys stay as they are, so
// that the value keeps its shape. Anything else than JSON is returned unchanged.
func (m *Mask) JSON(b []byte) []byte {
	if m == nil || m.long == nil && m.alone == nil {
		return b
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return b
	}
	out, err := json.Marshal(m.value(v))
	if err != nil {
		return b
	}
	return out
}

func (m *Mask) value(v any) any {
	switch v := v.(type) {
	case string:
		return m.Text(v)
	case []any:
		for i := range v {
			v[i] = m.value(v[i])
		}
	case map[string]any:
		for k, x := range v {
			v[k] = m.value(x)
		}
	}
	return v
}
