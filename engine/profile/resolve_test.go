package profile

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
)

// TestFinal checks the order of overrides, locked properties, and properties that are in no
// specification (the original's ProfileServiceTest).
func TestFinal(t *testing.T) {
	no := false
	p := Profile{Provisioner: Provisioner{Properties: []Property{{Name: "editable1", Value: "val"}, {Name: "editable2", Value: "val"},
		{Name: "final", Value: "finalval", Editable: &no}}}}
	key := func(n string) string { return PropertyPrefix + n }
	final, ignored := p.Final(Levels{
		{key("editable1"): "system", key("editable2"): "system"},
		{key("editable1"): "tenant", key("final"): "shouldnotwork"},
		{key("editable1"): "program"},
		{key("editable1"): "newval", key("newarg"): "val", "unrelated": "x"},
	})
	want := map[string]string{"editable1": "newval", "editable2": "system", "final": "finalval", "newarg": "val"}
	if !reflect.DeepEqual(Values(final), want) || !reflect.DeepEqual(ignored, []string{"final"}) {
		t.Error(final, ignored)
	}
	if got := Values(p.Provisioner.Properties); got["editable1"] != "val" {
		t.Error("the profile itself was changed", got)
	}
}

// TestUnreadKeys finds keys that nothing reads, and names the nearest one.
func TestUnreadKeys(t *testing.T) {
	specs := []Spec{NativeSpec(), ClusterSpec(nil)}
	for key, want := range map[string]string{
		ProfileKey: "", PropertyPrefix + "numMachines": "", PropertyPrefix + "services": "", PropertyPrefix + "providerField.any": "",
		RunsKey:                         "is read only from the preferences of a program, of the tenant and of the system",
		LaunchingKey:                    "is read only from the preferences of a program, of the tenant and of the system",
		PropertyPrefix + "numMachine":   `no provisioner has a property "numMachine": did you mean "numMachines"?`,
		PropertyPrefix + "flavor":       `no provisioner has a property "flavor"`,
		"system.profile.nam":            `nothing reads it: did you mean "system.profile.name"?`,
		"sytem.profil.property.flavour": `nothing reads it: did you mean "system.profile.properties.flavour"?`,
		PropertyPrefix:                  `nothing reads it: did you mean "system.profile.properties.NAME"?`,
		"":                              "nothing reads it: the keys are system.profile.name and system.profile.properties.NAME",
		"greeting":                      "nothing reads it: the keys are system.profile.name and system.profile.properties.NAME",
	} {
		fs := UnreadKeys(map[string]string{key: "1"}, OfRun, specs)
		if got := strings.TrimPrefix(fs.Error(), "properties."+key+": "); want == "" != (len(fs) == 0) || want != "" && got != want {
			t.Errorf("%q: %s", key, got)
		}
	}
	limits := map[string]string{RunsKey: "1", LaunchingKey: "1"}
	for _, of := range []Level{OfSystem, OfTenant, OfProgram} {
		if fs := UnreadKeys(limits, of, specs); len(fs) > 0 {
			t.Error(of, fs)
		}
		fs := UnreadKeys(map[string]string{"system.run.max": "1"}, of, specs)
		if len(fs) != 1 || fs[0].Path != "properties.system.run.max" || !strings.Contains(fs[0].Message, `"system.runs.max"`) {
			t.Error(of, fs)
		}
	}
	p := Profile{Name: "p", Provisioner: Provisioner{Name: Native, Properties: []Property{{Name: "numMachnes", Value: "2"}}}}
	if fs := p.Check(&specs[0], nil); len(fs) != 1 || fs[0].Message != `provisioner native has no property "numMachnes": did you mean "numMachines"?` {
		t.Error(fs)
	}
}

func TestChoose(t *testing.T) {
	l := Levels{}
	for i, c := range []struct{ set, want string }{{"", "SYSTEM:native"}, {"SYSTEM:a", "SYSTEM:a"}, {"b", "USER:b"}, {"user:c", "USER:c"},
		{"native", "SYSTEM:native"}} {
		if i > 0 {
			l[i-1] = map[string]string{ProfileKey: c.set}
		}
		if got, err := l.Choose(); err != nil || got.String() != c.want {
			t.Errorf("%v: %s %v", l, got, err)
		}
	}
	if _, err := ParseRef("OTHER:x"); err == nil {
		t.Error("a scope that there is not")
	}
}

