package macro

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"pgregory.net/rapid"
)

func small() *Cluster {
	return NewCluster("ada", []Node{
		{Number: 1002, Hostname: "c", IPAddresses: map[string]string{"bind_v4": "10.0.0.3"}, Services: []string{"worker", "db"}},
		{Number: 1000, Hostname: "a", IPAddresses: map[string]string{"bind_v4": "10.0.0.1", "access_v4": "1.1.1.1"},
			Services: []string{"master"}},
		{Number: 1001, Services: []string{"worker", "idle"}},
	})
}

func TestExpand(t *testing.T) {
	for _, c := range []struct {
		value string
		self  int
		want  string // or, after "!", a part of the error
	}{
		{"", 1000, ""},
		{"plain", 1000, "plain"},
		{"%host.service.master%:8020", 1000, "a:8020"},
		{"%ip.service.master%", 1000, "10.0.0.1"},
		{"%ip.access_v4.service.master%/%num.service.worker%", 1000, "1.1.1.1/2"},
		{"%instance.self.service.worker%", 1002, "2"},
		{"%host.self%@%cluster.owner%", 1002, "c@ada"},
		{"%join(host.service.master, ';')%", 1000, "a"},
		// Percent signs that begin no macro stay.
		{"%d{ISO8601} %p: %m%n", 1000, "%d{ISO8601} %p: %m%n"},
		{"100% of %host.self%", 1000, "100% of a"},
		{"%%host.self%%", 1000, "%host.self%"},
		{"%%%host.self%%%", 1000, "%a%"},
		{"%hostname% %abc% %", 1000, "%hostname% %abc% %"},
		{"%host.self%%host.self%", 1000, "aa"},
		// A macro of a missing service stays, also next to other macros.
		{"%host.service.gone% %host.self%", 1000, "%host.service.gone% a"},
		{"%instance.self.service.worker%", 1000, "%instance.self.service.worker%"},
		{"%num.service.gone%", 1000, "%num.service.gone%"},
		// Macros that cannot be expanded.
		{"%host.service.worker%", 1000, "!node 1001, which has service worker, has no host name"},
		{"%host.service.master[1]%", 1000, "!no index 1"},
		{"%ip.self%", 1001, "!node 1001 has no address of type bind_v4"},
		{"%host.self%", NoNode, "!not expanded for one"},
		{"%host.self% %ip.self% %instance.self.service.worker% %cluster.owner%", Nowhere,
			"%host.self% %ip.self% %instance.self.service.worker% ada"},
		// Mistyped macros, with their position.
		{"a %host.servce.x%", 1000, "!position 4"},
		{"%host.self", 1000, "!position 11"},
		{"%join(host.service.x)%", 1000, "!position 21"},
		{"%host.service.x[-1]%", 1000, "!whole number"},
		{"%num.service.x[0]%", 1000, "!only lists"},
		{"%host.service.%", 1000, "!is not a macro"},
		{"%ip..self%", 1000, "!is not a macro"},
		{"%host.service.x[99999999999999999999]%", 1000, "!whole number"},
		{"%map(join(host.service.x,','),'$')%", 1000, "!is not a macro"},
	} {
		got, err := Expand(c.value, Context{Cluster: small(), Self: c.self})
		if part, bad := strings.CutPrefix(c.want, "!"); bad {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%q gives %q, %v; want an error with %q", c.value, got, err, part)
			}
		} else if err != nil || got != c.want {
			t.Errorf("%q gives %q, %v; want %q", c.value, got, err, c.want)
		}
	}
}

func TestErrorsCanBeTold(t *testing.T) {
	var syntax *SyntaxError
	if err := Check("ok %host.self% but %host.x%", nil); !errors.As(err, &syntax) || syntax.Offset != 20 {
		t.Errorf("got %v", err)
	}
	var missing *MissingError
	if _, err := Expand("%host.service.master[5]%", Context{Cluster: small(), Self: 1000}); !errors.As(err, &missing) || !missing.Layout {
		t.Errorf("got %v", err)
	}
	if _, err := Expand("%host.service.worker%", Context{Cluster: small(), Self: 1000}); !errors.As(err, &missing) || missing.Layout {
		t.Errorf("got %v", err)
	}
}

