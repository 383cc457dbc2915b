package model

import (
	"encoding/json"
	"reflect"
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
	// The shape of data/coopr/provisioner-spec/task.json: number as text, results beside the fixed keys.
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
