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
	// Dependent is true if the inputs depend on the nodes' names and addresses: a change of any
	// node asks for another Source.
	Dependent bool

	cluster *model.Cluster
	// staying are the scopes for a cluster without what leaves it; leaving those
	// for tasks that stop and remove: all that has an address takes part.
	staying, leaving map[scopeKey]*scope
	others           map[scopeKey]map[string]model.TaskNode
	encoded          sync.Map // encodedKey → []byte
}

// NewSource returns the source of a cluster's tasks.
func NewSource(cl *model.Cluster, nodes []*model.Node) *Source {
	s := &Source{cluster: cl, staying: map[scopeKey]*scope{}, leaving: map[scopeKey]*scope{}, others: map[scopeKey]map[string]model.TaskNode{}}
	stay := macro.NewCluster(cl.Owner, known(nodes, staying))
	leave := macro.NewCluster(cl.Owner, known(nodes, addressed))
	names := map[string]bool{whole: true}
	for _, d := range cl.Definitions {
		names[scopeOf(d)] = true
	}
	for _, t := range cl.Earlier {
		for _, d := range t.Definitions {
			names[scopeOf(d)] = true
		}
	}
	for target := -1; target < len(cl.Earlier); target++ {
		config := cl.Config
		if target >= 0 {
			if config = cl.Earlier[target].Config; config == nil {
				continue
			}
		}
		for name := range names {
			k, sc := scopeKey{target, name}, newScope(name, config, stay)
			s.staying[k], s.leaving[k] = sc, newScope(name, config, leave)
			s.Dependent = s.Dependent || sc.dependent()
			s.others[k] = othersOf(sc, nodes)
		}
	}
	return s
}

// scopeKey names a scope of the cluster's configuration, or of that of the earlier
// target at this place.
type scopeKey struct {
	target int // -1: the cluster's
	name   string
}

// known returns what macros can say about nodes.
func known(nodes []*model.Node, view func(*model.Node) (macro.Node, bool)) []macro.Node {
	out := make([]macro.Node, 0, len(nodes))
	for _, n := range nodes {
		if k, ok := view(n); ok {
			out = append(out, k)
		}
	}
	return out
}

// staying sees a node as it is once the operation under way is done.
func staying(n *model.Node) (macro.Node, bool) {
	return macro.Node{Number: n.Number, Hostname: n.Hostname, IPAddresses: n.IPAddresses, Services: n.Staying()}, !n.Leaves
}

// addressed sees a node as it is now, if it has an address.
func addressed(n *model.Node) (macro.Node, bool) {
	return macro.Node{Number: n.Number, Hostname: n.Hostname, IPAddresses: n.IPAddresses, Services: n.Services}, len(n.IPAddresses) > 0
}

// othersOf returns the nodes that a scope asks anything of, by id.
func othersOf(sc *scope, nodes []*model.Node) map[string]model.TaskNode {
	out := map[string]model.TaskNode{}
	for _, n := range nodes {
		if slices.ContainsFunc(n.Services, func(svc string) bool { return slices.Contains(sc.refs.Services, svc) }) {
			out[n.ID] = model.TaskNode{
				Hostname: n.Hostname, IPAddresses: n.IPAddresses, NodeNum: model.Int(n.Number), HardwareType: n.HardwareType,
				ImageType: n.ImageType, Zone: n.Zone, Services: n.Services, Automators: n.Automators,
			}
		}
	}
	return out
}

// Work says who carries a task out, and with what.
type Work struct {
	Plugin    string // name of the provider type or automator type
	Automator bool
	Timeout   time.Duration
	Input     []byte // JSON model.TaskInput
	// Ready is what a check of the service's readiness is done by.
	Ready model.Probe
}

// The time-outs of actions that state none (docs/spec/planner.md, "Graph" 6).
var timeouts = map[model.Action]time.Duration{
	model.Create: 10 * time.Minute, model.Confirm: 15 * time.Minute, model.Delete: 10 * time.Minute, model.Bootstrap: 15 * time.Minute,
}

const defaultTimeout = 30 * time.Minute

