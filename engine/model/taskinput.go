package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// TaskInput is the input of a task for its plugin, as JSON (docs/spec/coopr.md 6.1, with the
// changes of docs/spec/planner.md "What a task carries"). The leader makes it; plugins and
// scripts read it.
type TaskInput struct {
	TaskID   string     `json:"taskId"`
	Job      string     `json:"jobId"` // the operation
	Cluster  string     `json:"clusterId"`
	TaskName string     `json:"taskName"` // the action: "INSTALL"
	NodeID   string     `json:"nodeId"`
	Config   TaskConfig `json:"config"`
	// Parameters are the parameters of the task's plan, by the names of environment variables.
	Parameters map[string]string `json:"parameters,omitempty"`
	// Identity is the token with which the task identifies itself elsewhere, a JWT, if its definition asks for one. It is a secret.
	Identity string `json:"identity,omitempty"`
}

// TaskConfig is everything that a plugin may need to know about the node, its cluster and the
// action.
type TaskConfig struct {
	// Cluster is the cluster's configuration. For software tasks its macros are expanded. If
	// ClusterJSON is set, it is written in place of Cluster: the leader expands and encodes it
	// once for all tasks of a node's service. Decoding sets Cluster only.
	Cluster     map[string]any  `json:"cluster"`
	ClusterJSON json.RawMessage `json:"-"`
	ClusterName string          `json:"clustername,omitempty"`

	// Service is nil for actions of the node.
	Service *TaskService `json:"service,omitempty"`

	Hostname     string            `json:"hostname,omitempty"`
	IPAddresses  map[string]string `json:"ipaddresses,omitempty"` // access_v4, bind_v4, …
	NodeNum      Int               `json:"nodenum"`
	HardwareType string            `json:"hardwaretype,omitempty"`
	ImageType    string            `json:"imagetype,omitempty"`
	Flavor       string            `json:"flavor,omitempty"`
	Image        string            `json:"image,omitempty"`
	SSHUser      string            `json:"sshuser,omitempty"`
	// Zone and Host are the place where the machine is, or is to be made; "" leaves it to the
	// provider.
	Zone       string       `json:"zone,omitempty"`
	Host       string       `json:"host,omitempty"`
	Automators []string     `json:"automators,omitempty"`
	Services   []string     `json:"services,omitempty"`
	Provider   TaskProvider `json:"provider,omitzero"`
	// Nodes maps the id of each node to which the configuration refers to the properties of that node.
	Nodes map[string]TaskNode `json:"nodes,omitempty"`

	// Results are the values that plugins returned for this node earlier ("providerid",
	// "transport", …). They are written under "results" and also, as Coopr's scripts expect,
	// next to the fixed keys. A fixed key is never overwritten.
	Results map[string]any `json:"results,omitempty"`

	// Saved are the values that plugins keep about this node in the replicated state, by key.
	Saved map[string]json.RawMessage `json:"saved,omitempty"`
}

// TaskService is the service of a task, with the task's action only.
type TaskService struct {
	Name   string     `json:"name"`
	Action TaskAction `json:"action"`
}

// TaskAction is the automator type and the values of its fields.
type TaskAction struct {
	Type   string         `json:"type"`
	Fields map[string]any `json:"fields,omitempty"`
}

// TaskProvider is the provider of the node. Provisioner holds the values of the provider's admin and
// user fields. It is nil in the tasks of automators, so that only providers see these values.
type TaskProvider struct {
	Name         string         `json:"name,omitempty"`
	Description  string         `json:"description,omitempty"`
	ProviderType string         `json:"providertype,omitempty"`
	Provisioner  map[string]any `json:"provisioner,omitempty"`
}

// TaskNode has the properties of another node that a task may know.
type TaskNode struct {
	Hostname     string            `json:"hostname,omitempty"`
	IPAddresses  map[string]string `json:"ipaddresses,omitempty"`
	NodeNum      Int               `json:"nodenum"`
	HardwareType string            `json:"hardwaretype,omitempty"`
	ImageType    string            `json:"imagetype,omitempty"`
	Zone         string            `json:"zone,omitempty"`
	Services     []string          `json:"services,omitempty"`
	Automators   []string          `json:"automators,omitempty"`
}

