package lint

import (
	"errors"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/model/decode"
)

// world reads a YAML text of several documents, each with its kind.
func world(t testing.TB, text string) []model.Definition {
	t.Helper()
	defs, err := decode.Classify("world.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return defs
}

const shop = `
kind: providertype
name: local
parameters:
  admin:
    fields:
      region: {label: Region, type: select, options: [here, there]}
      password: {label: Password, type: password}
    required: [[region, password]]
---
kind: automatortype
name: shell
parameters: {admin: {fields: {script: {label: Script, type: text}, args: {label: Arguments, type: text}}, required: [[script]]}}
---
{kind: provider, name: here, providertype: local, provisioner: {region: here, password: x}}
---
{kind: hardwaretype, name: small, providermap: {here: {flavor: s}}}
---
{kind: hardwaretype, name: large, providermap: {here: {flavor: l}}}
---
{kind: imagetype, name: linux, providermap: {here: {image: i}}}
---
{kind: service, name: base}
---
{kind: service, name: mysql, dependencies: {provides: [database], install: {requires: [base]}}}
---
{kind: service, name: web, dependencies: {runtime: {requires: [database], uses: [cache]}}}
---
kind: clustertemplate
name: shop
defaults: {services: [base, mysql, web], provider: here, hardwaretype: small, imagetype: linux}
`

func TestLintFindsNothingWrongWithTheShop(t *testing.T) {
	faults, warnings := Lint(world(t, shop), model.NewSet())
	wantLines(t, faults.Err())
	wantLines(t, warnings.Err())
	// The same, written one by one from the bottom up.
	set := model.NewSet()
	for _, d := range world(t, shop) {
		faults, warnings := Lint([]model.Definition{d}, set)
		if d.Name != "web" { // its "cache" need not be there
			wantLines(t, faults.Err())
			wantLines(t, warnings.Err())
		}
		set.Add(d)
	}
}

// A text may be a list or an object, which its plugin reads; what one chooses may not.
func TestLintLeavesListsToPlugins(t *testing.T) {
	defs := world(t, shop+`
---
{kind: service, name: s, provisioner: {actions: {start: {type: shell, fields: {script: x, args: {PORT: web.port}}}, stop: {type: shell, fields: {script: x, args: [a, b]}}}}}
---
{kind: provider, name: there, providertype: local, provisioner: {region: [here], password: {a: b}}}
`)
	faults, warnings := Lint(defs, model.NewSet())
	wantLines(t, faults.Err())
	wantLines(t, warnings.Err(),
		`providers/there: provisioner.password: must be one value, not a list or an object`,
		`providers/there: provisioner.region: must be one value, not a list or an object`,
	)
}

func TestLintGivesEveryFaultAtOnce(t *testing.T) {
	for _, c := range []struct {
		name, in         string
		faults, warnings []string
	}{
		{"references", `
kind: clustertemplate
name: t
defaults: {services: [bas, web], provider: her, hardwaretype: smal, imagetype: linux}
compatibility: {hardwaretypes: [small, huge], services: [web, mysql, webb, web]}
constraints:
  services:
    mysqll: {quantities: {max: 1}}
    web: {hardwaretypes: [giant], requires: [{service: databases, min: 1}]}
  layout: {mustcoexist: [[web, mysql], [mysql, web]], cantcoexist: [[web, wep]]}
preferences: {hardwaretypes: [lrge], imagetypes: [linus]}
comparator: cheapest
`, []string{
			`clustertemplates/t: defaults.provider: there is no provider "her", so no cluster can be made with the defaults: did you mean "here"?`,
			`clustertemplates/t: defaults.hardwaretype: smal is not in compatibility.hardwaretypes (small and huge), so no cluster can be made ` +
				`with it: change the one or add to the other`,
			`clustertemplates/t: defaults.hardwaretype: there is no hardware type "smal", so no cluster can be made with the defaults: did ` +
				`you mean "small"?`,
			`clustertemplates/t: defaults.services[0]: there is no service "bas", so no cluster can be made with the defaults: did you mean "base"?`,
			`clustertemplates/t: constraints.services.web.hardwaretypes: none of giant can be used: web could be placed nowhere`,
		}, []string{
			`clustertemplates/t: defaults.services[0]: bas is not in compatibility.services: clusters must choose other services than the default ` +
				`ones, or it must be added there`,
			`clustertemplates/t: compatibility.hardwaretypes[1]: there is no hardware type "huge", so it cannot be chosen`,
			`clustertemplates/t: compatibility.services[2]: there is no service "webb", so it cannot be chosen: did you mean "web"?`,
			`clustertemplates/t: compatibility.services[3]: web is already named at [0]`,
			`clustertemplates/t: constraints.services.mysqll: there is no service "mysqll", so this has no effect: did you mean "mysql"?`,
			`clustertemplates/t: constraints.services.web.hardwaretypes[0]: there is no hardware type "giant"`,
			`clustertemplates/t: constraints.services.web.requires[0].service: there is no service "databases", so this has no effect`,
			`clustertemplates/t: constraints.layout.mustcoexist[1]: has the same services as mustcoexist[0]`,
			`clustertemplates/t: constraints.layout.cantcoexist[0]: there is no service "wep", so this has no effect: did you mean "web"?`,
			`clustertemplates/t: preferences.hardwaretypes[0]: there is no hardware type "lrge": did you mean "large"?`,
			`clustertemplates/t: preferences.imagetypes[0]: there is no image type "linus": did you mean "linux"?`,
			`clustertemplates/t: comparator: "cheapest" is neither "original" nor "cost": a plugin must offer it`,
		}},
		{"patterns", `
kind: clustertemplate
name: t
defaults: {services: [base], provider: here, hardwaretype: large, imagetype: linux}
plans:
  again: {recovers: {service: bas, when: restart}, phases: {x: {service: bas, steps: [{default: [[stop], [start]]}]}}}
`, []string{
			`clustertemplates/t: plans[0].recovers.service: there is no service "bas", so plan again is the pattern of no recovery: did you mean ` +
				`"base"?`,
			`clustertemplates/t: plans[0].phases[0].service: Unable to find pod "bas" referenced by phase "x": there is no service "bas": did you ` +
				`mean "base"?`,
		}, nil},
		{"own actions", `
kind: service
name: app
provisioner: {actions: {drain: {type: shell, fields: {script: d}}, start: {type: shell, fields: {script: s}}}}
---
kind: clustertemplate
name: t
defaults: {services: [app], provider: here, hardwaretype: large, imagetype: linux}
plans:
  deploy: {phases: {x: {service: app, steps: [{default: [[drain, start]]}]}}}
  bounce: {phases: {x: {service: app, steps: [{default: [[drain, start]]}]}}}
  decommission: {phases: {x: {service: app, steps: [{default: [[drain]]}]}}}
`, []string{
			`clustertemplates/t: plans[0].phases[0].steps[0].tasks[0]: "drain" is an action of app's own, which plan deploy cannot have: name it ` +
				`in decommission, or in a plan that an operator starts`,
		}, nil},
		{"contradictions", `
kind: clustertemplate
name: t
defaults: {services: [base, mysql, web], provider: here, hardwaretype: large, imagetype: linux}
compatibility: {services: [base, mysql, web]}
constraints:
  services:
    mysql: {hardwaretypes: [small], quantities: {max: 2}}
    web: {quantities: {min: 5}}
    base: {quantities: {max: 0}}
  size: {max: 3}
`, []string{
			`clustertemplates/t: constraints.services.base.quantities.max: is 0, but base is a default service: raise it, or take base out of ` +
				`defaults.services`,
			`clustertemplates/t: constraints.services.web.quantities.min: 5 nodes with web are more than the 3 nodes that ` +
				`constraints.size.max allows`,
		}, []string{
			`clustertemplates/t: constraints.services.mysql.hardwaretypes: the default hardware type large is not among small: with it mysql ` +
				`could be placed nowhere`,
		}},
		{"services", `
kind: service
name: app
dependencies: {conflicts: [nosuch], install: {requires: [base, databse]}, runtime: {requires: [web, queue]}}
provisioner:
  actions:
    install: {type: shell, fields: {scrpt: x}}
    start: {type: shel, fields: {}}
`, []string{
			`services/app: dependencies.install.requires[1]: no service is called or provides "databse"`,
			`services/app: dependencies.runtime.requires[1]: no service is called or provides "queue"`,
		}, []string{
			`services/app: provisioner.actions.install.fields.scrpt: automator type shell has no field "scrpt": did you mean "script"?`,
			`services/app: provisioner.actions.install.fields.script: is missing: automator type shell needs it`,
			`automatortypes/shel: no agent offers the automator type shel: did you mean "shell"?; service app cannot be used until one does`,
		}},
		{"cycle", `
{kind: service, name: a, dependencies: {runtime: {requires: [b]}}}
---
{kind: service, name: b, dependencies: {provides: [bee], runtime: {uses: [c]}}}
---
{kind: service, name: c, dependencies: {runtime: {requires: [a]}}}
---
{kind: service, name: base, dependencies: {install: {uses: [database]}}}
---
{kind: service, name: d, dependencies: {install: {requires: [a]}, runtime: {requires: [bee]}}}
`, []string{
			`services/base: dependencies: these services depend on each other in a circle: base → mysql → base: take one dependency away`,
			`services/a: dependencies: these services depend on each other in a circle: a → b → c → a: take one dependency away`,
		}, nil},
		{"templates in a circle", `
{kind: clustertemplate, name: a, extends: b}
---
{kind: clustertemplate, name: b, extends: c, includes: [pp]}
---
{kind: clustertemplate, name: c, extends: a}
---
{kind: clustertemplate, name: d, extends: shp}
---
{kind: partialtemplate, name: p, defaults: {services: [webb]}, constraints: {size: {max: 2}}, links: [{label: l, url: u}]}
`, []string{
			`clustertemplates/a: extends: the templates extend each other in a circle: a → b → c → a: take one "extends" away`,
			`clustertemplates/a: includes[0]: in template b: there is no partial template "pp"`,
			`clustertemplates/b: extends: the templates extend each other in a circle: b → c → a → b: take one "extends" away`,
			`clustertemplates/b: includes[0]: there is no partial template "pp"`,
			`clustertemplates/c: extends: the templates extend each other in a circle: c → a → b → c: take one "extends" away`,
			`clustertemplates/c: includes[0]: in template b: there is no partial template "pp"`,
			`clustertemplates/d: extends: there is no cluster template "shp": did you mean "shop"?`,
		}, []string{
			`partialtemplates/p: defaults.services[0]: there is no service "webb", so no cluster can be made with it: did you mean "web"?`,
			`partialtemplates/p: constraints: has no effect in a partial template, of which only defaults and compatibility are taken: put it ` +
				`into a cluster template`,
			`partialtemplates/p: links: has no effect in a partial template, of which only defaults and compatibility are taken: put it into a ` +
				`cluster template`,
		}},
		{"default services", `
{kind: service, name: nosql, dependencies: {provides: [database], conflicts: [mysql]}}
---
{kind: clustertemplate, name: t, defaults: {services: [mysql, nosql], provider: here}}
`, []string{
			`clustertemplates/t: defaults.services[1]: nosql conflicts with mysql, which is a default service too: take one away`,
		}, []string{
			`clustertemplates/t: defaults.services[0]: mysql requires base, which no default service is or provides: clusters must choose other ` +
				`services than the default ones, or defaults.services needs more`,
		}},
		{"providers", `
{kind: provider, name: p, providertype: local, provisioner: {regoin: here, region: nowhere}}
---
{kind: provider, name: q, providertype: clod}
---
{kind: hardwaretype, name: h, providermap: {hre: {flavor: s}}}
`, nil, []string{
			`providers/p: provisioner.region: "nowhere" is not one of the options (here, there are)`,
			`providers/p: provisioner.regoin: provider type local has no field "regoin": did you mean "region"?`,
			`providers/p: provisioner.password: is missing: provider type local needs it`,
			`hardwaretypes/h: providermap.hre: there is no provider "hre", so nothing uses this entry: did you mean "here"?`,
			`providertypes/clod: no agent offers the provider type clod; provider q cannot be used until one does`,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			faults, warnings := Lint(world(t, c.in), model.NewSet(world(t, shop)...))
			wantLines(t, faults.Err(), c.faults...)
			wantLines(t, warnings.Err(), c.warnings...)
		})
	}
}

// Definitions made in Go have passed no Decode: their own rules are judged too.
func TestLintJudgesADefinitionByItself(t *testing.T) {
	one, two, five := model.Int(1), model.Int(2), model.Int(5)
	tpl := &model.ClusterTemplate{Base: model.Base{Name: "t"},
		Defaults: model.Defaults{Services: []model.DefaultService{{Name: "web"}, {Name: "mysql"}, {Name: "base"}}, Provider: "here"}}
	tpl.Constraints.Layout.MustCoexist = [][]string{{"web", "mysql"}}
	tpl.Constraints.Services = map[string]model.ServiceConstraint{
		"web":   {HardwareTypes: []string{"large"}, Quantities: model.Quantities{Min: &five, Step: &two, Odd: true}},
		"mysql": {HardwareTypes: []string{"small"}, Quantities: model.Quantities{Max: &one}},
	}
	svc := &model.Service{Base: model.Base{Name: "s"}, Dependencies: model.Dependencies{Conflicts: []string{"base"},
		Install: model.Needs{Requires: []string{"base"}}}}
	faults, _ := Lint([]model.Definition{model.Define(model.KindClusterTemplate, tpl), model.Define(model.KindService, svc)},
		model.NewSet(world(t, shop)...))
	wantLines(t, faults.Err(),
		`clustertemplates/t: constraints.services.web.quantities.step: a multiple of 2 is never odd: change step, or take "odd" away`,
		`clustertemplates/t: constraints.layout.mustcoexist[0]: web and mysql must share a node, but no hardwaretype is allowed to both: `+
			`change constraints.services.web.hardwaretypes`,
		`clustertemplates/t: constraints.layout.mustcoexist[0]: web and mysql must share a node, but there must be at least 5 of web and at `+
			`most 1 of mysql`,
		`services/s: dependencies.conflicts[0]: base is required and excluded at once: keep one`,
	)
}

func TestLintWithoutAWorldJudgesNoReferences(t *testing.T) {
	defs := world(t, `{kind: clustertemplate, name: t, extends: x, defaults: {services: [a], provider: p}}
---
{kind: clustertemplate, name: u, defaults: {services: [a], provider: p, imagetype: i}, compatibility: {imagetypes: [j]}}
---
{kind: service, name: s, dependencies: {install: {requires: [r]}}, provisioner: {actions: {start: {type: shell}}}}`)
	faults, warnings := Lint(defs, nil)
	wantLines(t, faults.Err(), `clustertemplates/u: defaults.imagetype: i is not in compatibility.imagetypes (j), so no cluster can be made `+
		`with it: change the one or add to the other`)
	wantLines(t, warnings.Err())
}

func TestLintSaysWhichTemplatesAChangeBreaks(t *testing.T) {
	known := model.NewSet(world(t, shop+`
---
{kind: partialtemplate, name: p, defaults: {config: {x: 1}}}
---
{kind: clustertemplate, name: child, extends: shop, includes: [p], defaults: {config: {x: 2}}}
`)...)
	change := world(t, `{kind: partialtemplate, name: p, immutable: true, defaults: {config: {x: 1}}}`)
	faults, warnings := Lint(change, known)
	wantLines(t, faults.Err())
	wantLines(t, warnings.Err(), `clustertemplates/child: defaults.config.x: after this change no cluster can be made of it: template child `+
		`may not set this: the immutable partial template p has set it; take it out of template child`)
}

func TestLintAsksForMacros(t *testing.T) {
	defs := world(t, `
kind: clustertemplate
name: t
defaults: {services: [base], provider: here, config: {a: [{b: "%hots.self%"}], c: base, d: bsae}}
links: [{label: l, url: "http://%ip.self"}]
`)
	l := Linter{Known: model.NewSet(world(t, shop)...), Macros: func(text string, service func(string) error) error {
		if strings.Contains(text, "%") {
			return errors.New("bad macro in " + text)
		}
		return service(text)
	}}
	faults, _ := l.Lint(defs)
	wantLines(t, faults.Err(),
		`clustertemplates/t: defaults.config.a[0].b: bad macro in %hots.self%`,
		`clustertemplates/t: defaults.config.d: there is no service "bsae", so the macro can never be expanded: did you mean "base"?`,
		`clustertemplates/t: links[0].url: bad macro in http://%ip.self`)
}

func TestSiftLeavesOutWhatDependsOnTheBad(t *testing.T) {
	good, faults, _ := Linter{Known: model.NewSet(world(t, shop)...)}.Sift(world(t, `
{kind: service, name: a, dependencies: {install: {requires: [nothing]}}}
---
{kind: service, name: b, dependencies: {install: {requires: [a]}}}
---
{kind: clustertemplate, name: t, defaults: {services: [b], provider: here}}
---
{kind: service, name: c, dependencies: {install: {uses: [a]}}}
`))
	wantLines(t, faults.Err(),
		`services/a: dependencies.install.requires[0]: no service is called or provides "nothing"`,
		`services/b: dependencies.install.requires[0]: no service is called or provides "a"`,
		`clustertemplates/t: defaults.services[0]: there is no service "b", so no cluster can be made with the defaults`)
	if len(good) != 1 || good[0].Name != "c" {
		t.Errorf("left: %v", good)
	}
}

func TestLintRefusesTwoOfOneName(t *testing.T) {
	a, b := world(t, `{kind: service, name: a}`)[0], world(t, `{kind: service, name: a}`)[0]
	b.Source = "other.yaml"
	faults, _ := Lint([]model.Definition{a, b}, model.NewSet())
	wantLines(t, faults.Err(), `services/a: is defined in world.yaml and again in other.yaml: keep one, or rename one`)
}

// wantLines compares faults with the lines that a user shall read.
func wantLines(t *testing.T, err error, want ...string) {
	t.Helper()
	got := ""
	if err != nil {
		got = err.Error()
	}
	if w := strings.Join(want, "\n"); got != w {
		t.Errorf("got\n%s\nwant\n%s", got, w)
	}
}
