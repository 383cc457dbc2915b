package decode

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/model/lint"
	"github.com/coopr/coopr/testing/original"
)

// fill sets every field of a struct to a random value, sometimes to none, so that a new key is
// tested from the start.
func fill(t *rapid.T, v reflect.Value, depth int) {
	name := rapid.StringMatching(`[A-Za-z0-9_.-]{1,6}`)
	switch v.Type() {
	case intType:
		v.SetInt(rapid.Int64Range(0, 1<<53).Draw(t, "int"))
		return
	case numberType:
		v.SetString(rapid.SampledFrom([]string{"", "0", "0.25", "1", "0.333333333333333333333"}).Draw(t, "ratio"))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(rapid.OneOf(name, rapid.String()).Draw(t, "text"))
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, "bool"))
	case reflect.Int:
		v.SetInt(rapid.Int64Range(0, 1<<53).Draw(t, "int"))
	case reflect.Int64:
		v.SetInt(rapid.Int64Range(0, 1<<62).Draw(t, "int64"))
	case reflect.Float64:
		v.SetFloat(rapid.Float64Range(0, 1e15).Draw(t, "float"))
	case reflect.Pointer:
		if rapid.Bool().Draw(t, "present") {
			v.Set(reflect.New(v.Type().Elem()))
			fill(t, v.Elem(), depth+1)
		}
	case reflect.Slice:
		list := reflect.MakeSlice(v.Type(), rapid.IntRange(0, 3).Draw(t, "len"), 3)
		for i := range list.Len() {
			fill(t, list.Index(i), depth+1)
		}
		v.Set(list)
	case reflect.Map:
		m := reflect.MakeMap(v.Type())
		for range rapid.IntRange(0, 3).Draw(t, "len") {
			item := reflect.New(v.Type().Elem()).Elem()
			fill(t, item, depth+1)
			m.SetMapIndex(reflect.ValueOf(rapid.OneOf(name, rapid.String()).Draw(t, "key")), item)
		}
		v.Set(m)
	case reflect.Interface:
		if x := anything(t, depth); x != nil {
			v.Set(reflect.ValueOf(x))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fill(t, v.Field(i), depth+1)
			}
		}
	default:
		t.Fatalf("cannot fill %s", v.Type())
	}
}

func anything(t *rapid.T, depth int) any {
	switch rapid.IntRange(0, 5).Draw(t, "kind") {
	case 0:
		return rapid.Bool().Draw(t, "bool")
	case 1:
		return float64(rapid.Int32().Draw(t, "number")) / 4
	case 2:
		return rapid.String().Draw(t, "text")
	case 3:
		if depth > 6 {
			return nil
		}
		list := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "len") {
			list = append(list, anything(t, depth+1))
		}
		return list
	case 4:
		if depth > 6 {
			return nil
		}
		m := map[string]any{}
		for range rapid.IntRange(0, 3).Draw(t, "len") {
			m[rapid.String().Draw(t, "key")] = anything(t, depth+1)
		}
		return m
	}
	return nil
}

// Export and import give the same, for definitions with every field set to
// anything: as canonical JSON, as what the state stores, and as YAML. Values
// break rules (they are random), so faults of the shape alone are looked for.
func TestEncodeThenDecodeIsTheSame(t *testing.T) {
	for _, kind := range model.Kinds {
		t.Run(string(kind), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				value := model.NewValue(kind)
				fill(t, reflect.ValueOf(value).Elem(), 0)
				if p, ok := value.(*model.PluginType); ok {
					p.Class = map[model.Kind]string{model.KindProviderType: "provider", model.KindAutomatorType: "automator"}[kind]
				}
				first, err := model.Encode(model.Define(kind, value))
				if err != nil {
					t.Fatal(err)
				}
				same := func(how string, d model.Definition) {
					again, err := model.Encode(d)
					if err != nil || string(again) != string(first) {
						t.Fatalf("%s\nfirst %s\nagain %s (%v)", how, first, again, err)
					}
				}
				read := func(how string, data []byte, asYAML bool) {
					docs, faults := parse(data, asYAML)
					if len(faults) > 0 {
						t.Fatalf("%s: %v\n%s", how, faults, data)
					}
					d := decoder{}
					into := model.NewValue(kind)
					d.value(docs[0], reflect.ValueOf(into).Elem(), "")
					if len(d.faults) > 0 {
						t.Fatalf("%s: %v\n%s", how, d.faults, data)
					}
					same(how, model.Define(kind, into))
				}
				read("JSON", first, false)
				restored, err := model.Restore(kind, first)
				if err != nil {
					t.Fatal(err)
				}
				same("restored", restored)
				// JSON is YAML too, but for characters that YAML wants escaped.
				text := escaped(string(first))
				read("YAML", text, true)
			})
		})
	}
}

func escaped(s string) []byte {
	var b []byte
	for _, r := range s {
		if r < 0x7f {
			b = append(b, byte(r))
			continue
		}
		b = fmt.Appendf(b, `\U%08x`, r)
	}
	return b
}

func seeds(f *testing.F) {
	dir, ok := original.Find()
	if !ok {
		return
	}
	for _, pattern := range []string{"templates-develop/*/lamp.json", "templates-develop/*/standard-small.json",
		"templates-develop/services/cdap.json", "partials-test/*.json", "provisioner-plugins/*.json"} {
		files, _ := filepath.Glob(filepath.Join(dir, pattern))
		for _, file := range files {
			if data, err := os.ReadFile(file); err == nil {
				f.Add(data)
			}
		}
	}
}

// decodeAnything is the body of both fuzz targets: no input may panic, hang or
// be taken without being kept.
func decodeAnything(t *testing.T, data []byte, asYAML bool) {
	docs, _ := parse(data, asYAML)
	for _, n := range docs {
		for _, kind := range model.Kinds {
			if n.kind != objectNode {
				continue
			}
			copied := *n
			copied.fields = append([]field(nil), n.fields...)
			d, faults := decodeNode(kind, &copied)
			if len(faults) > 0 {
				continue
			}
			first, err := model.Encode(d)
			if err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
			again, err := Definition(kind, first)
			if err != nil {
				t.Fatalf("%s is not read back: %v\n%s", kind, err, first)
			}
			if second, _ := model.Encode(again); string(second) != string(first) {
				t.Fatalf("%s\nfirst  %s\nsecond %s", kind, first, second)
			}
			lint.Lint([]model.Definition{d}, model.NewSet(d))
		}
	}
}

func FuzzDecodeJSON(f *testing.F) {
	seeds(f)
	f.Add([]byte(`{"name":"a","providertype":"x","provisioner":{"n":-0,"e":1e2,"u":"\ud800"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		decodeAnything(t, data, false)
		_, _ = Classify("fuzz.json", data)
	})
}

func FuzzDecodeYAML(f *testing.F) {
	seeds(f)
	for _, s := range []string{"name: a\nproviderType: b\n---\nname: c", "a: &a [*a]", "<<: [{a: 1}, {b: 2}]\nname: x", "? [a]\n: b",
		"name: !!float 1\n", "{name: a, immutable: yes}", "? &k name\n: *k"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		decodeAnything(t, data, true)
		_, _ = Classify("services/fuzz.yaml", data)
	})
}
