package decode

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
)

// faultsOf returns the lines of an error, none for nil.
func faultsOf(err error) []string {
	if err == nil {
		return nil
	}
	return strings.Split(err.Error(), "\n")
}

// wantLines compares an error with the lines that a user shall read.
func wantLines(t *testing.T, err error, want ...string) {
	t.Helper()
	got := faultsOf(err)
	for i := range max(len(got), len(want)) {
		g, w := "(nothing)", "(nothing)"
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			t.Errorf("line %d\n got %s\nwant %s", i+1, g, w)
		}
	}
}

func TestDecodeGivesEveryFaultAtOnce(t *testing.T) {
	_, err := Definition(model.KindClusterTemplate, []byte(`{
  "name": "my template!",
  "descripton": "three tiers",
  "compatibilities": {"services": ["web"]},
  "defaults": {
    "services": "web",
    "provider": 5,
    "config": {"big": 12345678901234567890}
  },
  "constraints": {
    "services": {
      "web": {"min": 1, "quantities": {"min": 3, "max": "2", "stepSize": 0, "ratio": {"max": 1.5}}},
      "db": {"quantities": {"min": "many"}}
    },
    "size": {"min": 0.5},
    "layout": {"mustcoexist": [["web", "db"]], "cantcoexist": [["db", "web"], ["db"]]}
  },
  "administration": {"leaseduration": {"initial": "3d", "max": "2h", "step": "1 week"}},
  "links": [{"lable": "Web", "url": "http://x"}],
  "links": []
}`))
	wantLines(
		t,
		err,
		`line 20: the key "links" occurs here a second time (first on line 19): keep one`,
		`line 3: descripton: unknown key: did you mean "description"?`,
		`line 4: compatibilities: unknown key: did you mean "compatibility"?`,
		`line 6: defaults.services: must be a list, but is a text: write ["web"]`,
		`line 7: defaults.provider: must be a text: write "5", in quotes`,
		`line 8: defaults.config.big: the number 12345678901234567890 cannot be kept exactly: write it as a text, in quotes`,
		`line 12: constraints.services.web.min: unknown key: it belongs under "quantities"`,
		`line 13: constraints.services.db.quantities.min: must be a whole number, but is "many"`,
		`line 15: constraints.size.min: must be a whole number of at most 16 digits, but is 0.5`,
		`line 18: administration.leaseduration.step: must be a duration, but is "1 week": write milliseconds, or a whole number with s, m, h or d, such as "2h"`,
		`line 19: links[0].lable: unknown key: did you mean "label"?`,
		`line 2: name: "my template!" contains " ", "!": only letters, digits, '.', '_' and '-' are allowed`,
		`line 12: constraints.services.web.quantities: min 3 is more than max 2: no number of nodes can be right`,
		`line 12: constraints.services.web.quantities.step: must be at least 1`,
		`line 12: constraints.services.web.quantities.ratio.max: must be a share of the nodes from 0 to 1 such as 0.25, but is 1.5`,
		`line 16: constraints.layout.cantcoexist[0]: db and web may not share a node, but constraints.layout.mustcoexist[0] says that they must: remove one of the two`,
		`line 16: constraints.layout.cantcoexist[1]: names only db, which can then be on no node: name at least two services`,
		`line 18: administration.leaseduration: initial 3d is more than max 2h: a new cluster would already be too old`,
		`line 19: links[0].label: is missing: say what the link shows`,
	)
}

func TestDecodeYAMLGivesLines(t *testing.T) {
	_, err := Definition(model.KindService, []byte(`# a service
name: web
dependencies:
  runtime:
    requires: [web, ""]
    use: [db]
provisioner:
  actions:
    instal:
      type: shell
      fields: {script: web.sh}
    start:
      fields: {script: web.sh}
      timeout: soon
resources: {vcpu: -1, ram: lots}
spread: rack
`))
	wantLines(t, err,
		`line 6: dependencies.runtime.use: unknown key: did you mean "uses"?`,
		`line 15: resources.ram: must be a number, but is "lots"`,
		`line 5: dependencies.runtime.requires[0]: is the service web itself: take it away`,
		`line 5: dependencies.runtime.requires[1]: is empty: name a service, or take the entry away`,
		`line 9: provisioner.actions.instal: there is no such action: did you mean "install"?`,
		`line 12: provisioner.actions.start.type: is missing: name the automator that carries the action out, such as "shell"`,
		`line 14: provisioner.actions.start.timeout: must be a duration such as "10m" or "90s", but is "soon"`,
		`line 15: resources.vcpu: must not be negative`,
		`line 16: spread: must be "zone" or "host", but is "rack"`,
	)
}

