package listing

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
)

// Encode writes rows as a JSON array, with only these fields of each unless there are none.
func Encode[T any](w io.Writer, rows []T, fields []string) error {
	if rows == nil {
		rows = []T{}
	}
	if len(fields) == 0 {
		return encoder(w).Encode(rows)
	}
	var b bytes.Buffer
	if err := encoder(&b).Encode(rows); err != nil {
		return err
	}
	var all []any
	dec := json.NewDecoder(&b)
	dec.UseNumber()
	if err := dec.Decode(&all); err != nil {
		return err
	}
	for i, row := range all {
		if _, ok := row.(map[string]any); !ok {
			continue // a plain text
		}
		out := map[string]any{}
		for _, f := range fields {
			pick(row, out, f)
		}
		all[i] = out
	}
	return encoder(w).Encode(all)
}

func encoder(w io.Writer) *json.Encoder {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc
}

// pick copies what a path leads to from one object to another. It keeps the objects on the way.
func pick(from any, to map[string]any, path string) {
	obj, ok := from.(map[string]any)
	if !ok {
		return
	}
	if v, ok := obj[path]; ok {
		to[path] = v
		return
	}
	name, rest, ok := strings.Cut(path, ".")
	if !ok {
		return
	}
	switch v := obj[name].(type) {
	case map[string]any:
		inner, ok := to[name].(map[string]any)
		if !ok {
			if to[name] != nil {
				return // the whole is there
			}
			inner = map[string]any{}
			to[name] = inner
		}
		pick(v, inner, rest)
	case []any:
		list, ok := to[name].([]any)
		if !ok {
			list = make([]any, len(v))
			for i := range list {
				list[i] = map[string]any{}
			}
			to[name] = list
		}
		for i, one := range v {
			if inner, ok := list[i].(map[string]any); ok {
				pick(one, inner, rest)
			}
		}
	}
}
