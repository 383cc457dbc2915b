package decode

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/model/lint"
)

// The reference of definitions is true: its examples are read, lint clean,
// round trip, and every key there is stands in it.
func TestReferenceOfDefinitions(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "definitions.md"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	var defs []model.Definition
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
			r, err := CreateCluster([]byte(b[2]))
			if err != nil {
				t.Error(err)
				continue
			}
			set := model.NewSet(defs...)
			tpl, ok := model.Find[model.ClusterTemplate](set, model.KindClusterTemplate, r.ClusterTemplate)
			if !ok {
				t.Fatal("no template " + r.ClusterTemplate)
			}
			merged, err := model.ResolveTemplate(*tpl, set)
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
	kinds := map[model.Kind]int{}
	for _, d := range defs {
		kinds[d.Kind]++
		first := encoded(t, d)
		again, err := Definition(d.Kind, []byte(first))
		if err != nil || encoded(t, again) != first {
			t.Errorf("%s: %v", d.ID(), err)
		}
	}
	for _, k := range model.Kinds {
		if kinds[k] == 0 {
			t.Errorf("no example of %s", k)
		}
	}
	faults, warnings := lint.Lint(defs, model.NewSet())
	wantLines(t, faults.Err())
	wantLines(t, warnings.Err())

	// The page's example of faults is the real message.
	_, err = Classify("clustertemplates/web.yaml", []byte("name: web\n\ncompatibilities: {}\n\ndefaults:\n  services: web\n"))
	if !strings.Contains(text, err.Error()) {
		t.Errorf("the page does not show\n%v", err)
	}

	for _, v := range []any{model.Provider{}, model.HardwareType{}, model.ImageType{}, model.Service{}, model.ClusterTemplate{},
		model.PartialTemplate{}, model.PluginType{}, model.Policies{}, model.CreateCluster{}} {
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
