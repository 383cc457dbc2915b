package listing

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/coopr/coopr/internal/words"
)

// TextField is the name of the only field of rows that are plain texts.
const TextField = "name"

// A field is a path from a row to values, named as the row's JSON names it.
type field struct {
	name  string
	steps []step
	// many is set if the field may have several values.
	many bool
	// object is set if the field is an object, and so has no value of its own.
	object bool
	// own is set if the values decide about their JSON themselves.
	own bool
}

// A step leads from a value to a part of it.
type step struct {
	index []int  // of a field of a struct
	key   string // of a map, if index is nil
	// free is set if the value has any form, as the results of plugins have. The key is the rest of the path.
	free bool
}

var (
	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

// marshals reports whether a type decides about its JSON itself.
func marshals(t reflect.Type) bool {
	for _, x := range []reflect.Type{t, reflect.PointerTo(t)} {
		if x.Implements(jsonMarshaler) || x.Implements(textMarshaler) {
			return true
		}
	}
	return false
}

// fieldOf returns the field of a row's type that a path names.
func fieldOf(t reflect.Type, path string) (*field, error) {
	f := &field{name: path}
	if t.Kind() == reflect.String {
		if path != TextField {
			return nil, fmt.Errorf("unknown field %q: the only one is %s", path, TextField)
		}
		return f, nil
	}
	if path == "" {
		return nil, fmt.Errorf("a field lacks its name")
	}
	rest := path
	for {
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if marshals(t) {
			if rest != "" {
				return nil, fmt.Errorf("unknown field %q: %s has no fields", path, strings.TrimSuffix(path, "."+rest))
			}
			f.own = true
			return f, nil
		}
		switch t.Kind() {
		case reflect.Slice, reflect.Array:
			f.many = true
			t = t.Elem()
			continue
		case reflect.Interface:
			f.many = true
			f.steps = append(f.steps, step{key: rest, free: true})
			return f, nil
		}
		if rest == "" {
			f.object = t.Kind() == reflect.Struct || t.Kind() == reflect.Map
			return f, nil
		}
		switch t.Kind() {
		case reflect.Struct:
			name, after, _ := strings.Cut(rest, ".")
			fields := fieldsOf(t)
			index, ok := fields[name]
			if !ok {
				return nil, fmt.Errorf("unknown field %q%s", path, words.DidYouMeanOrOneOf(name, names(fields)))
			}
			f.steps = append(f.steps, step{index: index})
			t, rest = t.FieldByIndex(index).Type, after
		case reflect.Map:
			key, after := rest, ""
			if t.Elem().Kind() == reflect.Interface {
				f.many = true
				f.steps = append(f.steps, step{key: rest, free: true})
				return f, nil
			}
			if k := t.Elem().Kind(); k == reflect.Struct || k == reflect.Pointer || k == reflect.Map {
				key, after, _ = strings.Cut(rest, ".")
			}
			f.steps = append(f.steps, step{key: key})
			t, rest = t.Elem(), after
		default:
			return nil, fmt.Errorf("unknown field %q: %s has no fields", path, strings.TrimSuffix(path, "."+rest))
		}
	}
}

// fieldsOf returns the fields of a struct by their names in JSON.
func fieldsOf(t reflect.Type) map[string][]int {
	out := map[string][]int{}
	var embedded []reflect.StructField
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		switch {
		case name == "-":
		case f.Anonymous && name == "" && inner.Kind() == reflect.Struct:
			embedded = append(embedded, f)
		case f.IsExported():
			if name == "" {
				name = f.Name
			}
			out[name] = f.Index
		}
	}
	for _, f := range embedded {
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		for name, index := range fieldsOf(inner) {
			if _, ok := out[name]; !ok {
				out[name] = slices.Concat(f.Index, index)
			}
		}
	}
	return out
}