func TestDecodeRefusesWhatIsNoDocument(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 100)
	bomb := "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c <= 'h'; c++ {
		bomb += fmt.Sprintf("%c: &%c [*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c]\n", c, c, c-1, c-1, c-1, c-1, c-1, c-1, c-1, c-1, c-1, c-1)
	}
	fat := "a: &a " + strings.Repeat("x", 100_000) + "\nb: [" + strings.Repeat("*a, ", 100) + "]\n"
	for _, c := range []struct{ name, in, want string }{
		{"empty", "  \n", "the document is empty"},
		{"only comments", "# nothing\n", "the document is empty"},
		{"a text", "hello", `line 1: must be an object, but is "hello"`},
		{"not UTF-8", "name: \xff", "line 1: not UTF-8 text: save the file in the encoding UTF-8"},
		{"ends early", "{\"name\": \"a\",\n\"x\": [1", "line 2: not valid JSON: column 7: the text ends too early: a closing } or ] is missing"},
		{"comma before }", "{\"name\": \"a\",\n}", "line 2: not valid JSON: column 1: there must be no comma before a }"},
		{"comma before ]", "{\"name\": [1,]}", "line 1: not valid JSON: column 13: there must be no comma before a ]"},
		{"100 levels of JSON", deep, "line 1: nested deeper than 64 levels"},
		{"100 levels of YAML", "name: a\nx: " + strings.Repeat("[", 100) + strings.Repeat("]", 100),
			"line 2: nested deeper than 64 levels (an alias that contains itself?)"},
		{"100,000 levels", strings.Repeat("[", 100_000), "line 1: nested deeper than 64 levels"},
		{"alias bomb", bomb, "line 6: too much once the aliases are written out: at most 200000 values and 4194304 bytes"},
		{"fat aliases", fat, "line 2: too much once the aliases are written out: at most 200000 values and 4194304 bytes"},
		{"alias of itself", "name: &a [*a]", "line 1: nested deeper than 64 levels (an alias that contains itself?)"},
		{"too large", strings.Repeat(" ", MaxDocument+1), "4194305 bytes are too many: a file may have 4194304 at most; split it"},
		{"two documents", "name: a\nproviderType: x\n---\nname: b\n", "line 4: a second document begins here: give one definition at a time"},
		{"bad YAML", "name: a\n  b: c", "line 2: not valid YAML: mapping values are not allowed in this context"},
		{"YAML key twice", "name: a\nname: b\n", `line 2: the key "name" occurs here a second time (first on line 1): keep one`},
		{"infinity", "name: a\nproviderType: .inf\n", "line 2: .inf is not a number that can be kept: write it as a text, in quotes"},
		{"tag", "name: !!binary aGk=\n", "line 1: the tag !!binary is not understood: use texts, numbers, true, false, lists and mappings"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Definition(model.KindProvider, []byte(c.in))
			lines := faultsOf(err)
			if len(lines) == 0 || lines[0] != c.want {
				t.Errorf("\n got %q\nwant %q", lines, c.want)
			}
		})
	}
}

