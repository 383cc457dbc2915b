package executor

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/coopr/coopr/agent/config"
	"github.com/coopr/coopr/engine/hostexec"
	"github.com/coopr/coopr/plugins/host"
	pb "github.com/coopr/coopr/rpc/proto"
)

// TestGuard checks which tasks an agent refuses by its settings, no matter which user requested them.
func TestGuard(t *testing.T) {
	h, err := host.New(host.Config{DataDir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	mine := config.Config{}.Rules().Own() // this machine's
	own, err := json.Marshal(map[string]any{"config": map[string]any{
		"ipaddresses": map[string]any{"access_v4": mine[len(mine)-1]}, "results": map[string]any{"ssh_host_keys": map[string]any{}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		task    *pb.Task
		refused bool
	}{
		"local":           {&pb.Task{Plugin: "local"}, true},
		"socket":          {&pb.Task{Plugin: "docker", Input: []byte(`{"config":{"provider":{"provisioner":{"engine":"unix:///x"}}}}`)}, true},
		"engine":          {&pb.Task{Plugin: "docker", Input: []byte(`{"config":{"provider":{"provisioner":{"engine":"tcp://10.0.0.1:1"}}}}`)}, false},
		"cloud":           {&pb.Task{Plugin: "aws"}, false},
		"local transport": {&pb.Task{Plugin: "shell", Automator: true, Input: []byte(`{"config":{"results":{"transport":"local"}}}`)}, true},
		"by SSH":          {&pb.Task{Plugin: "shell", Automator: true, Input: []byte(`{"config":{"results":{"transport":"ssh"}}}`)}, false},
		"own address":     {&pb.Task{Plugin: "shell", Automator: true, Input: own}, true},
		"playbook":        {&pb.Task{Plugin: "ansible", Automator: true, Tenant: "acme"}, true},
		"their playbook":  {&pb.Task{Plugin: "ansible", Automator: true, Tenant: "trusted"}, false},
		"nonsense":        {&pb.Task{Plugin: "shell", Automator: true, Input: []byte(`{`)}, true},
	} {
		strict := NewGuard(h, config.Config{Interpreters: []string{"trusted/ansible"}}.Rules())
		if res := strict.Execute(context.Background(), c.task, nil); strings.Contains(res.Message, "host_exec") != (c.refused && name != "nonsense") ||
			res.Outcome != pb.Outcome_OUTCOME_NOTHING_DONE {
			t.Errorf("%s: %v", name, res)
		}
		if res := NewGuard(h, hostexec.Rules{HostExec: true}).Execute(context.Background(), c.task, nil); strings.Contains(res.Message, "host_exec") {
			t.Errorf("%s: %v", name, res)
		}
	}
	fields, err := json.Marshal(map[string]any{"host": "127.0.0.1:16509"})
	if err != nil {
		t.Fatal(err)
	}
	strict := NewGuard(h, hostexec.Rules{})
	if err := strict.List(context.Background(), "libvirt", &pb.ListRequest{Fields: fields}, nil); err == nil || !strings.Contains(err.Error(), "host_exec") {
		t.Error("list:", err)
	}
	if err := strict.Remove(context.Background(), "local", &pb.RemoveRequest{}); err == nil || !strings.Contains(err.Error(), "host_exec") {
		t.Error("remove:", err)
	}
}
