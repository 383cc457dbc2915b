package model

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestTaskInputRoundTrip(t *testing.T) {
	in := TaskInput{TaskID: "op-1/3", Job: "op-1", Cluster: "00000139", TaskName: "INSTALL", NodeID: "n1", Config: TaskConfig{
		Cluster:  map[string]any{"hadoop": map[string]any{"fs": "hdfs://x"}},
		Service:  &TaskService{Name: "dn", Action: TaskAction{Type: "shell", Fields: map[string]any{"script": "a.sh"}}},
		Hostname: "h.local", IPAddresses: map[string]string{"access_v4": "1.2.3.4"}, NodeNum: 1001,
		Nodes:   map[string]TaskNode{"n2": {Hostname: "o.local", NodeNum: 1002}},
		Results: map[string]any{"providerid": "9a1c", "hostname": "clash", "ssh-auth": map[string]any{"user": "root"}},
	}}
	b, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var raw struct{ Config map[string]any }
	if err := json.Unmarshal(b, &raw); err != nil {
		t.Fatal(err)
	}
	if raw.Config["providerid"] != "9a1c" || raw.Config["hostname"] != "h.local" {
		t.Errorf("flattened results: %s", b)
	}
	var out TaskInput
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(in, out) {
		t.Errorf("got  %+v\nwant %+v", out, in)
	}

	in.Config.ClusterJSON, in.Config.Cluster = json.RawMessage(`{"hadoop":{"fs":"hdfs://x"}}`), nil
	again, err := json.Marshal(in)
	if err != nil || string(again) != string(b) {
		t.Errorf("encoded before: %v\n%s\n%s", err, again, b)
	}
}

func TestTaskInputOriginal(t *testing.T) {
	// The shape of data/coopr/provisioner-spec/task.json: number as text, results at the level of the fixed
	// keys.
	var in TaskInput
	err := json.Unmarshal([]byte(`{"taskId":"t","jobId":"j","clusterId":"c","taskName":"BOOTSTRAP","nodeId":"n",
		"config":{"cluster":{},"nodenum":"1000","providerid":"p","nodes":{"n":{"ipaddress":"1","nodenum":"1000"}}}}`), &in)
	if err != nil {
		t.Fatal(err)
	}
	if in.Config.NodeNum != 1000 || in.Config.Results["providerid"] != "p" || in.Config.Nodes["n"].NodeNum != 1000 {
		t.Errorf("%+v", in)
	}
}

// An automator's output cannot redirect agents to another machine.
func TestCheckOutput(t *testing.T) {
	for output, allowed := range map[string]struct{ install, create bool }{
		``:                               {true, true},
		`{"hostname":"a"}`:               {true, true},
		`{"result":{"port":80,"x":"y"}}`: {true, true},
		`{"result":{"transport":"local","providerid":"/"}}`: {false, true},
		`{"result":{"providerid":"/etc"}}`:                  {false, true},
		`{"result":{"machine":"m"}}`:                        {false, true},
		`{"result":{"ssh-auth":{"user":"root"}}}`:           {false, true},
		`{"result":{"ssh_address":"127.0.0.1"}}`:            {false, true},
		`{"result":{"ssh_host_keys":{}}}`:                   {false, true},
		`{"result":{"ssh_jump":[]}}`:                        {false, true},
		`{"result":{"zone":"z"}}`:                           {false, true},
		`{"result":{"host":"h"}}`:                           {false, true},
		`{"Result":{"transport":"local"}}`:                  {false, true},
		`{"result":{},"result":{"transport":"local"}}`:      {false, true},
		`{"ipaddresses":{"access_v4":"127.0.0.1"}}`:         {false, true},
		`nonsense`: {false, false},
		`{"result":{"x":"` + strings.Repeat("x", MaxTaskOutput) + `"}}`:                            {false, false},
		`{"result":{"x":"` + strings.Repeat("x", MaxTaskOutput-len(`{"result":{"x":""}}`)) + `"}}`: {true, true},
	} {
		for action, want := range map[Action]bool{Install: allowed.install, Bootstrap: allowed.install, Run: allowed.install,
			Create: allowed.create, Confirm: allowed.create} {
			if err := action.CheckOutput([]byte(output)); err == nil != want {
				t.Errorf("%s: %.60s: %v", action, output, err)
			}
		}
	}
}
