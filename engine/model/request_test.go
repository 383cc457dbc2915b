package model

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestCreateClusterIsReadAsTheOriginalsClientsWriteIt(t *testing.T) {
	r, err := DecodeCreateCluster([]byte(`{"name":"sample","clusterTemplate":"hadoop-distributed","numMachines":"5","provider":"rackspace",
 "providerFields":{"rackspace_username":"EXAMPLE_USERNAME","rackspace_region":"dfw"},
 "hardwaretype":"medium","imagetype":"ubuntu12","services":["base","hadoop-hdfs-namenode"],
 "initialLeaseDuration":0,"config":{"hadoop":{"core_site":{"fs.defaultFS":"hdfs://%host.service.hadoop-hdfs-namenode%"}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	forever := Millis(0)
	want := CreateCluster{
		Name: "sample", ClusterTemplate: "hadoop-distributed", NumMachines: 5, Provider: "rackspace",
		ProviderFields: map[string]any{"rackspace_username": "EXAMPLE_USERNAME", "rackspace_region": "dfw"},
		HardwareType:   "medium", ImageType: "ubuntu12", Services: []string{"base", "hadoop-hdfs-namenode"}, InitialLeaseDuration: &forever,
		Config: map[string]any{"hadoop": map[string]any{"core_site": map[string]any{"fs.defaultFS": "hdfs://%host.service.hadoop-hdfs-namenode%"}}},
	}
	if !reflect.DeepEqual(r, want) {
		t.Errorf("got %+v", r)
	}
	for _, body := range []string{
		`{"name":"a","clusterTemplate":"t","nodes":"3","initialLeaseDuration":-1}`,
		"name: a\nclusterTemplate: t\nnodes: 3\ninitialLeaseDuration: \"-1\"\n",
	} {
		r, err := DecodeCreateCluster([]byte(body))
		if err != nil || r.NumMachines != 3 || r.InitialLeaseDuration != nil {
			t.Errorf("%s: %+v, %v", body, r, err)
		}
	}
	var lenient CreateCluster
	if err := json.Unmarshal([]byte(`{"name":"a","nodes":"3","initialLeaseDuration":"2h","configMode":"replace"}`), &lenient); err != nil ||
		lenient.NumMachines != 3 || *lenient.InitialLeaseDuration != 7_200_000 || lenient.ConfigMode != ConfigReplace {
		t.Errorf("lenient: %+v, %v", lenient, err)
	}
	data, err := json.Marshal(want)
	var back CreateCluster
	if err != nil || json.Unmarshal(data, &back) != nil || !reflect.DeepEqual(back, want) {
		t.Errorf("round trip: %s, %+v, %v", data, back, err)
	}
}

func TestCreateClusterGivesEveryFaultAtOnce(t *testing.T) {
	for _, c := range []struct {
		name, body string
		want       []string
	}{
		{"nothing", `{}`, []string{
			`name: is missing: give a name of letters, digits, '.', '_' and '-'`,
			`clusterTemplate: is missing: name the cluster template to make the cluster of`,
			`numMachines: is missing or 0: say how many nodes the cluster shall have, at least 1`,
		}},
		{"no body", ``, []string{
			`name: is missing: give a name of letters, digits, '.', '_' and '-'`,
			`clusterTemplate: is missing: name the cluster template to make the cluster of`,
			`numMachines: is missing or 0: say how many nodes the cluster shall have, at least 1`,
		}},
		{"all wrong", `{"name":"my cluster","clusterTemplat":"t","numMachines":10001,"services":["a","a","b c"],"initialLeaseDuration":-2,
"dnsSuffix":"exa_mple..com","configMode":"deep","onFailure":"retry","config":[],"nodes":3}`, []string{
			`line 2: nodes: is another name of "numMachines", which stands here too: keep one`,
			`line 1: clusterTemplat: unknown key: did you mean "clusterTemplate"?`,
			`line 1: initialLeaseDuration: must be a duration, but is -2: write milliseconds, or a whole number with s, m, h or d, such as "2h"`,
			`line 2: config: must be an object, but is a list`,
			`name: "my cluster" contains " ": only letters, digits, '.', '_' and '-' are allowed`,
			`clusterTemplate: is missing: name the cluster template to make the cluster of`,
			`numMachines: 10001 is more than the 10000 nodes that a cluster may have`,
			`services[1]: a is already named at services[0]: keep one`,
			`services[2]: "b c" contains " ": only letters, digits, '.', '_' and '-' are allowed`,
			`dnsSuffix: "exa_mple..com" is not a name of the DNS: "exa_mple" must be letters, digits and inner '-', such as "example.com"`,
			`configMode: must be "merge" or "replace", but is "deep"`,
			`onFailure: must be "delete", "pause" or "leave", but is "retry"`,
		}},
		{"negative", `{"name":"a","clusterTemplate":"t","numMachines":-1}`,
			[]string{`numMachines: -1 is less than 1: say how many nodes the cluster shall have`}},
		{"no number", `{"name":"a","clusterTemplate":"t","numMachines":"five"}`,
			[]string{`line 1: numMachines: must be a whole number, but is "five"`}},
		{"half", `{"name":"a","clusterTemplate":"t","numMachines":2.5}`,
			[]string{`line 1: numMachines: must be a whole number of at most 16 digits, but is 2.5`}},
		{"huge", `{"name":"a","clusterTemplate":"t","numMachines":1e300}`,
			[]string{`line 1: numMachines: must be a whole number of at most 16 digits, but is 1e300`}},
		{"unknown alone", `{"nam":"x"}`, []string{
			`line 1: nam: unknown key: did you mean "name"?`,
			`name: is missing: give a name of letters, digits, '.', '_' and '-'`,
			`clusterTemplate: is missing: name the cluster template to make the cluster of`,
			`numMachines: is missing or 0: say how many nodes the cluster shall have, at least 1`,
		}},
		{"a list", `[]`, []string{`line 1: must be an object, but is a list`}},
		{"no JSON", `{"name"`, []string{
			`line 1: not valid JSON: column 7: the text ends too early: a closing } or ] is missing`,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := DecodeCreateCluster([]byte(c.body))
			wantLines(t, err, c.want...)
		})
	}
	if _, err := DecodeCreateCluster([]byte(`{"name":"a","clusterTemplate":"t","numMachines":10000}`)); err != nil {
		t.Errorf("10,000 nodes: %v", err)
	}
}

func TestOtherRequests(t *testing.T) {
	if r, err := DecodeConfigureCluster([]byte(`{"config":{},"restart":false}`)); err != nil || r.Config == nil || r.Restart == nil ||
		*r.Restart {
		t.Errorf("%+v, %v", r, err)
	}
	_, err := DecodeConfigureCluster([]byte(`{"restart":"maybe","confg":{}}`))
	wantLines(t, err, `line 1: restart: must be true or false, but is "maybe"`, `line 1: confg: unknown key: did you mean "config"?`)
	_, err = DecodeConfigureCluster(nil)
	wantLines(t, err, `config: is missing: give the configuration that the cluster shall have`)
	if r, err := DecodeServiceRequest(nil); err != nil || r.Services != nil {
		t.Errorf("%+v, %v", r, err)
	}
	_, err = DecodeServiceRequest([]byte(`{"services":["a","a",""]}`))
	wantLines(t, err, `services[1]: a is already named at services[0]: keep one`,
		`services[2]: is missing: give a name of letters, digits, '.', '_' and '-'`)
	if r, err := DecodeDeleteCluster([]byte(`{"graceful":true,"providerFields":{"a":"b"}}`)); err != nil || !r.Graceful ||
		r.ProviderFields["a"] != "b" {
		t.Errorf("%+v, %v", r, err)
	}
	_, err = DecodeDeleteCluster([]byte(`{"gracefull":true}`))
	wantLines(t, err, `line 1: gracefull: unknown key: did you mean "graceful"?`)
}

func TestChoose(t *testing.T) {
	d, err := Decode(KindClusterTemplate, []byte(`
name: t
defaults:
  services: [base, {name: web, config: {port: 80}}]
  provider: p
  hardwaretype: small
  imagetype: linux
  dnsSuffix: example.com
  config: {web: {host: here, port: 1}, log: {level: info}}
compatibility: {hardwaretypes: [small, large], imagetypes: [bsd], services: [base, web, db]}
constraints: {size: {min: 2, max: 4}}
administration: {leaseduration: {initial: 1h}}
`))
	if err != nil {
		t.Fatal(err)
	}
	tpl := *d.Value.(*ClusterTemplate)
	r := CreateCluster{Name: "c", NumMachines: 3, ImageType: "bsd", Config: map[string]any{"log": map[string]any{"file": "x"}, "web": nil}}
	got, err := r.Choose(tpl)
	want := Choice{Provider: "p", HardwareType: "small", ImageType: "bsd", Services: []string{"base", "web"}, DNSSuffix: "example.com",
		Config: map[string]any{"log": map[string]any{"level": "info", "file": "x"}}, Lease: 3_600_000}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	r.ConfigMode = ConfigReplace
	if got, _ = r.Choose(tpl); !reflect.DeepEqual(got.Config, r.Config) {
		t.Errorf("replace: %v", got.Config)
	}
	r.Config = nil
	if got, _ = r.Choose(tpl); !reflect.DeepEqual(got.Config["web"], map[string]any{"host": "here", "port": 80.0}) {
		t.Errorf("silent: %v", got.Config)
	}
	long := Millis(7_200_000)
	_, err = CreateCluster{NumMachines: 5, HardwareType: "smal", Services: []string{"base", "dbb"}, InitialLeaseDuration: &long}.Choose(tpl)
	wantLines(t, err,
		`numMachines: 5 is more than the 4 nodes that template t allows`,
		`hardwaretype: hardware type smal is not compatible with template t: did you mean "small"?`,
		`imagetype: the default image type linux of template t is not among its compatible ones: choose another (bsd are)`,
		`services[1]: service dbb is not compatible with template t: did you mean "db"?`,
		`initialLeaseDuration: 2h is longer than the 1h that the template allows`)
	_, err = CreateCluster{NumMachines: 1}.Choose(ClusterTemplate{Base: Base{Name: "u"}, Constraints: Constraints{Size: tpl.Constraints.Size}})
	wantLines(t, err,
		`provider: is missing, and template u names no default: name one`,
		`numMachines: 1 is less than the 2 nodes that template u needs at least`)
}

func TestMergeConfig(t *testing.T) {
	base := map[string]any{"a": 1.0, "m": map[string]any{"x": 1.0, "deep": map[string]any{"k": "v"}}, "l": []any{1.0}, "gone": 1.0}
	over := map[string]any{"m": map[string]any{"y": 2.0, "deep": map[string]any{"k": "w"}}, "l": []any{2.0}, "gone": nil,
		"a": map[string]any{"now": "object"}, "e": map[string]any{}}
	want := map[string]any{"a": map[string]any{"now": "object"}, "m": map[string]any{"x": 1.0, "y": 2.0, "deep": map[string]any{"k": "w"}},
		"l": []any{2.0}, "e": map[string]any{}}
	before, _ := json.Marshal(base)
	if got := MergeConfig(base, over); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v", got)
	}
	if after, _ := json.Marshal(base); string(after) != string(before) {
		t.Errorf("the base changed: %s", after)
	}
	if got := CombineConfig(base, map[string]any{}, ConfigReplace); len(got) != 0 {
		t.Errorf("replaced by nothing: %v", got)
	}
}

// docs/spec/coopr.md appendix A, "Lease parse", "Initial lease", "Prolong".
func TestLeases(t *testing.T) {
	for text, want := range map[string]Millis{"7d": 604800000, "3s": 3000, "5m": 300000, "10h": 36000000, "0": 0, "1500": 1500} {
		if got, err := ParseMillis(text); err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"-15s", "1v", "invalidNumbers", "", "s", "+5", "9223372036854775807d", "1.5h"} {
		if got, err := ParseMillis(text); err == nil {
			t.Errorf("%q: %d", text, got)
		}
	}
	ms := func(m Millis) *Millis { return &m }
	for _, c := range []struct {
		initial   Millis
		requested *Millis
		want      Millis
		fault     string
	}{
		{900_000, ms(2000), 2000, ""},
		{300_000, nil, 300_000, ""},
		{300_000, ms(-2), 0, "must not be negative"},
		{300_000, ms(360_000), 0, "6m is longer than the 5m that the template allows"},
		{0, ms(1<<63 - 1), 1<<63 - 1, ""},
		{0, ms(200), 200, ""}, {0, ms(0), 0, ""}, {0, nil, 0, ""},
		{10_000, ms(20_000), 0, "20s is longer than the 10s"},
		{10_000, ms(10_000), 10_000, ""}, {10_000, ms(500), 500, ""},
		{10_000, ms(0), 0, "must have an end: ask for at most 10s"},
		{10_000, nil, 10_000, ""},
	} {
		got, err := InitialLease(LeaseDuration{Initial: c.initial}, c.requested)
		if got != c.want || (err == nil) != (c.fault == "") || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%d, %v: %d, %v", c.initial, c.requested, got, err)
		}
	}
	if ExpiryOf(5, 0) != 0 || ExpiryOf(5, 10) != 15 {
		t.Error("ExpiryOf")
	}
}

func TestHostname(t *testing.T) {
	a55 := strings.Repeat("a", 55)
	for _, c := range []struct {
		name, id string
		number   int
		suffix   string
		want     string
	}{
		{"123i.am-a_clusTer", "00000001", 1002, "", "i-am-a-cluster1-1002.local"},
		{a55 + "bcde", "00000123", 1002, "dev.company.com", a55 + "123-1002.dev.company.com"},
		{"My_Cluster", "00000053", 1000, "", "my-cluster53-1000.local"},
		{"42", "00000007", 1000, ".Example.COM", "7-1000.example.com"},
		{"...", "00000007", 1000, "", "7-1000.local"},
		{"web", "c-9f3a", 1000, "", "webc-9f3a-1000.local"},
		{"web", strings.Repeat("f", 80), 1000, "", strings.Repeat("f", 58) + "-1000.local"},
	} {
		if got := Hostname(c.name, c.id, c.number, c.suffix); got != c.want {
			t.Errorf("%s, %s: got %s, want %s", c.name, c.id, got, c.want)
		}
		first, _, _ := strings.Cut(Hostname(c.name, c.id, c.number, c.suffix), ".")
		if len(first) > 63 || !label.MatchString(first) {
			t.Errorf("%s: %s is no label", c.name, first)
		}
	}
}
