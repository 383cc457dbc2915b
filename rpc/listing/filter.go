package listing

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// The bounds of a filter.
const (
	mostTerms  = 50
	mostValues = 200
)

// The operators.
const (
	equals byte = iota
	differs
	contains
)

// A term is a condition on one field.
type term struct {
	field  *field
	op     byte
	values []string // in lower case for contains
}

// parseFilter parses terms that are separated by commas.
func parseFilter(t reflect.Type, s string) ([]term, error) {
	var out []term
	for first := true; first || s != ""; first = false {
		at, op, width := operator(s)
		if at < 0 {
			return nil, fmt.Errorf("%q is no term: write field=value, field!=value or field~value", strings.TrimSpace(s))
		}
		f, err := fieldOf(t, strings.TrimSpace(s[:at]))
		if err != nil {
			return nil, err
		}
		if f.object {
			return nil, fmt.Errorf("%s is an object: name one of its fields, such as %s.NAME", f.name, f.name)
		}
		x := term{field: f, op: op}
		x.values, s, err = parseValues(s[at+width:])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		for i, v := range x.values {
			if op != contains {
				continue
			}
			if v == "" {
				return nil, fmt.Errorf("%s~: the text that it is to contain is missing", f.name)
			}
			x.values[i] = strings.ToLower(v)
		}
		out = append(out, x)
	}
	return out, nil
}

// operator finds the first operator of a term. at is -1 if there is none before the term's end.
func operator(s string) (at int, op byte, width int) {
	for i, r := range s {
		switch {
		case r == ',':
			return -1, 0, 0
		case r == '=':
			return i, equals, 1
		case r == '~':
			return i, contains, 1
		case r == '≠':
			return i, differs, len("≠")
		case r == '!' && strings.HasPrefix(s[i:], "!="):
			return i, differs, 2
		}
	}
	return -1, 0, 0
}

// parseValues parses values that are separated by | and end with a comma or with the text. rest is what follows.
func parseValues(s string) (values []string, rest string, err error) {
	for {
		s = strings.TrimLeft(s, " ")
		var v string
		if strings.HasPrefix(s, `"`) {
			end := closing(s)
			if end < 0 {
				return nil, "", errors.New("a quote is not closed")
			}
			if json.Unmarshal([]byte(s[:end]), &v) != nil {
				return nil, "", fmt.Errorf("%s is no JSON string", s[:end])
			}
			if s = strings.TrimLeft(s[end:], " "); s != "" && s[0] != ',' && s[0] != '|' {
				return nil, "", errors.New("behind a quoted value, a comma or | must follow")
			}
		} else {
			end := strings.IndexAny(s, ",|")
			if end < 0 {
				end = len(s)
			}
			v, s = strings.TrimRight(s[:end], " "), s[end:]
			if strings.Contains(v, `"`) {
				return nil, "", errors.New("a value with a quote must be a JSON string")
			}
		}
		if values = append(values, v); len(values) > mostValues {
			return nil, "", fmt.Errorf("more than %d values", mostValues)
		}
		switch {
		case s == "":
			return values, "", nil
		case s[0] == ',':
			if s = s[1:]; strings.TrimSpace(s) == "" {
				return nil, "", errors.New("behind the last comma, a term is missing")
			}
			return values, s, nil
		}
		s = s[1:]
	}
}

// closing returns the place behind the string that a text begins with, or -1.
func closing(s string) int {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return -1
}

func (x *term) matches(row reflect.Value) bool {
	found, some := false, false
	x.field.each(row, func(v value) bool {
		some = true
		found = x.has(v)
		return !found
	})
	if !some {
		found = x.has(value{})
	}
	return found != (x.op == differs)
}

func (x *term) has(v value) bool {
	s := v.String()
	for _, want := range x.values {
		if x.op == contains && ContainsFold(s, want) || x.op != contains && s == want {
			return true
		}
	}
	return false
}
