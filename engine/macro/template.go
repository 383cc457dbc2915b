package macro

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/coopr/coopr/engine/model"
)

// Expand returns a value with its macros expanded. The error is a *SyntaxError, or joins
// *MissingErrors.
func Expand(value string, ctx Context) (string, error) {
	t, err := parseText(value)
	if err != nil {
		return "", err
	}
	out, errs := ctx.expand(t)
	if len(errs) > 0 {
		return "", errors.Join(errs...)
	}
	return out, nil
}

// ExpandConfig returns a configuration with the macros in all its strings expanded. Keys are
// not expanded. The error is model.Faults, each with its path.
func ExpandConfig(config map[string]any, ctx Context) (map[string]any, error) {
	t, err := Compile(config)
	if err != nil {
		return nil, err
	}
	b, err := t.Bind(ctx.Cluster)
	if err != nil {
		return nil, err
	}
	return b.On(ctx.Self)
}

// Template is a configuration with parsed macros. It never changes and is safe for concurrent
// use.
type Template struct {
	root *field
	refs References
}

// field is one value of a configuration.
type field struct {
	path  string
	plain any      // the value, if there is nothing to expand
	text  *text    // a string with macros
	keys  []string // of a map, sorted
	sub   []*field // of a map (parallel to keys) or a list
	kind  byte     // 'p' plain, 't' text, 'm' map, 'l' list
	self  bool     // depends on the node
}

// Compile parses the macros of a configuration. The error is model.Faults with every malformed
// macro and its path.
func Compile(config map[string]any) (*Template, error) {
	var faults model.Faults
	t := &Template{root: compile("", config, &faults)}
	if err := faults.Err(); err != nil {
		return nil, err
	}
	t.refs.collect(t.root)
	return t, nil
}

func compile(path string, value any, faults *model.Faults) *field {
	switch v := value.(type) {
	case string:
		t, err := parseText(v)
		if err != nil {
			faults.Add(path, err.Error())
			break
		}
		if len(t.pieces) == 1 && t.pieces[0].macro == nil {
			return &field{path: path, kind: 'p', plain: t.pieces[0].literal}
		}
		return &field{path: path, kind: 't', text: &t, self: t.self}
	case map[string]any:
		f := &field{path: path, kind: 'm', keys: slices.Sorted(maps.Keys(v))}
		return f.gather(value, len(v), func(i int) *field { return compile(join(path, f.keys[i]), v[f.keys[i]], faults) })
	case []any:
		f := &field{path: path, kind: 'l'}
		return f.gather(value, len(v), func(i int) *field {
			return compile(path+"["+strconv.Itoa(i)+"]", v[i], faults)
		})
	}
	return &field{path: path, kind: 'p', plain: value}
}

// gather compiles the content of a map or list. A map or list without macros stays plain.
func (f *field) gather(value any, n int, each func(int) *field) *field {
	same := true
	f.sub = make([]*field, n)
	for i := range n {
		s := each(i)
		f.sub[i] = s
		f.self = f.self || s.self
		same = same && s.kind == 'p'
	}
	if same {
		// Doubled percent signs become single ones, so the value is rebuilt.
		return &field{path: f.path, kind: 'p', plain: f.build(func(s *field) any { return s.plain })}
	}
	return f
}

// build returns the map or list of a field from its parts.
func (f *field) build(part func(*field) any) any {
	if f.kind == 'l' {
		list := make([]any, len(f.sub))
		for i, s := range f.sub {
			list[i] = part(s)
		}
		return list
	}
	m := make(map[string]any, len(f.sub))
	for i, s := range f.sub {
		m[f.keys[i]] = part(s)
	}
	return m
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// Bound is a configuration that is expanded for a cluster, except for the parts that depend on
// the node. It never changes and is safe for concurrent use.
type Bound struct {
	cluster *Cluster
	root    *field
}

// Bind expands the macros whose values are the same on every node of the cluster. The error is model.Faults.
func (t *Template) Bind(cluster *Cluster) (*Bound, error) {
	var faults model.Faults
	b := &Bound{cluster: cluster, root: bind(t.root, Context{Cluster: cluster, Self: NoNode}, &faults)}
	if err := faults.Err(); err != nil {
		return nil, err
	}
	return b, nil
}

func bind(f *field, ctx Context, faults *model.Faults) *field {
	switch {
	case f.kind == 'p' || f.kind == 't' && f.self:
		return f
	case !f.self:
		return &field{path: f.path, kind: 'p', plain: value(f, ctx, faults)}
	}
	out := &field{path: f.path, kind: f.kind, keys: f.keys, self: true, sub: make([]*field, len(f.sub))}
	for i, s := range f.sub {
		out.sub[i] = bind(s, ctx, faults)
	}
	return out
}

// value expands a field.
func value(f *field, ctx Context, faults *model.Faults) any {
	switch f.kind {
	case 'p':
		return f.plain
	case 't':
		out, errs := ctx.expand(*f.text)
		for _, err := range errs {
			faults.Add(f.path, err.Error())
		}
		return out
	}
	return f.build(func(s *field) any { return value(s, ctx, faults) })
}

// Shared reports whether the configuration is the same on every node.
func (b *Bound) Shared() bool { return !b.root.self }

// On returns the configuration for the node with this number. The results share the parts that
// do not depend on the node, so callers must not change them. The error is model.Faults.
func (b *Bound) On(number int) (map[string]any, error) {
	var faults model.Faults
	out := value(b.root, Context{Cluster: b.cluster, Self: number}, &faults)
	if err := faults.Err(); err != nil {
		return nil, fmt.Errorf("configuration of node %d: %w", number, err)
	}
	m, _ := out.(map[string]any)
	return m, nil
}