// TaskOutput is what a plugin returns besides success (docs/spec/coopr.md 6.2): properties of
// the node, and results to keep for later tasks. The results "zone" and "host" of a provider
// are the place of the machine.
type TaskOutput struct {
	Hostname    string            `json:"hostname,omitempty"`
	IPAddresses map[string]string `json:"ipaddresses,omitempty"`
	Result      map[string]any    `json:"result,omitempty"`
}

// MaxTaskOutput bounds the output of a task, in bytes.
const MaxTaskOutput = 256 << 10

// ErrMalformedOutput means that the plugin's output cannot be read, so the outcome of the task is
// unknown.
var ErrMalformedOutput = errors.New("the plugin's output is malformed")

// CheckOutput returns an error if a task with this action must not have this output, and
// ErrMalformedOutput if the output cannot be read. Only the provider of a node sets how agents reach
// the node: an automator's output may come from the node itself, and could otherwise lead the agents,
// with the node's credentials, to another machine or back to themselves.
func (a Action) CheckOutput(output []byte) error {
	if len(output) > MaxTaskOutput {
		return fmt.Errorf("the task's output has %d bytes, but at most %d are allowed", len(output), MaxTaskOutput)
	}
	var o TaskOutput
	if len(output) == 0 {
		return nil
	}
	if err := json.Unmarshal(output, &o); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformedOutput, err)
	}
	if a.Hardware() {
		return nil
	}
	if len(o.IPAddresses) > 0 {
		return fmt.Errorf("the task's output has \"ipaddresses\", which only the provider of a node may set")
	}
	for _, key := range slices.Sorted(maps.Keys(o.Result)) {
		switch key {
		case "transport", "providerid", ResultMachine, "zone", "host":
		default:
			if !strings.HasPrefix(key, "ssh-") && !strings.HasPrefix(key, "ssh_") {
				continue
			}
		}
		return fmt.Errorf("the task's output has the result %.40q, which only the provider of a node may set", key)
	}
	return nil
}

// taskConfigKeys are the fixed keys of a task's "config".
var taskConfigKeys = func() map[string]bool {
	keys := map[string]bool{}
	t := reflect.TypeFor[TaskConfig]()
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		keys[name] = true
	}
	return keys
}()

// MarshalJSON writes one object that has the fixed keys and the keys of the results.
func (c TaskConfig) MarshalJSON() ([]byte, error) {
	type plain TaskConfig
	p := struct {
		Cluster any `json:"cluster"` // hides plain's
		plain
	}{plain: plain(c)}
	switch {
	case c.ClusterJSON != nil:
		p.Cluster = c.ClusterJSON
	case c.Cluster != nil:
		p.Cluster = c.Cluster
	default:
		p.Cluster = struct{}{}
	}
	b, err := json.Marshal(p)
	if err != nil || len(c.Results) == 0 {
		return b, err
	}
	b = b[:len(b)-1]
	for _, k := range slices.Sorted(maps.Keys(c.Results)) {
		if taskConfigKeys[k] {
			continue
		}
		key, err := json.Marshal(k)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(c.Results[k])
		if err != nil {
			return nil, fmt.Errorf("result %q: %w", k, err)
		}
		b = append(append(append(append(b, ','), key...), ':'), value...)
	}
	return append(b, '}'), nil
}

// UnmarshalJSON reads the fixed keys. If there is no "results", as in the original's tasks,
// every other key is a result.
func (c *TaskConfig) UnmarshalJSON(b []byte) error {
	type plain TaskConfig
	var p plain
	if err := json.Unmarshal(b, &p); err != nil {
		return err
	}
	if p.Results != nil {
		*c = TaskConfig(p) // the keys next to them are copies
		return nil
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(b, &all); err != nil {
		return err
	}
	for k, raw := range all {
		if taskConfigKeys[k] || bytes.Equal(raw, []byte("null")) {
			continue
		}
		var v any
		if err := json.Unmarshal(raw, &v); err != nil {
			return err
		}
		if p.Results == nil {
			p.Results = map[string]any{}
		}
		p.Results[k] = v
	}
	*c = TaskConfig(p)
	return nil
}
