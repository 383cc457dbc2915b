package model

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// The reference of definitions is true: its examples are read, lint clean,
// round trip, and every key there is stands in it.
func TestReferenceOfDefinitions(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "docs", "definitions.md"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	var defs []Definition
	blocks := regexp.MustCompile("(?s)```(\\w+)\n(.*?)```").FindAllStringSubmatch(text, -1)
	for i, b := range blocks {
		switch b[1] {
		case "yaml":
			got, err := Classify(fmt.Sprintf("example-%d.yaml", i), []byte(b[2]))
			if err != nil {
				t.Error(err)
			}
			defs = append(defs, got...)
		case "json":
			r, err := DecodeCreateCluster([]byte(b[2]))
			if err != nil {
				t.Error(err)
				continue
			}
			set := NewSet(defs...)
			tpl, ok := find[ClusterTemplate](set, KindClusterTemplate, r.ClusterTemplate)
			if !ok {
				t.Fatal("no template " + r.ClusterTemplate)
			}
			merged, err := ResolveTemplate(*tpl, set)
			if err != nil {
				t.Fatal(err)
			}
			choice, err := r.Choose(merged)
			want := map[string]any{"bind_address": "%ip.bind_v4.service.mysql-server%", "data_dir": "/data", "max_connections": 200.0}
			if err != nil || !reflect.DeepEqual(choice.Config["mysql"], want) {
				t.Errorf("%v, %v", choice.Config, err)
			}
		}
	}
	kinds := map[Kind]int{}
	for _, d := range defs {
		kinds[d.Kind]++
		first := encoded(t, d)
		again, err := Decode(d.Kind, []byte(first))
		if err != nil || encoded(t, again) != first {
			t.Errorf("%s: %v", d.ID(), err)
		}
	}
	for _, k := range Kinds {
		if kinds[k] == 0 {
			t.Errorf("no example of %s", k)
		}
	}
	faults, warnings := Lint(defs, NewSet())
	wantLines(t, faults.Err())
	wantLines(t, warnings.Err())

	// The example of faults is what is really said.
	_, err = Classify("clustertemplates/web.yaml", []byte("name: web\n\ncompatibilities: {}\n\ndefaults:\n  services: web\n"))
	if !strings.Contains(text, err.Error()) {
		t.Errorf("the page does not show\n%v", err)
	}

	for _, v := range []any{Provider{}, HardwareType{}, ImageType{}, Service{}, ClusterTemplate{}, PartialTemplate{}, PluginType{},
		CreateCluster{}} {
		keys(reflect.TypeOf(v), func(key string) {
			if !regexp.MustCompile("[`.]" + regexp.QuoteMeta(key) + "`").MatchString(text) {
				t.Errorf("%T: the page says nothing of %q", v, key)
			}
		})
	}
}

// keys calls fn for every key that a type has at any depth.
func keys(t reflect.Type, fn func(string)) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		keys(t.Elem(), fn)
	case reflect.Struct:
		for key, index := range keysOf(t) {
			inner := t.FieldByIndex(index).Type
			for inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			if inner.Kind() != reflect.Struct || len(keysOf(inner)) == 0 {
				fn(key)
			}
			keys(inner, fn)
		}
	}
}
