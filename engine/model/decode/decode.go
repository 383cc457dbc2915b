package decode

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/model/rules"
	"github.com/coopr/coopr/internal/words"
)

// Definition reads one definition of the given kind from JSON or YAML, strictly. An unknown key, a
// value of the wrong type, a missing name and a broken rule of the definition itself are
// faults. The error, of type Faults, has all of them, each with its path, its line and what to
// change. A "version", an "author" and "host_exec" are accepted and ignored, because the state sets them. Shapes of Coopr
// 0.9.6 and later are accepted and converted (docs/spec/coopr.md 9.3). Package lint checks references
// to other definitions.
func Definition(kind model.Kind, data []byte) (model.Definition, error) {
	docs, faults := parse(data, false)
	if len(docs) > 1 {
		faults = append(faults, &model.Fault{Line: docs[1].line, Message: "a second document begins here: give one definition at a time"})
	}
	if len(docs) == 0 || len(faults) > 0 && docs[0].kind != objectNode {
		return model.Definition{Kind: kind}, faults.Err()
	}
	def, more := decodeNode(kind, docs[0])
	faults = append(faults, more...)
	return def, faults.Limited().Err()
}

// Strict reads any JSON or YAML document into a pointer to a Go value by its json tags,
// as strictly as Definition and with the same messages. The bodies of requests are read with it.
// An empty document leaves the value unchanged.
func Strict(data []byte, into any) error {
	faults, _ := decodeRequest(data, into, nil)
	return faults.Limited().Err()
}

// decodeNode decodes a definition of a known kind from a tree.
func decodeNode(kind model.Kind, n *node) (model.Definition, model.Faults) {
	def := model.Definition{Kind: kind, Line: n.line}
	value := model.NewValue(kind)
	if value == nil {
		return def, model.Faults{{Line: n.line, Message: fmt.Sprintf("there is no kind of definition called %q: it must be one of %s", kind,
			model.KindNames())}}
	}
	d := decoder{}
	if k := n.get("kind"); k != nil {
		if got, err := model.ParseKind(k.text); err != nil || got != kind {
			d.fault(k, "kind", "is %q, but a definition of %s is expected here", k.text, kind)
		}
		n.drop("kind")
	}
	d.modernise(kind, n)
	d.value(n, reflect.ValueOf(value).Elem(), "")
	if n.kind != objectNode {
		return def, d.faults
	}
	def.Value = value
	if v := reflect.ValueOf(value).Elem().FieldByName("Version"); v.IsValid() {
		v.SetInt(0)
	}
	if t, ok := value.(*model.PluginType); ok {
		class := map[model.Kind]string{model.KindProviderType: "provider", model.KindAutomatorType: "automator"}[kind]
		if t.Class != "" && t.Class != class {
			d.fault(n, "class", "is %q, but the definition is in the section %s", words.Shorten(t.Class), kind)
		}
		t.Class = class
	}
	normalize(value)
	def.Name = def.Base().Name
	shape := d.faults
	for _, f := range rules.Check(def) {
		if !shape.Has(f.Path) {
			f.Line = n.lineAt(f.Path)
			d.faults = append(d.faults, f)
		}
	}
	return def, d.faults
}

// normalize brings values that a file may write in several ways into one form: "flavor" and
// "image" become texts if the file has a number.
func normalize(value any) {
	var entries map[string]map[string]any
	switch v := value.(type) {
	case *model.HardwareType:
		entries = v.ProviderMap
	case *model.ImageType:
		entries = v.ProviderMap
	}
	for _, e := range entries {
		for _, key := range []string{"flavor", "image", "sshuser"} {
			if f, ok := e[key].(float64); ok {
				e[key] = strconv.FormatFloat(f, 'f', -1, 64)
			}
		}
	}
}

// decoder walks a tree and a Go value in parallel and collects all faults.
type decoder struct {
	faults model.Faults
	// keepEmpty distinguishes an empty list or object from an absent one. In a definition both
	// mean the same.
	keepEmpty bool
}

func (d *decoder) fault(n *node, path, format string, args ...any) {
	d.faults = append(d.faults, &model.Fault{Path: path, Line: n.line, Message: fmt.Sprintf(format, args...)})
}

