package logformat

import (
	"encoding/json"
	"fmt"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/rpc/proto/record"
)

// encoder holds the first error of a conversion to messages.
type encoder struct{ err error }

func encode[T, M any](x *T, fn func(*encoder, T) M) (M, error) {
	e := &encoder{}
	m := fn(e, *x)
	return m, e.err
}

func (e *encoder) json(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil && e.err == nil {
		e.err = fmt.Errorf("encode %T: %w", v, err)
	}
	return b
}

// optional returns v as JSON if given is true, else nil.
func (e *encoder) optional(given bool, v any) []byte {
	if !given {
		return nil
	}
	return e.json(v)
}

func (e *encoder) definitions(in map[string]model.Service) *record.Definitions {
	if in == nil {
		return nil
	}
	return &record.Definitions{ByName: table(in, func(s model.Service) []byte { return e.json(s) })}
}

// decoder holds the first error of a conversion from messages.
type decoder struct{ err error }

func decode[M, T any](m *M, fn func(*decoder, *M) T) (*T, error) {
	d := &decoder{}
	if m == nil {
		return nil, fmt.Errorf("the entry lacks its %T", m)
	}
	x := fn(d, m)
	if d.err != nil {
		return nil, d.err
	}
	return &x, nil
}

// document decodes JSON. An empty input is the zero value.
func document[T any](d *decoder, b []byte) T {
	var v T
	if len(b) > 0 {
		if err := json.Unmarshal(b, &v); err != nil && d.err == nil {
			d.err = fmt.Errorf("decode %T: %w", v, err)
		}
	}
	return v
}

func (d *decoder) definitions(m *record.Definitions) map[string]model.Service {
	if m == nil {
		return nil
	}
	out := make(map[string]model.Service, len(m.ByName))
	for name, b := range m.ByName {
		out[name] = document[model.Service](d, b)
	}
	return out
}

// list converts every element; an empty list becomes nil.
func list[A, B any](in []A, fn func(A) B) []B {
	if len(in) == 0 {
		return nil
	}
	return listed(in, fn)
}

// listed converts every element; the result is never nil.
func listed[A, B any](in []A, fn func(A) B) []B {
	out := make([]B, len(in))
	for i, x := range in {
		out[i] = fn(x)
	}
	return out
}

// table converts every value of a map; an empty map becomes nil.
func table[A, B any](in map[string]A, fn func(A) B) map[string]B {
	if len(in) == 0 {
		return nil
	}
	out := make(map[string]B, len(in))
	for k, x := range in {
		out[k] = fn(x)
	}
	return out
}

func names(in []string) *record.Names {
	if in == nil {
		return nil
	}
	return &record.Names{Names: in}
}

func namesOf(m *record.Names) []string {
	if m == nil {
		return nil
	}
	return present(m.Names)
}

// present returns the list, or an empty list for nil.
func present[T any](in []T) []T {
	if in == nil {
		return []T{}
	}
	return in
}

// presentMap returns the map, or an empty map for nil.
func presentMap[V any](in map[string]V) map[string]V {
	if in == nil {
		return map[string]V{}
	}
	return in
}

type integer interface{ ~int | ~int32 | ~int64 }

func numbers[B, A integer](in []A) []B {
	return list(in, func(n A) B { return B(n) })
}

func numbered[B, A integer](in []A) []B {
	return listed(in, func(n A) B { return B(n) })
}

// optional converts the value that a pointer points to. nil stays nil.
func optional[A, B any](in *A, fn func(A) *B) *B {
	if in == nil {
		return nil
	}
	return fn(*in)
}

// pointer converts a message and returns a pointer to the result. nil stays nil.
func pointer[A, B any](in *A, fn func(*A) B) *B {
	if in == nil {
		return nil
	}
	out := fn(in)
	return &out
}

func wide(in *int) *int64 {
	if in == nil {
		return nil
	}
	out := int64(*in)
	return &out
}

func narrow(in *int64) *int {
	if in == nil {
		return nil
	}
	out := int(*in)
	return &out
}

func clone[T any](in *T) *T {
	if in == nil {
		return nil
	}
	out := *in
	return &out
}

// EncodeLevels returns the message of a run's levels of properties.
func EncodeLevels(l profile.Levels) *record.Levels {
	return &record.Levels{Levels: list(l[:], func(p map[string]string) *record.Properties { return &record.Properties{Properties: p} })}
}

// DecodeLevels is the inverse of EncodeLevels. Missing levels are empty.
func DecodeLevels(m *record.Levels) profile.Levels {
	var out profile.Levels
	for i, p := range m.GetLevels()[:min(len(m.GetLevels()), len(out))] {
		out[i] = p.GetProperties()
	}
	return out
}