// The features of YAML that JSON lacks decode like the equivalent JSON.
func TestYAMLIsReadAsItsJSON(t *testing.T) {
	yaml := `
name: web
label: 2024
description: 2001-01-01
provisioner:
  actions:
    install: &run
      type: shell
      fields: {script: web.sh, args: "007", port: 0x50, share: .5, on: yes, really: true, none: ~, many: 1_000}
      timeout: 10m
    start:
      <<: *run
      timeout: 90s
restart_on_configure: false
`
	json := `{"name": "web", "label": "2024", "description": "2001-01-01", "provisioner": {"actions": {
		"install": {"type": "shell", "timeout": "10m",
			"fields": {"script": "web.sh", "args": "007", "port": 80, "share": 0.5, "on": "yes", "really": true, "none": null, "many": 1000}},
		"start": {"type": "shell", "timeout": "90s",
			"fields": {"script": "web.sh", "args": "007", "port": 80, "share": 0.5, "on": "yes", "really": true, "none": null, "many": 1000}}}},
		"restart_on_configure": false}`
	a, err := Definition(model.KindService, []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	b, err := Definition(model.KindService, []byte(json))
	if err != nil {
		t.Fatal(err)
	}
	if x, y := encoded(t, a), encoded(t, b); x != y {
		t.Errorf("YAML %s\nJSON %s", x, y)
	}
}

func encoded(t testing.TB, d model.Definition) string {
	t.Helper()
	b, err := model.Encode(d)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Older shapes become today's, and numbers may be texts and texts numbers
// where real files have them so.
func TestDecodeModernises(t *testing.T) {
	for _, c := range []struct {
		kind     model.Kind
		in, want string
	}{
		{model.KindService, `{"name":"web","dependson":["db"],"provisioner":{"actions":{"install":{"type":"chef","script":"recipe[web]","data":"{}"},"start":{"type":"shell","script":"web.sh","data":"start"}}}}`,
			`{"name":"web","dependencies":{"runtime":{"requires":["db"]}},"provisioner":{"actions":{"install":{"type":"chef-solo","fields":{"json_attributes":"{}","run_list":"recipe[web]"}},"start":{"type":"shell","fields":{"args":"start","script":"web.sh"}}}}}`},
		{model.KindProvider, `{"name":"rs","providertype":"rackspace","provisioner":{"auth":{"rackspace_username":"u"}}}`,
			`{"name":"rs","providertype":"rackspace","provisioner":{"rackspace_username":"u"}}`},
		{model.KindClusterTemplate, `{"name":"t","version":"7","constraints":{"services":{"web":{"quantities":{"min":"1","max":3.0,"stepSize":"2"}}},"size":{"min":"3"}},"administration":{"leaseduration":{"initial":"15m","step":"60000"}},"extends":"base","includes":["a"]}`,
			`{"name":"t","constraints":{"services":{"web":{"quantities":{"min":1,"max":3,"step":2}}},"size":{"min":3}},"administration":{"leaseduration":{"initial":900000,"max":0,"step":60000}},"extends":{"name":"base"},"includes":[{"name":"a"}]}`},
		{model.KindPartialTemplate, `{"name":"p","immutable":"true","defaults":{"services":["a",{"name":"b","config":{"x":1}}]}}`,
			`{"name":"p","defaults":{"services":["a",{"name":"b","config":{"x":1}}]},"immutable":true}`},
		{model.KindHardwareType, `{"name":"small","providermap":{"rs":{"flavor":4,"cost":"0.24","vcpu":2,"note":null}}}`,
			`{"name":"small","providermap":{"rs":{"cost":"0.24","flavor":"4","note":null,"vcpu":2}}}`},
		{model.KindProviderType, `{"name":"x","parameters":{"user":{"fields":{},"required":[[]]}},"resourceTypes":{}}`,
			`{"name":"x","class":"provider","parameters":{"user":{"required":[[]]}}}`},
	} {
		d, err := Definition(c.kind, []byte(c.in))
		if err != nil {
			t.Errorf("%s: %v", c.in, err)
			continue
		}
		if got := encoded(t, d); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.in, got, c.want)
		}
	}
}