// TestPV15: a reference gives the value of the secret, and nothing else is looked up.
func TestPV15(t *testing.T) {
	secrets := func(_, name string) (string, error) {
		if name != "key" {
			return "", fmt.Errorf("there is no secret %q", name)
		}
		return "value of " + name, nil
	}
	got, err := Reveal(map[string]string{"x": "${secure(key)}", "y": "a${secure(key)}b", "z": "${env(HOME)} ${key}"}, secrets)
	if err != nil || got["x"] != "value of key" || got["y"] != "avalue of keyb" || got["z"] != "${env(HOME)} ${key}" {
		t.Error(got, err)
	}
	if _, err := Reveal(map[string]string{"x": "${secure(other)}"}, secrets); err == nil || err.Error() != `x: there is no secret "other"` {
		t.Error(err)
	}
	spec := PluginSpec(model.PluginType{Base: model.Base{Name: "p"},
		Parameters: model.PluginParameters{Admin: model.PluginFields{Fields: map[string]model.FieldSchema{"token": {Type: "password"}}}}})
	if spec.Judge("providerField.token", "plain") == "" || spec.Judge("providerField.token", "${secure(token)}") != "" {
		t.Error("a secret in plain text")
	}
}

// TestPV16To18: what programs need and a provisioner's clusters do not have.
func TestPV16To18(t *testing.T) {
	c := func(kind, name string) Capability { return Capability{kind, name} }
	table, unicorn, dragon := c("dataset", "table"), c("dataset", "unicorn"), c("dataset", "dragon")
	has := []Capability{table}
	wants := []ProgramNeeds{{"p1", []Capability{table, unicorn}}, {"p2", []Capability{table, dragon}}, {"p3", nil}}
	for _, x := range []struct {
		name string
		has  []Capability
		want []ProgramNeeds
		out  []ProgramNeeds
	}{
		{"PV-16 two plugins need more than there is", has, wants, []ProgramNeeds{{"p1", []Capability{unicorn}}, {"p2", []Capability{dragon}}}},
		{"PV-16 the same name of another kind is another", []Capability{c("service", "table")}, []ProgramNeeds{{"p", []Capability{table}}},
			[]ProgramNeeds{{"p", []Capability{table}}}},
		{"PV-17 no capabilities, all is missing", nil, wants, wants[:2]},
		{"PV-17 nothing is needed, nothing is missing", nil, []ProgramNeeds{{"p", nil}}, nil},
	} {
		t.Run(x.name, func(t *testing.T) {
			if got := Unmet(x.has, x.want); !reflect.DeepEqual(got, x.out) {
				t.Errorf("%v", got)
			}
		})
	}
	r := New("r", "t", Program{Requires: wants}, 0)
	if err := r.Fits(Spec{Name: "s", Capabilities: has}, nil); err == nil || !strings.Contains(err.Error(), "p1 needs dataset unicorn") {
		t.Error(err)
	}
}

// TestNodeMinutes checks the count of whole minutes and the rounding of the remainder (docs/spec/profiles.md
// §9).
func TestNodeMinutes(t *testing.T) {
	for _, c := range []struct {
		n        int
		ms       int64
		over     bool
		want     int64
		fromZero bool
	}{
		{5, 0, false, 0, false}, {5, 60_000, false, 5, false}, {5, 119_999, false, 5, false}, {5, 120_000, false, 10, false},
		{1, 0, true, 1, false}, {1, 29_000, true, 1, false}, {1, 90_000, true, 2, false}, {1, 65_000, true, 1, false},
		{1, 60_000, true, 1, false},
		{1, 60_000, true, 0, true},
	} {
		from := int64(1000)
		if c.fromZero {
			from = 0
		}
		if got := NodeMinutes(c.n, from, from+c.ms, c.over); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

// TestSchema checks that all faults of a profile are reported together.
func TestSchema(t *testing.T) {
	spec := NativeSpec()
	bad := -2
	p := Profile{Name: "a b", Provisioner: Provisioner{Name: Native,
		Properties: []Property{{Name: PropNodes, Value: "none"}, {Name: ""}, {Name: PropNodes, Value: "2"}}}, Timeout: -1,
		Limits: Limits{Runs: &bad}}
	var paths []string
	for _, f := range p.Check(&spec, []string{Native}) {
		paths = append(paths, f.Path)
	}
	if got := strings.Join(paths, " "); got != "limits.runs name provisioner.properties[0].value provisioner.properties[1].name "+
		"provisioner.properties[2].name timeout" {
		t.Error(got)
	}
	if fs := (&Profile{Name: "a", Provisioner: Provisioner{Name: "nativ"}}).Check(nil, []string{Native}); len(fs) != 1 ||
		!strings.Contains(fs[0].Message, `did you mean "native"`) {
		t.Error(fs)
	}
	prog := Program{Name: "p", Steps: []Step{{On: "all"},
		{Name: "x", Script: "a", Command: []string{"b"}, Files: map[string]string{"/etc/passwd": ""}, ExitCodes: []int{256},
			Env: map[string]string{"COOPR_X": ""}}}}
	prog.Complete()
	if fs := prog.Check(); len(fs) != 6 {
		t.Error(fs)
	}
	large := Program{Name: "p", Steps: []Step{{Name: "a", Script: strings.Repeat("x", 1<<19)},
		{Name: "b", Command: []string{"b"}, Files: map[string]string{"f": strings.Repeat("x", 1<<19+1)}}}}
	large.Complete()
	if fs := large.Check(); len(fs) != 1 || fs[0].Path != "steps" {
		t.Error(fs)
	}
}
