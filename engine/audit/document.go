package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
)

// MaxValue is the length of JSON beyond which a value is replaced by its length and its
// SHA-256. The value itself can be read where it is stored (a version of a definition, a
// snapshot).
const MaxValue = 2 << 10

// Canonical returns JSON in the form in which it is hashed: without spaces, and with sorted
// keys.
func Canonical(text []byte) (json.RawMessage, error) {
	v, err := decodeJSON(text)
	if err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

func decodeJSON(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if d.More() {
		return nil, fmt.Errorf("unexpected data after the JSON value")
	}
	return v, nil
}

// Document is a value as JSON, in two forms: complete, for comparing, and without secrets, for
// showing. The zero Document is a missing value.
type Document struct {
	whole, shown map[string]any
}

// NewDocument returns the document of a value that encodes as a JSON object. The function show
// returns a copy of that object without secrets.
func NewDocument(v any, show func(map[string]any) map[string]any) (Document, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return Document{}, err
	}
	tree, err := decodeJSON(text)
	if err != nil {
		return Document{}, err
	}
	m, ok := tree.(map[string]any)
	if !ok {
		return Document{}, fmt.Errorf("a %T is not a JSON object", v)
	}
	return Document{whole: m, shown: show(m)}, nil
}

// IsZero reports whether the value is missing.
func (d Document) IsZero() bool { return d.whole == nil }

// Diff returns the differences between two documents in canonical form: nil for a missing
// document, and twice nil if nothing differs. A difference in the field "version" alone does
// not count, because that field counts writes.
func Diff(before, after Document) (was, is json.RawMessage) {
	switch {
	case before.whole == nil && after.whole == nil:
		return nil, nil
	case before.whole == nil:
		return nil, text(after.shown)
	case after.whole == nil:
		return text(before.shown), nil
	}
	b, a := differ(before.whole, after.whole, before.shown, after.shown)
	delete(b, "version")
	delete(a, "version")
	if len(b) == 0 && len(a) == 0 {
		return nil, nil
	}
	return text(b), text(a)
}

func differ(b, a, showB, showA map[string]any) (was, is map[string]any) {
	was, is = map[string]any{}, map[string]any{}
	for k, old := range b {
		now, kept := a[k]
		if kept && reflect.DeepEqual(old, now) {
			continue
		}
		ob, ok1 := old.(map[string]any)
		oa, ok2 := now.(map[string]any)
		sb, ok3 := showB[k].(map[string]any)
		sa, ok4 := showA[k].(map[string]any)
		if ok1 && ok2 && ok3 && ok4 {
			was[k], is[k] = differ(ob, oa, sb, sa)
			continue
		}
		was[k] = showB[k]
		if kept {
			is[k] = showA[k]
		}
	}
	for k := range a {
		if _, had := b[k]; !had {
			is[k] = showA[k]
		}
	}
	return was, is
}

// text encodes an object, with large values replaced by their length and hash.
func text(m map[string]any) json.RawMessage {
	out := make(map[string]any, len(m))
	for k, v := range m {
		out[k] = v
		if b, err := json.Marshal(v); err == nil && len(b) > MaxValue {
			sum := sha256.Sum256(b)
			out[k] = map[string]any{"bytes": len(b), "sha256": hex.EncodeToString(sum[:])}
		}
	}
	b, _ := json.Marshal(out) // it was decoded from JSON
	return b
}