func sample() map[string]any {
	return map[string]any{
		"hdfs":  map[string]any{"fs": "hdfs://%host.service.master%", "plain": map[string]any{"x": 1.5, "rate": "50%%"}},
		"bind":  "%ip.self%",
		"list":  []any{"%num.service.worker%", true, map[string]any{"me": "%instance.self.service.db%"}},
		"count": 3.0,
		"none":  nil,
	}
}

func TestConfig(t *testing.T) {
	template, err := Compile(sample())
	if err != nil {
		t.Fatal(err)
	}
	bound, err := template.Bind(small())
	if err != nil {
		t.Fatal(err)
	}
	on, err := bound.On(1002)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"hdfs":  map[string]any{"fs": "hdfs://a", "plain": map[string]any{"x": 1.5, "rate": "50%"}},
		"bind":  "10.0.0.3",
		"list":  []any{"2", true, map[string]any{"me": "1"}},
		"count": 3.0,
		"none":  nil,
	}
	if !reflect.DeepEqual(on, want) {
		t.Errorf("got %v, want %v", on, want)
	}
	direct, err := ExpandConfig(sample(), Context{Cluster: small(), Self: 1002})
	if err != nil || !reflect.DeepEqual(direct, want) {
		t.Errorf("ExpandConfig gives %v, %v", direct, err)
	}
	other, err := bound.On(1000)
	if err != nil {
		t.Fatal(err)
	}
	if reflect.ValueOf(on["hdfs"]).Pointer() != reflect.ValueOf(other["hdfs"]).Pointer() {
		t.Error("what does not depend on the node was made twice")
	}
	if bound.Shared() {
		t.Error("the configuration depends on the node")
	}
}

func TestConfigFaults(t *testing.T) {
	bad := map[string]any{"a": map[string]any{"b": []any{"fine", "%host.oops%"}}, "c": "%join(%"}
	_, err := Compile(bad)
	var faults model.Faults
	if !errors.As(err, &faults) || len(faults) != 2 || faults[0].Path != "a.b[1]" || faults[1].Path != "c" {
		t.Errorf("got %v", err)
	}
	late := map[string]any{"x": "%host.service.worker%", "y": map[string]any{"z": "%host.service.master[3]%"},
		"ok": "%host.service.master[0]%", "far": "%host.service.gone[7]%"}
	template, err := Compile(late)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := template.Bind(small()); !errors.As(err, &faults) || len(faults) != 2 {
		t.Errorf("got %v", err)
	}
}

func TestReferences(t *testing.T) {
	refs, err := ReferencesOf(map[string]any{
		"a": "%host.service.master% %cluster.owner%", "b": []any{"%ip.access_v4.service.db%", "%ip.service.db%", "%num.service.idle%"},
		"c": "%ip.x.self%",
	})
	want := References{
		Owner: true, Self: true, SelfIPTypes: []string{"x"}, Services: []string{"db", "idle", "master"},
		Hosts: []string{"master"}, IPs: map[string][]string{"access_v4": {"db"}, "bind_v4": {"db"}},
	}
	if err != nil || !reflect.DeepEqual(refs, want) {
		t.Errorf("got %+v, %v", refs, err)
	}
	if got := refs.Nodes(small()); !reflect.DeepEqual(got, []int{1000, 1001, 1002}) {
		t.Errorf("got nodes %v", got)
	}
	refs, _ = ReferencesOf(map[string]any{"plain": "x"})
	if got := refs.Nodes(small()); got != nil || refs.Self {
		t.Errorf("got nodes %v", got)
	}
}

