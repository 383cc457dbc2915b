package operation

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/coopr/coopr/engine/macro"
	"github.com/coopr/coopr/engine/model"
)

// Source is what the inputs of a cluster's tasks are made from. It is made for
// one moment of the cluster and its nodes, expands the configuration once, and
// may be used by many goroutines at once.
type Source struct {
	// Dependent says that the inputs depend on the nodes' names and addresses:
	// a change of any node asks for another Source.
	Dependent bool

	cluster *model.Cluster
	refs    macro.References
	raw     json.RawMessage // the configuration unexpanded, for hardware tasks
	bound   *macro.Bound
	shared  json.RawMessage // expanded, where it is the same on every node
	err     error           // why it cannot be expanded now
	others  map[string]model.TaskNode
	encoded sync.Map // encodedKey → []byte
}

// NewSource makes the source of a cluster's tasks.
func NewSource(cl *model.Cluster, nodes []*model.Node) *Source {
	s := &Source{cluster: cl, others: map[string]model.TaskNode{}}
	config := cl.Config
	if config == nil {
		config = map[string]any{}
	}
	if s.raw, s.err = json.Marshal(config); s.err != nil {
		return s
	}
	t, err := macro.Compile(config)
	if err != nil {
		s.err = err
		return s
	}
	s.refs = t.References()
	s.Dependent = s.refs.Self || len(s.refs.Services) > 0
	known := make([]macro.Node, len(nodes))
	for i, n := range nodes {
		known[i] = macro.Node{Number: n.Number, Hostname: n.Hostname, IPAddresses: n.IPAddresses, Services: n.Services}
		if s.refersTo(n) {
			s.others[n.ID] = model.TaskNode{
				Hostname: n.Hostname, IPAddresses: n.IPAddresses, NodeNum: model.Int(n.Number), HardwareType: n.HardwareType,
				ImageType: n.ImageType, Services: n.Services, Automators: n.Automators,
			}
		}
	}
	if s.bound, s.err = t.Bind(macro.NewCluster(cl.Owner, known)); s.err != nil {
		return s
	}
	if s.bound.Shared() && len(nodes) > 0 {
		s.shared, s.err = s.expand(nodes[0].Number)
	}
	return s
}

// refersTo says whether the configuration asks for anything of a node.
func (s *Source) refersTo(n *model.Node) bool {
	return slices.ContainsFunc(n.Services, func(svc string) bool { return slices.Contains(s.refs.Services, svc) })
}

func (s *Source) expand(number int) (json.RawMessage, error) {
	c, err := s.bound.On(number)
	if err != nil {
		return nil, err
	}
	return json.Marshal(c)
}

// Work says who carries a task out, and with what.
type Work struct {
	Plugin    string // name of the provider type or automator type
	Automator bool
	Timeout   time.Duration
	Input     []byte // JSON model.TaskInput
}

// The time-outs of actions that state none (spec/planner.md, "Graph" 6).
var timeouts = map[model.Action]time.Duration{
	model.Create: 10 * time.Minute, model.Confirm: 15 * time.Minute, model.Delete: 10 * time.Minute, model.Bootstrap: 15 * time.Minute,
}

const defaultTimeout = 30 * time.Minute

// Plugin gives the name of the plugin type that carries an action out, and
// whether it is an automator.
func Plugin(cl *model.Cluster, n *model.Node, action model.Action, service string) (name string, automator bool) {
	switch {
	case action.Hardware():
		return cl.Provider.ProviderType, false
	case action == model.Bootstrap:
		if len(n.Automators) > 0 {
			return n.Automators[0], true
		}
		return "", true
	}
	return cl.Definitions[service].Provisioner.Actions[action.Key()].Type, true
}

// Work makes what a task carries; saved is what plugins keep about the node. It fails where the configuration cannot be
// expanded as the nodes are now.
func (s *Source) Work(operation, task string, n *model.Node, saved map[string]json.RawMessage, action model.Action, service string) (*Work, error) {
	w := &Work{Timeout: timeouts[action]}
	if w.Timeout == 0 {
		w.Timeout = defaultTimeout
	}
	w.Plugin, w.Automator = Plugin(s.cluster, n, action, service)
	config, err := s.config(n, saved, action.Hardware())
	if err != nil {
		return nil, err
	}
	var about []byte
	if service != "" {
		a := s.cluster.Definitions[service].Provisioner.Actions[action.Key()]
		if d, err := time.ParseDuration(a.Timeout); err == nil && d > 0 {
			w.Timeout = d
		}
		if about, err = json.Marshal(model.TaskService{Name: service, Action: model.TaskAction{Type: a.Type, Fields: a.Fields}}); err != nil {
			return nil, err
		}
	}
	w.Input, err = assemble(model.TaskInput{TaskID: task, Job: operation, Cluster: s.cluster.ID, TaskName: action.String(), NodeID: n.ID}, config, about)
	return w, err
}