func names(fields map[string][]int) []string {
	out := make([]string, 0, len(fields))
	for name := range fields {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// each calls fn for each value of the field of a row, until fn returns false. A field that is absent has no value.
func (f *field) each(row reflect.Value, fn func(value) bool) { visit(row, f.steps, f.own, fn) }

// first returns the first value of the field of a row.
func (f *field) first(row reflect.Value) value {
	var out value
	f.each(row, func(v value) bool {
		out = v
		return false
	})
	return out
}

// visit calls fn for the values behind steps. own is set if they may decide about their JSON themselves.
func visit(v reflect.Value, steps []step, own bool, fn func(value) bool) bool {
	for {
		for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface && len(steps) == 0 {
			if v.IsNil() {
				return true
			}
			v = v.Elem()
		}
		if len(steps) > 0 && steps[0].free {
			if v.Kind() == reflect.Interface && v.IsNil() {
				return true
			}
			return free(v.Interface(), steps[0].key, fn)
		}
		if (v.Kind() == reflect.Slice || v.Kind() == reflect.Array) && !(own && marshals(v.Type())) {
			for i := range v.Len() {
				if !visit(v.Index(i), steps, own, fn) {
					return false
				}
			}
			return true
		}
		if len(steps) == 0 {
			return scalar(v, own, fn)
		}
		s := steps[0]
		steps = steps[1:]
		if s.index == nil {
			if v = v.MapIndex(reflect.ValueOf(s.key).Convert(v.Type().Key())); !v.IsValid() {
				return true
			}
			continue
		}
		for i, at := range s.index {
			if i > 0 && v.Kind() == reflect.Pointer {
				if v.IsNil() {
					return true
				}
				v = v.Elem()
			}
			v = v.Field(at)
		}
	}
}

// scalar calls fn for a value without parts. A type that decides about its JSON is what its JSON says.
func scalar(v reflect.Value, own bool, fn func(value) bool) bool {
	switch {
	case own && marshals(v.Type()):
		if t, ok := v.Interface().(encoding.TextMarshaler); ok && !v.Type().Implements(jsonMarshaler) {
			b, err := t.MarshalText()
			return err != nil || fn(textOf(string(b)))
		}
		data, err := json.Marshal(v.Interface())
		if err != nil {
			return true
		}
		var x any
		if json.Unmarshal(data, &x) != nil {
			return true
		}
		return free(x, "", fn)
	case v.Kind() == reflect.String:
		return fn(textOf(v.String()))
	case v.Kind() == reflect.Bool:
		return fn(textOf(strconv.FormatBool(v.Bool())))
	case v.CanInt():
		return fn(value{kind: number, num: float64(v.Int()), whole: v.Int()})
	case v.CanUint():
		return fn(value{kind: number, num: float64(v.Uint()), whole: int64(min(v.Uint(), 1<<63-1))})
	case v.CanFloat():
		return fn(numberOf(v.Float()))
	}
	return true
}

// free calls fn for the values behind a path in something of any form.
func free(x any, path string, fn func(value) bool) bool {
	switch x := x.(type) {
	case []any:
		for _, one := range x {
			if !free(one, path, fn) {
				return false
			}
		}
		return true
	case map[string]any:
		if whole, ok := x[path]; ok {
			return free(whole, "", fn)
		}
		name, after, _ := strings.Cut(path, ".")
		if part, ok := x[name]; ok && after != "" {
			return free(part, after, fn)
		}
		return true
	case nil:
		return true
	}
	if path != "" {
		return true
	}
	switch x := x.(type) {
	case string:
		return fn(textOf(x))
	case bool:
		return fn(textOf(strconv.FormatBool(x)))
	case float64:
		return fn(numberOf(x))
	case json.Number:
		n, err := x.Float64()
		if err != nil {
			return fn(textOf(x.String()))
		}
		return fn(numberOf(n))
	}
	v := reflect.ValueOf(x)
	switch v.Kind() {
	case reflect.Map, reflect.Struct, reflect.Func, reflect.Chan:
		return true
	}
	return visit(v, nil, true, fn)
}