// For any configuration, a template expands to the same values as the expansion of every
// string by itself.
func TestTemplateAgreesWithExpand(t *testing.T) {
	leaf := rapid.SampledFrom([]any{"x", "50%", "%%", 3.0, nil, "%host.service.master%", "%host.self%", "%num.service.gone%",
		"%instance.self.service.db%", "%join(map(ip.service.db,'$:1'),';')% and %cluster.owner%"})
	var value func(depth int) *rapid.Generator[any]
	value = func(depth int) *rapid.Generator[any] {
		return rapid.Custom(func(t *rapid.T) any {
			kind := 0
			if depth > 0 {
				kind = rapid.IntRange(0, 2).Draw(t, "kind")
			}
			switch kind {
			case 1:
				return rapid.SliceOfN(value(depth-1), 0, 3).Draw(t, "list")
			case 2:
				return rapid.MapOfN(rapid.StringMatching("[a-c]%?"), value(depth-1), 0, 3).Draw(t, "map")
			}
			return leaf.Draw(t, "leaf")
		})
	}
	var each func(v any, ctx Context) any
	each = func(v any, ctx Context) any {
		switch v := v.(type) {
		case string:
			out, err := Expand(v, ctx)
			if err != nil {
				panic(err)
			}
			return out
		case []any:
			out := make([]any, len(v))
			for i := range v {
				out[i] = each(v[i], ctx)
			}
			return out
		case map[string]any:
			out := map[string]any{}
			for k := range v {
				out[k] = each(v[k], ctx)
			}
			return out
		}
		return v
	}
	rapid.Check(t, func(t *rapid.T) {
		config := map[string]any{"root": value(3).Draw(t, "config"), "more": value(1).Draw(t, "more")}
		ctx := Context{Cluster: small(), Self: rapid.SampledFrom([]int{1000, 1002}).Draw(t, "self")}
		got, err := ExpandConfig(config, ctx)
		if want := each(config, ctx); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("got %v, %v; want %v", got, err, want)
		}
	})
}

// TestCheck: a definition may name only macros and services that exist.
func TestCheck(t *testing.T) {
	for value, want := range map[string]string{
		"%host.service.web% and 50%":              "",
		"%d{x} %p %Y.%m %h.%l 5%.% %%user.name%%": "",
		"%hots.self%":                           "position 1: there is no macro %hots.self%",
		"at %node.service.web[0]%":              "position 4: there is no macro %node.service.web[0]%",
		"%join(map(ip.service.wbe,'$:1'),',')%": "macro %join(map(ip.service.wbe,'$:1'),',')%: no wbe",
		"%num.service.wbe%":                     "macro %num.service.wbe%: no wbe",
	} {
		err := Check(value, func(name string) error {
			if name == "web" {
				return nil
			}
			return errors.New("no " + name)
		})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", value, err, want)
		}
	}
}

func FuzzExpand(f *testing.F) {
	for _, s := range []string{"", "%", "%%", "a%host.self%b", "%join(map(ip.x.service.y,'$$'),\"'\")%", "%host.service.master[0]%", "%map(",
		"%host.service.a[", "é%ip.self%", "%d{x} %p"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		out, err := Expand(s, Context{Cluster: small(), Self: 1000})
		if checked := Check(s, func(string) error { return nil }); checked == nil && err != nil {
			var missing *MissingError
			if !errors.As(err, &missing) {
				t.Fatalf("%q: Check and Expand do not agree: %v", s, err)
			}
		}
		text, perr := parseText(s)
		if perr != nil {
			var e *SyntaxError
			if !errors.As(perr, &e) || e.Offset < 0 || e.Offset > len(s) {
				t.Fatalf("%q: %v", s, perr)
			}
			return
		}
		macros := false
		for _, p := range text.pieces {
			macros = macros || p.macro != nil
		}
		if !macros && out != strings.ReplaceAll(s, "%%", "%") {
			t.Fatalf("%q without macros gives %q", s, out)
		}
	})
}

func BenchmarkConfigOn10000Nodes(b *testing.B) {
	nodes := make([]Node, 10_000)
	for i := range nodes {
		nodes[i] = Node{Number: 1000 + i, Hostname: fmt.Sprint("h", i), IPAddresses: map[string]string{"bind_v4": fmt.Sprint("10.0.0.", i)},
			Services: []string{"worker"}}
	}
	nodes[0].Services = []string{"master"}
	config := map[string]any{"bind": "%ip.self%"}
	for i := range 100 {
		config[fmt.Sprint("key", i)] = map[string]any{"a": "%host.service.master%:80", "all": "%join(map(host.service.worker,'$:1'),',')%"}
	}
	for b.Loop() {
		template, err := Compile(config)
		if err != nil {
			b.Fatal(err)
		}
		bound, err := template.Bind(NewCluster("o", nodes))
		if err != nil {
			b.Fatal(err)
		}
		for i := range nodes {
			if _, err := bound.On(1000 + i); err != nil {
				b.Fatal(err)
			}
		}
	}
}
