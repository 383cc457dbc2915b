package confpath

import (
	"reflect"
	"testing"
)

func TestLookup(t *testing.T) {
	config := map[string]any{
		"web":  map[string]any{"port": 80.0, "tls": nil},
		"core": map[string]any{"fs.defaultFS": "hdfs://x", "fs": map[string]any{"trash": "1"}},
		"a.b":  map[string]any{"c": "long"}, "a": map[string]any{"b": map[string]any{"c": "short", "d": "only here"}},
	}
	for path, want := range map[string]any{
		"web.port": 80.0, "web": config["web"], "web.tls": nil, "core.fs.defaultFS": "hdfs://x", "core.fs.trash": "1", "a.b.c": "long",
		"a.b.d": "only here",
	} {
		if got, ok := Lookup(config, path); !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v %v", path, got, ok)
		}
	}
	for _, path := range []string{"", "none", "web.none", "web.port.more", "web."} {
		if got, ok := Lookup(config, path); ok {
			t.Errorf("%q: %v", path, got)
		}
	}
}
