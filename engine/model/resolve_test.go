package model_test

import (
	"reflect"
	"testing"

	"github.com/coopr/coopr/engine/model"
)

func resolved(t *testing.T, name, text string) (model.ClusterTemplate, error) {
	t.Helper()
	set := model.NewSet(world(t, text)...)
	c, ok := model.Find[model.ClusterTemplate](set, model.KindClusterTemplate, name)
	if !ok {
		t.Fatal("no template " + name)
	}
	return model.ResolveTemplate(*c, set)
}

func TestResolveMergesByCoopersRules(t *testing.T) {
	got, err := resolved(t, "child", `
kind: partialtemplate
name: of-parent
defaults: {services: [monitor], config: {monitor: {from: partial}, all: partial}}
constraints: {size: {max: 1}}
---
kind: partialtemplate
name: of-child
defaults: {services: [log], dnsSuffix: log.example, config: {log: {level: 1}, all: child-partial}}
compatibility: {services: [log], imagetypes: [b]}
---
kind: clustertemplate
name: parent
label: Parent
description: the parent
defaults:
  services: [a, {name: b, config: {port: 1}}]
  provider: p
  hardwaretype: h
  config: {all: parent, deep: {x: 1, y: 2}, b: {host: here, port: 9}}
compatibility: {services: [a, b], imagetypes: [a]}
constraints:
  layout: {mustcoexist: [[a, b], [c]], cantcoexist: [[a, c]]}
  services: {a: {quantities: {min: 1, max: 2}, hardwaretypes: [h]}, b: {quantities: {max: 5}}}
  size: {min: 2, max: 9}
administration: {leaseduration: {initial: 2h}}
links: [{label: A, url: a}, {label: B, url: b}]
includes: [of-parent]
preferences: {hardwaretypes: [h]}
comparator: cost
---
kind: clustertemplate
name: child
description: the child
extends: parent
includes: [of-child, of-parent]
defaults: {services: [c, a], hardwaretype: big, config: {deep: {y: 3}}}
constraints:
  layout: {mustcoexist: [[b, a, b], [a, d]]}
  services: {a: {quantities: {max: 7}}}
administration: {leaseduration: {initial: 0}}
links: [{label: B, url: other}]
`)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"name":"child","description":"the child","defaults":{"services":["monitor","a","b","log","c"],"provider":"p",` +
		`"hardwaretype":"big","dnsSuffix":"log.example","config":{"all":"child-partial","b":{"host":"here","port":1},"deep":{"y":3},` +
		`"log":{"level":1},"monitor":{"from":"partial"}}},` +
		`"compatibility":{"imagetypes":["a","b"],"services":["a","b","log"]},` +
		`"constraints":{"layout":{"mustcoexist":[["a","b"],["c"],["a","d"]],"cantcoexist":[["a","c"]]},` +
		`"services":{"a":{"quantities":{"max":7}},"b":{"quantities":{"max":5}}},"size":{"min":2,"max":9}},` +
		`"administration":{"leaseduration":{"initial":0,"max":0,"step":0}},"links":[{"label":"A","url":"a"},{"label":"B","url":"other"}],` +
		`"extends":{"name":"parent"},"includes":[{"name":"of-child"},{"name":"of-parent"}],"preferences":{"hardwaretypes":["h"]},` +
		`"comparator":"cost"}`
	if have := encoded(t, model.Define(model.KindClusterTemplate, &got)); have != want {
		t.Errorf("\n got %s\nwant %s", have, want)
	}
}

func TestResolveSharesNothingWithItsParents(t *testing.T) {
	set := model.NewSet(world(t, `
{kind: clustertemplate, name: parent, defaults: {services: [a], provider: p, config: {x: 1}}, constraints: {services: {a: {quantities: {max: 1}}}}}
---
{kind: clustertemplate, name: child, extends: parent, defaults: {services: [b], config: {y: 2}}, constraints: {services: {b: {quantities: {max: 1}}}}}
`)...)
	before := encoded(t, set[model.KindClusterTemplate]["parent"])
	child, _ := model.Find[model.ClusterTemplate](set, model.KindClusterTemplate, "child")
	for range 2 {
		if _, err := model.ResolveTemplate(*child, set); err != nil {
			t.Fatal(err)
		}
	}
	if after := encoded(t, set[model.KindClusterTemplate]["parent"]); after != before {
		t.Errorf("the parent changed: %s", after)
	}
}

func TestResolveGivesEveryReason(t *testing.T) {
	_, err := resolved(t, "t", `
{kind: partialtemplate, name: fixed, immutable: true, defaults: {services: [{name: svc, config: {a: 1}}], config: {x: 1, y: 2}}}
---
{kind: clustertemplate, name: t, includes: [fixed, missing], defaults: {services: [{name: svc, config: {a: 2}}], config: {x: 1, y: 3, z: 4}}}
`)
	wantLines(t, err,
		`includes[1]: there is no partial template "missing"`,
		`defaults.config.svc: template t may not set this: the immutable partial template fixed has set it; take it out of template t`,
		`defaults.config.x: template t may not set this: the immutable partial template fixed has set it; take it out of template t`,
		`defaults.config.y: template t may not set this: the immutable partial template fixed has set it; take it out of template t`)
	_, err = resolved(t, "t", `{kind: clustertemplate, name: t}`)
	wantLines(t, err,
		`defaults.services: the template names no default services: name at least one`,
		`defaults.provider: the template names no default provider: name one`)
	_, err = resolved(t, "t", `
{kind: clustertemplate, name: t, extends: u}
---
{kind: clustertemplate, name: u, defaults: {services: [a]}}`)
	wantLines(t, err, `defaults.provider: the template names no default provider, and neither do the templates that it extends and `+
		`includes: name one`)
}

// The keys of an immutable partial template may also be set by templates before it.
func TestImmutableBindsOnlyWhatComesLater(t *testing.T) {
	got, err := resolved(t, "child", `
{kind: partialtemplate, name: fixed, immutable: true, defaults: {config: {x: fixed}}}
---
{kind: clustertemplate, name: parent, defaults: {services: [a], provider: p, config: {x: parent}}}
---
{kind: clustertemplate, name: child, extends: parent, includes: [fixed]}
`)
	if err != nil || !reflect.DeepEqual(got.Defaults.Config, map[string]any{"x": "fixed"}) {
		t.Errorf("%v, %v", got.Defaults.Config, err)
	}
}
