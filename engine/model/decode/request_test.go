package decode

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/coopr/coopr/engine/model"
)

func TestCreateClusterIsReadAsTheOriginalsClientsWriteIt(t *testing.T) {
	r, err := CreateCluster([]byte(`{"name":"sample","clusterTemplate":"hadoop-distributed","numMachines":"5","provider":"rackspace",
 "providerFields":{"rackspace_username":"EXAMPLE_USERNAME","rackspace_region":"dfw"},
 "hardwaretype":"medium","imagetype":"ubuntu12","services":["base","hadoop-hdfs-namenode"],
 "initialLeaseDuration":0,"config":{"hadoop":{"core_site":{"fs.defaultFS":"hdfs://%host.service.hadoop-hdfs-namenode%"}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	forever := model.Millis(0)
	want := model.CreateCluster{
		Name:                 "sample",
		ClusterTemplate:      "hadoop-distributed",
		NumMachines:          5,
		Provider:             "rackspace",
		ProviderFields:       map[string]any{"rackspace_username": "EXAMPLE_USERNAME", "rackspace_region": "dfw"},
		HardwareType:         "medium",
		ImageType:            "ubuntu12",
		Services:             []string{"base", "hadoop-hdfs-namenode"},
		InitialLeaseDuration: &forever,
		Config: map[string]any{
			"hadoop": map[string]any{"core_site": map[string]any{"fs.defaultFS": "hdfs://%host.service.hadoop-hdfs-namenode%"}},
		},
	}
	if !reflect.DeepEqual(r, want) {
		t.Errorf("got %+v", r)
	}
	for _, body := range []string{
		`{"name":"a","clusterTemplate":"t","nodes":"3","initialLeaseDuration":-1}`,
		"name: a\nclusterTemplate: t\nnodes: 3\ninitialLeaseDuration: \"-1\"\n",
	} {
		r, err := CreateCluster([]byte(body))
		if err != nil || r.NumMachines != 3 || r.InitialLeaseDuration != nil {
			t.Errorf("%s: %+v, %v", body, r, err)
		}
	}
	var lenient model.CreateCluster
	if err := json.Unmarshal([]byte(`{"name":"a","nodes":"3","initialLeaseDuration":"2h","configMode":"replace"}`), &lenient); err != nil ||
		lenient.NumMachines != 3 || *lenient.InitialLeaseDuration != 7_200_000 || lenient.ConfigMode != model.ConfigReplace {
		t.Errorf("lenient: %+v, %v", lenient, err)
	}
	data, err := json.Marshal(want)
	var back model.CreateCluster
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
			`line 2: nodes: is another name of "numMachines", which is given too: keep one`,
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
			_, err := CreateCluster([]byte(c.body))
			wantLines(t, err, c.want...)
		})
	}
	if _, err := CreateCluster([]byte(`{"name":"a","clusterTemplate":"t","numMachines":10000}`)); err != nil {
		t.Errorf("10,000 nodes: %v", err)
	}
}

func TestOtherRequests(t *testing.T) {
	if r, err := ConfigureCluster([]byte(`{"config":{},"restart":false}`)); err != nil || r.Config == nil || r.Restart == nil ||
		*r.Restart {
		t.Errorf("%+v, %v", r, err)
	}
	_, err := ConfigureCluster([]byte(`{"restart":"maybe","confg":{}}`))
	wantLines(t, err, `line 1: restart: must be true or false, but is "maybe"`, `line 1: confg: unknown key: did you mean "config"?`)
	_, err = ConfigureCluster(nil)
	wantLines(t, err, `config: is missing: give the configuration that the cluster shall have`)
	if r, err := ServiceRequest(nil); err != nil || r.Services != nil {
		t.Errorf("%+v, %v", r, err)
	}
	_, err = ServiceRequest([]byte(`{"services":["a","a",""]}`))
	wantLines(t, err, `services[1]: a is already named at services[0]: keep one`,
		`services[2]: is missing: give a name of letters, digits, '.', '_' and '-'`)
	if r, err := DeleteCluster([]byte(`{"graceful":true,"providerFields":{"a":"b"}}`)); err != nil || !r.Graceful ||
		r.ProviderFields["a"] != "b" {
		t.Errorf("%+v, %v", r, err)
	}
	_, err = DeleteCluster([]byte(`{"gracefull":true}`))
	wantLines(t, err, `line 1: gracefull: unknown key: did you mean "graceful"?`)
}