// An explicit lease of 0 ("for ever") differs from no lease, and is kept.
func TestExplicitZeroLeaseIsKept(t *testing.T) {
	d, err := Definition(model.KindClusterTemplate, []byte(`{"name":"t","administration":{"leaseduration":{"initial":0,"max":0,"step":0}}}`))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"name":"t","administration":{"leaseduration":{"initial":0,"max":0,"step":0}}}`
	if got := encoded(t, d); got != want {
		t.Errorf("got %s", got)
	}
	again, err := model.Restore(model.KindClusterTemplate, []byte(want))
	if err != nil || encoded(t, again) != want {
		t.Errorf("restored: %v, %s", err, encoded(t, again))
	}
}

func TestNumbersAreKeptExactlyOrRefused(t *testing.T) {
	for in, want := range map[string]string{
		"0.1": "0.1", "1.50": "1.5", "-0": "-0", "9007199254740993": "", "9007199254740992": "9007199254740992",
		"1e400": "", "1e-400": "", "123456789.123456789": "", "1e2": "100", "0.10000000000000000000": "0.1",
	} {
		d, err := Definition(model.KindProvider, []byte(`{"name":"p","providertype":"x","provisioner":{"n":`+in+`}}`))
		if want == "" {
			if err == nil || !strings.Contains(err.Error(), "cannot be kept exactly") {
				t.Errorf("%s: got %v, %s", in, err, encoded(t, d))
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", in, err)
		} else if got := encoded(t, d); !strings.Contains(got, `"n":`+want+`}`) {
			t.Errorf("%s became %s", in, got)
		}
	}
}

func TestDecodeStrict(t *testing.T) {
	var v struct {
		Tenant struct {
			Name    string    `json:"name"`
			Workers model.Int `json:"workers"`
		} `json:"tenant"`
		Token model.Secret `json:"token"`
	}
	err := Strict([]byte(`{"tenant":{"name":"t","workes":3,"workers":[]},"token":1,"boot":true}`), &v)
	wantLines(t, err,
		`line 1: tenant.workes: unknown key: did you mean "workers"?`,
		`line 1: tenant.workers: must be a whole number, but is a list`,
		`line 1: token: must be a text, but is a number`,
		`line 1: boot: unknown key: it must be one of tenant, token`,
	)
	if err := Strict(nil, &v); err != nil {
		t.Errorf("an empty body: %v", err)
	}
}

// Input made to be slow is refused, not worked on. (No time is asserted: a
// quadratic rule would run for minutes here and end the test run.)
func TestHostileSizesAreRefused(t *testing.T) {
	names := strings.Repeat(`"a",`, 150_000) + `"a"`
	sets := strings.Repeat(`["a"],`, 60_000) + `["a"]`
	for _, c := range []struct {
		kind     model.Kind
		in, want string
	}{
		{model.KindClusterTemplate, `{"name":"t","compatibility":{"services":[` + names + `]}}`,
			`line 1: compatibility.services: has 150001 entries: at most 1000 are allowed`},
		{model.KindClusterTemplate, `{"name":"t","constraints":{"layout":{"mustcoexist":[` + sets + `],"cantcoexist":[` + sets + `]}}}`,
			`more than 200000 values: split the file`},
		{model.KindClusterTemplate, `{"name":"t","constraints":{"layout":{"mustcoexist":[[` + names + `]]}}}`,
			`constraints.layout: has 30000 entries: at most 1000 are allowed`},
		{model.KindService, `{"name":"s","dependencies":{"install":{"requires":[` + names + `]}}}`,
			`dependencies.install.requires: has 150001 entries`},
		{model.KindService, "name: s\n" + strings.Repeat("#", MaxYAML),
			`1048584 bytes are too many: a YAML file may have 1048576 at most; split it, or write JSON, which may have 4194304`},
		{model.KindService, "name: s\nx: " + strings.Repeat("[", 1_000_000), `exceeded max depth`},
	} {
		_, err := Definition(c.kind, []byte(c.in))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60s: %.200v", c.in, err)
		}
	}
	var keys strings.Builder
	for i := range 50_000 {
		fmt.Fprintf(&keys, `,"k%d":1`, i)
	}
	_, err := Definition(model.KindService, []byte(`{"name":"s"`+keys.String()+`}`))
	if lines := faultsOf(err); len(lines) != 201 || lines[200] != "and 49800 faults more" {
		t.Errorf("%d faults, the last %q", len(lines), lines[len(lines)-1])
	}
}