// Plugin returns the name of the plugin type that carries an action of an operation out, and
// whether it is an automator. The node's marks are to be those of now.
func Plugin(cl *model.Cluster, operation string, n *model.Node, action model.Action, service string) (name string, automator bool) {
	switch {
	case action.Hardware():
		return cl.Provider.ProviderType, false
	case action == model.Run:
		return ProgramAutomator, true
	case action == model.Bootstrap:
		if len(n.Automators) > 0 {
			return n.Automators[0], true
		}
		return "", true
	}
	return built(cl, operation, n, action, service).Provisioner.Actions[action.Key()].Type, true
}

// departs reports whether an action ends something that an earlier one began.
func departs(action model.Action) bool {
	return action == model.Stop || action == model.Remove || action == model.Delete
}

// Work makes what a task carries; saved is what plugins keep about the node, whose
// marks are to be those of now. It fails where the configuration cannot be expanded
// as the nodes are now.
func (s *Source) Work(operation, task string, n *model.Node, saved map[string]json.RawMessage, action model.Action, service string) (*Work, error) {
	w := &Work{Timeout: timeouts[action]}
	if w.Timeout == 0 {
		w.Timeout = defaultTimeout
	}
	w.Plugin, w.Automator = Plugin(s.cluster, operation, n, action, service)
	k := encodedKey{n.ID, n.Version, scopeKey{-1, whole}, action.Hardware(), departs(action)}
	var d model.Service
	if service != "" {
		d = built(s.cluster, operation, n, action, service)
		w.Ready = d.Readiness()
		k.scope.name = scopeOf(d)
		if m, stands := markOf(s.cluster, operation, n, action, service); stands {
			k.scope.target = s.cluster.ConfiguredAt(m)
		}
	}
	config, err := s.config(k, n, saved)
	if err != nil {
		return nil, err
	}
	var about []byte
	if service != "" {
		a := d.Provisioner.Actions[action.Key()]
		if action == model.Check {
			p, _ := d.Watched()
			w.Timeout = time.Duration(p.Timeout) * time.Millisecond
		}
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

// config encodes what all tasks of a node and scope carry alike, but for the
// provider's own values, which only hardware tasks see. It is kept for as long
// as the node stays the same: encoding it anew was most of the cost of a task.
func (s *Source) config(k encodedKey, n *model.Node, saved map[string]json.RawMessage) ([]byte, error) {
	if len(saved) == 0 {
		if b, ok := s.encoded.Load(k); ok {
			return b.([]byte), nil
		}
	}
	sc := s.staying[k.scope]
	if k.departs {
		sc = s.leaving[k.scope]
	}
	c := model.TaskConfig{
		ClusterName: s.cluster.Name, ClusterJSON: sc.raw, Hostname: n.Hostname, IPAddresses: n.IPAddresses, NodeNum: model.Int(n.Number),
		HardwareType: n.HardwareType, ImageType: n.ImageType, Flavor: n.Flavor, Image: n.Image, SSHUser: n.SSHUser, Zone: n.Zone, Host: n.Host,
		Automators: n.Automators, Services: n.Services, Results: n.Results, Saved: saved,
		Provider: model.TaskProvider{Name: s.cluster.Provider.Name, Description: s.cluster.Provider.Description, ProviderType: s.cluster.Provider.ProviderType},
	}
	if k.hardware {
		c.Provider.Provisioner = s.cluster.Provider.Provisioner
	} else {
		var err error
		if c.ClusterJSON, err = sc.on(n.Number); err != nil {
			return nil, fmt.Errorf("the configuration of node %s of cluster %s cannot be expanded: %w", n.Hostname, s.cluster.Name, err)
		}
		c.Nodes = s.others[k.scope]
	}
	b, err := json.Marshal(c)
	if err == nil && len(saved) == 0 {
		s.encoded.Store(k, b)
	}
	return b, err
}

// encodedKey says for what a configuration was encoded.
type encodedKey struct {
	node              string
	version           uint64
	scope             scopeKey
	hardware, departs bool
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
	known := known(nodes, staying)
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
