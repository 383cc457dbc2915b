package model

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
)

// SecretReference matches a reference to a secret in a text of a document, ${secure(NAME)}. Nothing else is expanded.
var SecretReference = regexp.MustCompile(`\$\{secure\(([^(){}]*)\)\}`)

// Hidden is a value of a document that is to be encrypted before it is stored. It prints and encodes as Redacted, so that it is not stored
// in the clear by mistake.
type Hidden struct{ Value any }

// Format writes Redacted for every verb and flag.
func (Hidden) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, Redacted) }

// MarshalJSON writes Redacted.
func (Hidden) MarshalJSON() ([]byte, error) { return json.Marshal(Redacted) }

// HasHidden reports whether a value is Hidden, or has one within it.
func HasHidden(v any) (found bool) {
	_, _ = MapValues(v, func(v any) (any, error) {
		_, hidden := v.(Hidden)
		found = found || hidden
		return v, nil
	})
	return found
}

// MapValues returns a copy of a value of a document in which fn replaces whatever is neither an object nor a list. Objects and lists are
// walked through, objects in any order.
func MapValues(v any, fn func(v any) (any, error)) (any, error) {
	switch v := v.(type) {
	case map[string]any:
		return MapFields(v, fn)
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			var err error
			if out[i], err = MapValues(item, fn); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	return fn(v)
}

// MapFields is MapValues for the fields of an object. A nil map stays nil. Errors have the names of the fields before them.
func MapFields(fields map[string]any, fn func(v any) (any, error)) (map[string]any, error) {
	if fields == nil {
		return nil, nil
	}
	out := make(map[string]any, len(fields))
	for name, item := range fields {
		var err error
		if out[name], err = MapValues(item, fn); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return out, nil
}