var (
	intType     = reflect.TypeFor[model.Int]()
	millisType  = reflect.TypeFor[model.Millis]()
	numberType  = reflect.TypeFor[json.Number]()
	serviceType = reflect.TypeFor[model.DefaultService]()
	refType     = reflect.TypeFor[model.Reference]()
	leaseType   = reflect.TypeFor[model.LeaseDuration]()
	baseType    = reflect.TypeFor[model.Base]()
	secretType  = reflect.TypeFor[model.Secret]()
)

// value decodes a node into a Go value. Null leaves the value unchanged.
func (d *decoder) value(n *node, v reflect.Value, path string) {
	if n.kind == nullNode {
		if path == "" {
			d.fault(n, path, "must be an object, but there is nothing")
		}
		return
	}
	switch v.Type() {
	case intType:
		d.whole(n, v, path)
		return
	case millisType:
		d.millis(n, v, path)
		return
	case numberType:
		if text, ok := d.numeric(n, path, "a number"); ok {
			v.SetString(text)
		}
		return
	case secretType:
		if n.kind != textNode {
			d.fault(n, path, "must be a text, but is %s", n.is())
			return
		}
		v.Set(reflect.ValueOf(model.NewSecret(n.text)))
		return
	case serviceType, refType:
		if n.kind == textNode {
			v.FieldByName("Name").SetString(n.text)
			return
		}
		if n.kind != objectNode {
			d.fault(n, path, "must be a name, or an object with a name, but is %s", n.is())
			return
		}
	case leaseType:
		v.Addr().Interface().(*model.LeaseDuration).SetGiven(n.kind == objectNode)
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(n, v.Elem(), path)
	case reflect.String:
		switch {
		case n.kind == textNode:
			v.SetString(n.text)
		case n.plain && n.kind == numberNode || n.plain && n.kind == boolNode:
			v.SetString(n.written)
		case n.kind == numberNode || n.kind == boolNode:
			d.fault(n, path, "must be a text: write %q, in quotes", n.written)
		default:
			d.fault(n, path, "must be a text, but is %s", n.is())
		}
	case reflect.Bool:
		switch {
		case n.kind == boolNode:
			v.SetBool(n.truth)
		case n.kind == textNode && (n.text == "true" || n.text == "false"):
			v.SetBool(n.text == "true")
		default:
			d.fault(n, path, "must be true or false, but is %s", describe(n))
		}
	case reflect.Int, reflect.Int64:
		d.whole(n, v, path)
	case reflect.Uint64:
		if text, ok := d.numeric(n, path, "a whole number"); ok {
			u, err := strconv.ParseUint(text, 10, 64)
			if err != nil {
				d.fault(n, path, "must be a whole number, 0 or more, but is %s", words.Shorten(text))
				return
			}
			v.SetUint(u)
		}
	case reflect.Float64:
		if text, ok := d.numeric(n, path, "a number"); ok {
			f, err := strconv.ParseFloat(text, 64)
			if err != nil || math.IsInf(f, 0) {
				d.fault(n, path, "the number %s is too large", words.Shorten(text))
				return
			}
			v.SetFloat(f)
		}
	case reflect.Slice:
		if n.kind != listNode {
			hint := ""
			if n.kind == textNode {
				hint = fmt.Sprintf(": write [%q]", words.Shorten(n.text))
			}
			d.fault(n, path, "must be a list, but is %s%s", n.is(), hint)
			return
		}
		list := reflect.MakeSlice(v.Type(), len(n.items), len(n.items))
		for i, item := range n.items {
			at := fmt.Sprintf("%s[%d]", path, i)
			if item.kind == nullNode {
				d.fault(item, at, "must not be null")
				continue
			}
			d.value(item, list.Index(i), at)
		}
		v.Set(list)
	case reflect.Map:
		d.mapping(n, v, path)
	case reflect.Struct:
		d.object(n, v, path)
	case reflect.Interface:
		if x := d.free(n, path); x != nil {
			v.Set(reflect.ValueOf(x))
		}
	default:
		panic("decode: no decoding for " + v.Type().String())
	}
}

