package site_test

import (
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/change/compile"
	"github.com/coopr/coopr/engine/change/object"
	"github.com/coopr/coopr/engine/change/site"
)

func TestGraph(t *testing.T) {
	doc, err := site.Parse([]byte(`
name: s
objects:
  - {name: svc, host: agent:a, type: service, requires: [{object: cfg}], holds: [{object: cfg}]}
  - {name: cfg, host: agent:b, type: filetree}
`))
	if err != nil {
		t.Fatal(err)
	}
	s, err := compile.Site(doc, compile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	g := site.NewGraph(s, func(id object.ID) (object.Status, bool) {
		return object.Status{State: 1, Target: 2, Def: &s.Defs[id]}, id == 0
	})
	if len(g.Nodes) != 2 || len(g.Edges) != 2 || g.Edges[0].When != "*→up" || !g.Edges[1].Hold {
		t.Errorf("%+v", g)
	}
	dot := g.DOT()
	for _, want := range []string{`"svc" -> "cfg" [label="*→up: up"]`, `style=dashed`, `label="agent:b"`, `"svc\ndown → up"`} {
		if !strings.Contains(dot, want) {
			t.Errorf("no %s in\n%s", want, dot)
		}
	}
}
