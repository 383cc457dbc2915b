package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/words"
	"github.com/coopr/coopr/internal/yamlfault"
)

// place is where a value was set.
type place struct {
	subject string // file, variable or flag
	line    int    // 0 outside files
}

// decoder reads one YAML file into a Config. It refuses unknown names, records the place of every value and collects all
// faults.
type decoder struct {
	file   string
	faults model.Faults
	places map[string]place
	unread map[string]bool // paths whose value could not be read
}

// decode merges a file into c: sections are merged, values and lists are replaced.
func (d *decoder) decode(raw []byte, c *Config) {
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if !errors.Is(err, io.EOF) { // an empty file is allowed
			line, message := yamlfault.Split(err)
			d.fault("", line, "not YAML: %s", message)
		}
		return
	}
	var second yaml.Node
	if err := dec.Decode(&second); !errors.Is(err, io.EOF) {
		d.fault("", second.Line, "the file has a second document; only one is allowed")
		return
	}
	root := doc.Content[0]
	if root.Tag == "!!null" {
		return
	}
	d.value(root, reflect.ValueOf(c).Elem(), "", 0)
}

// unreadable adds a fault for a value that cannot be read and keeps its default.
func (d *decoder) unreadable(path string, line int, format string, args ...any) {
	d.unread[path] = true
	d.fault(path, line, format, args...)
}

func (d *decoder) fault(path string, line int, format string, args ...any) {
	d.faults = append(d.faults, &model.Fault{Subject: d.file, Path: path, Line: line, Message: fmt.Sprintf(format, args...)})
}

const maxDepth = 32

func (d *decoder) value(n *yaml.Node, v reflect.Value, path string, depth int) {
	if depth > maxDepth {
		d.unreadable(path, n.Line, "nested too deep")
		return
	}
	if n.Kind == yaml.AliasNode {
		d.value(n.Alias, v, path, depth+1)
		return
	}
	if path != "" {
		d.places[path] = place{d.file, n.Line}
	}
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return // "key:" without a value keeps the default
	}
	t := v.Type()
	switch {
	case t == reflect.TypeFor[Settings]():
		d.settings(n, v, path)
	case t.Kind() == reflect.Struct && t != reflect.TypeFor[Secret]():
		d.section(n, v, path, depth)
	case t.Kind() == reflect.Slice:
		d.list(n, v, path, depth)
	case n.Kind != yaml.ScalarNode:
		d.unreadable(path, n.Line, "expected one value, found a %s", kindName(n))
	default:
		if err := setText(v, n.Value); err != nil {
			d.unreadable(path, n.Line, "%s", err)
		}
	}
}

func (d *decoder) section(n *yaml.Node, v reflect.Value, path string, depth int) {
	if n.Kind != yaml.MappingNode {
		d.unreadable(path, n.Line, "expected names and values, found a %s", kindName(n))
		return
	}
	fields := map[string]int{}
	var known []string
	for i := range v.NumField() {
		name := v.Type().Field(i).Tag.Get("yaml")
		fields[name] = i
		known = append(known, name)
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := join(path, key.Value)
		if first, ok := seen[key.Value]; ok {
			d.fault(at, key.Line, "set a second time; the first is on line %d", first)
			continue
		}
		seen[key.Value] = key.Line
		index, ok := fields[key.Value]
		if !ok || key.Kind != yaml.ScalarNode {
			if guess := words.Nearest(key.Value, known); guess != "" {
				d.fault(at, key.Line, "unknown name, did you mean %s?", guess)
			} else {
				d.fault(at, key.Line, "unknown name: known here are %s", strings.Join(known, ", "))
			}
			continue
		}
		d.value(value, v.Field(index), at, depth+1)
	}
}

func (d *decoder) list(n *yaml.Node, v reflect.Value, path string, depth int) {
	if n.Kind == yaml.ScalarNode && v.Type() == reflect.TypeFor[[]string]() {
		if err := setText(v, n.Value); err != nil {
			d.unreadable(path, n.Line, "%s", err)
		}
		return
	}
	if n.Kind != yaml.SequenceNode {
		d.unreadable(path, n.Line, "expected a list, found a %s", kindName(n))
		return
	}
	out := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, item := range n.Content {
		d.value(item, out.Index(i), fmt.Sprintf("%s[%d]", path, i), depth+1)
	}
	v.Set(out)
}

func (d *decoder) settings(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.MappingNode {
		d.unreadable(path, n.Line, "expected names and values, found a %s", kindName(n))
		return
	}
	var out map[string]any
	if err := n.Decode(&out); err != nil {
		_, message := yamlfault.Split(err)
		d.unreadable(path, n.Line, "not YAML: %s", message)
		return
	}
	v.Set(reflect.ValueOf(Settings(out)))
}

func kindName(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "section"
	case yaml.SequenceNode:
		return "list"
	}
	return "single value"
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