func (d *decoder) mapping(n *node, v reflect.Value, path string) {
	if n.kind != objectNode {
		d.fault(n, path, "must be an object, but is %s", describe(n))
		return
	}
	m := reflect.MakeMapWithSize(v.Type(), len(n.fields))
	for _, f := range n.fields {
		item := reflect.New(v.Type().Elem()).Elem()
		if f.value.kind == nullNode && item.Kind() != reflect.Interface {
			continue
		}
		d.value(f.value, item, join(path, f.key))
		m.SetMapIndex(reflect.ValueOf(f.key).Convert(v.Type().Key()), item)
	}
	v.Set(m)
}

func (d *decoder) object(n *node, v reflect.Value, path string) {
	if n.kind != objectNode {
		d.fault(n, path, "must be an object, but is %s", describe(n))
		return
	}
	known := keysOf(v.Type())
	for _, f := range n.fields {
		at := join(path, f.key)
		index, ok := known[f.key]
		switch {
		case ok && (f.key == "version" || f.key == "author" || f.key == "host_exec") && v.FieldByIndex(index[:1]).Type() == baseType:
			// The state assigns them, but files contain numbers and texts here.
		case ok:
			to := v.FieldByIndex(index)
			d.value(f.value, to, at)
			if (to.Kind() == reflect.Slice || to.Kind() == reflect.Map) && to.Len() == 0 && !d.keepEmpty {
				to.SetZero()
			}
		default:
			d.faults = append(d.faults, &model.Fault{Path: at, Line: f.line, Message: unknownKey(f.key, v.Type())})
		}
	}
}

// keysOf returns the JSON keys of a struct, including those of embedded structs, with the
// index of each field.
func keysOf(t reflect.Type) map[string][]int {
	keys := map[string][]int{}
	for _, f := range reflect.VisibleFields(t) {
		tag, has := f.Tag.Lookup("json")
		name, _, _ := strings.Cut(tag, ",")
		if f.Anonymous || !has || !f.IsExported() || name == "-" {
			continue
		}
		keys[name] = f.Index
	}
	return keys
}

// free decodes values without a fixed shape: provisioner values, configuration, fields.
func (d *decoder) free(n *node, path string) any {
	switch n.kind {
	case boolNode:
		return n.truth
	case numberNode:
		f, ok := exact(n.text)
		if !ok {
			d.fault(n, path, "the number %s cannot be kept exactly: write it as a text, in quotes", words.Shorten(n.written))
		}
		return f
	case textNode:
		return n.text
	case listNode:
		list := make([]any, len(n.items))
		for i, item := range n.items {
			list[i] = d.free(item, fmt.Sprintf("%s[%d]", path, i))
		}
		return list
	case objectNode:
		m := make(map[string]any, len(n.fields))
		for _, f := range n.fields {
			m[f.key] = d.free(f.value, join(path, f.key))
		}
		return m
	}
	return nil
}

var number = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

func validNumber(s string) bool { return len(s) <= 400 && number.MatchString(s) }

// numeric returns the digits of a number that may be written as a text.
func (d *decoder) numeric(n *node, path, want string) (string, bool) {
	text := strings.TrimSpace(n.text)
	if n.kind != numberNode && n.kind != textNode || !validNumber(text) {
		d.fault(n, path, "must be %s, but is %s", want, describe(n))
		return "", false
	}
	return text, true
}

// whole decodes 3, 3.0 or "3" within the range of an int.
func (d *decoder) whole(n *node, v reflect.Value, path string) {
	text, ok := d.numeric(n, path, "a whole number")
	if !ok {
		return
	}
	i, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		f, exactly := exact(text)
		if !exactly || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
			d.fault(n, path, "must be a whole number of at most 16 digits, but is %s", words.Shorten(text))
			return
		}
		i = int64(f)
	}
	v.SetInt(i)
}

func (d *decoder) millis(n *node, v reflect.Value, path string) {
	if n.kind == numberNode || n.kind == textNode {
		if m, err := model.ParseMillis(n.text); err == nil {
			v.SetInt(int64(m))
			return
		}
	}
	d.fault(n, path, "must be a duration, but is %s: write milliseconds, or a whole number with s, m, h or d, such as \"2h\"", describe(n))
}

// describe returns the kind of a node, with its value if that is short.
func describe(n *node) string {
	switch n.kind {
	case textNode:
		return strconv.Quote(words.Shorten(n.text))
	case numberNode, boolNode:
		return words.Shorten(n.written)
	}
	return n.is()
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