// config encodes what all tasks of a node carry alike, but for the provider's
// own values, which only hardware tasks see. It is kept for as long as the node
// stays the same: encoding it anew was most of the cost of a task.
func (s *Source) config(n *model.Node, saved map[string]json.RawMessage, hardware bool) ([]byte, error) {
	k := encodedKey{n.ID, n.Version, hardware}
	if len(saved) == 0 {
		if b, ok := s.encoded.Load(k); ok {
			return b.([]byte), nil
		}
	}
	c := model.TaskConfig{
		ClusterName: s.cluster.Name, ClusterJSON: s.raw, Hostname: n.Hostname, IPAddresses: n.IPAddresses, NodeNum: model.Int(n.Number),
		HardwareType: n.HardwareType, ImageType: n.ImageType, Flavor: n.Flavor, Image: n.Image, SSHUser: n.SSHUser,
		Automators: n.Automators, Services: n.Services, Results: n.Results, Saved: saved,
		Provider: model.TaskProvider{Name: s.cluster.Provider.Name, Description: s.cluster.Provider.Description, ProviderType: s.cluster.Provider.ProviderType},
	}
	if hardware {
		c.Provider.Provisioner = s.cluster.Provider.Provisioner
	} else {
		if s.err != nil {
			return nil, fmt.Errorf("the configuration of cluster %s cannot be expanded: %w", s.cluster.Name, s.err)
		}
		if c.ClusterJSON = s.shared; c.ClusterJSON == nil {
			var err error
			if c.ClusterJSON, err = s.expand(n.Number); err != nil {
				return nil, fmt.Errorf("the configuration of node %s cannot be expanded: %w", n.Hostname, err)
			}
		}
		c.Nodes = s.others
	}
	b, err := json.Marshal(c)
	if err == nil && len(saved) == 0 {
		s.encoded.Store(k, b)
	}
	return b, err
}

type encodedKey struct {
	node     string
	version  uint64
	hardware bool
}

// assemble puts an input together from its head and pieces that are encoded:
// the configuration is an object, and the service joins it.
func assemble(in model.TaskInput, config, service []byte) ([]byte, error) {
	head, err := json.Marshal(struct {
		TaskID   string `json:"taskId"`
		Job      string `json:"jobId"`
		Cluster  string `json:"clusterId"`
		TaskName string `json:"taskName"`
		NodeID   string `json:"nodeId"`
	}{in.TaskID, in.Job, in.Cluster, in.TaskName, in.NodeID})
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, len(head)+len(config)+len(service)+32)
	out = append(out, head[:len(head)-1]...)
	out = append(out, `,"config":`...)
	out = append(out, config[:len(config)-1]...)
	if service != nil {
		out = append(out, `,"service":`...)
		out = append(out, service...)
	}
	return append(out, '}', '}'), nil
}

// Links expands the links of a cluster's template and services; those that
// cannot be expanded as the nodes are now are left out, and those that speak of
// services that the cluster does not have.
func Links(cl *model.Cluster, nodes []*model.Node) []model.Link {
	known := make([]macro.Node, len(nodes))
	for i, n := range nodes {
		known[i] = macro.Node{Number: n.Number, Hostname: n.Hostname, IPAddresses: n.IPAddresses, Services: n.Services}
	}
	on := map[string]bool{}
	for _, n := range nodes {
		for _, svc := range n.Services {
			on[svc] = true
		}
	}
	ctx := macro.Context{Cluster: macro.NewCluster(cl.Owner, known), Self: macro.NoNode}
	all := slices.Clone(cl.Template.Links)
	for _, s := range cl.Services {
		all = append(all, cl.Definitions[s].Links...)
	}
	var out []model.Link
	for _, l := range all {
		refs, err := macro.ReferencesOf(map[string]any{"url": l.URL})
		if err != nil || slices.ContainsFunc(refs.Services, func(svc string) bool { return !on[svc] }) {
			continue
		}
		url, err := macro.Expand(l.URL, ctx)
		if err != nil {
			continue
		}
		out = append(out, model.Link{Label: l.Label, URL: url})
	}
	return out
}
