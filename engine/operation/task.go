package operation

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coopr/coopr/engine/macro"
	"github.com/coopr/coopr/engine/model"
)

// Source makes the inputs of a cluster's tasks. It belongs to one moment of the cluster and
// its nodes, expands the configuration once, and is safe for concurrent use.
type Source struct {
	// Dependent is true if the inputs depend on names and addresses of nodes. Then a change of
	// any node needs a new Source.
	Dependent bool

	cluster *model.Cluster
	// staying are the scopes for a cluster without the nodes that leave it. leaving are the
	// scopes for tasks that stop and remove, in which every node with an address takes part.
	staying, leaving map[scopeKey]*scope
	others           map[scopeKey]map[string]model.TaskNode
	encoded          sync.Map // encodedKey → []byte
	opened           atomic.Pointer[map[string]any]
}

// Open has the inputs of hardware tasks carry fields of the provider in place of the cluster's, whose sensitive ones may be references.
// It is to be called before the first such task.
func (s *Source) Open(fields map[string]any) { s.opened.Store(&fields) }

// NewSource returns a source for a cluster and its nodes.
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

// scopeKey identifies a scope of the cluster's configuration, or of the configuration of an
// earlier target.
type scopeKey struct {
	target int // -1: the cluster's
	name   string
}

// known returns the properties of nodes for macros.
func known(nodes []*model.Node, view func(*model.Node) (macro.Node, bool)) []macro.Node {
	out := make([]macro.Node, 0, len(nodes))
	for _, n := range nodes {
		if k, ok := view(n); ok {
			out = append(out, k)
		}
	}
	return out
}

// staying returns a node as it is after the current operation.
func staying(n *model.Node) (macro.Node, bool) {
	return macro.Node{Number: n.Number, Hostname: n.Hostname, IPAddresses: n.IPAddresses, Services: n.Staying()}, !n.Leaves
}

// addressed returns a node as it is now, if it has an address.
func addressed(n *model.Node) (macro.Node, bool) {
	return macro.Node{Number: n.Number, Hostname: n.Hostname, IPAddresses: n.IPAddresses, Services: n.Services}, len(n.IPAddresses) > 0
}

// othersOf returns the nodes that a scope refers to, by id.
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

// Nowhere returns what stands for the node of a task that an agent does on its own machine: Plugin and Work take it. The task follows the
// cluster's record, and macros that are about its node are left as they were written.
func Nowhere(cl *model.Cluster) *model.Node {
	return &model.Node{Tenant: cl.Tenant, Cluster: cl.ID, Number: macro.Nowhere}
}

// Work is the plugin for a task and the task's input.
type Work struct {
	Action    string // as the plugin gets it: "INSTALL", or an action of the service's own: "DRAIN"
	Plugin    string // name of the provider type or automator type
	Automator bool
	Timeout   time.Duration
	Input     []byte // JSON model.TaskInput
	// Fields are those of the service's action, which Input has, too. They must not be changed.
	Fields map[string]any
	// Ready is the probe of the service's readiness.
	Ready model.Probe
	// Identity asks for a token of the task, which is about Subject; nil: none.
	Identity *model.Identity
	Subject  string
}

// Timeouts of actions that do not define one (docs/spec/planner.md, "Graph" 6).
var timeouts = map[model.Action]time.Duration{
	model.Create: 10 * time.Minute, model.Confirm: 15 * time.Minute, model.Delete: 10 * time.Minute, model.Bootstrap: 15 * time.Minute,
}

const defaultTimeout = 30 * time.Minute

// Plugin returns the name of the plugin type that carries out an action of an operation, and
// whether it is an automator. The node must have its current marks. entry is the task's entry in the
// services of its graph.
func Plugin(cl *model.Cluster, operation string, n *model.Node, action model.Action, entry string) (name string, automator bool) {
	service, key := model.SplitAction(entry)
	switch {
	case action.Hardware():
		return cl.Provider.ProviderType, false
	case action == model.Run && key == "":
		return ProgramAutomator, true
	case action == model.Bootstrap:
		if len(n.Automators) > 0 {
			return n.Automators[0], true
		}
		return "", true
	}
	key = cmp.Or(key, action.Key())
	return built(cl, operation, n, action, key, service).Provisioner.Actions[key].Type, true
}

// departs reports whether an action undoes what an earlier action did.
func departs(action model.Action) bool {
	return action == model.Stop || action == model.Remove || action == model.Delete
}

// Work returns the plugin and the input of a task. The parameter entry is the task's entry in the
// services of its graph. saved has the values that plugins keep about the node, and the node must have
// its current marks. It fails if the configuration cannot be expanded with the current nodes.
func (s *Source) Work(
	operation, task string,
	n *model.Node,
	saved map[string]json.RawMessage,
	action model.Action,
	entry string,
) (*Work, error) {
	service, key := model.SplitAction(entry)
	key = cmp.Or(key, action.Key())
	w := &Work{Timeout: timeouts[action], Action: strings.ToUpper(key)}
	if w.Timeout == 0 {
		w.Timeout = defaultTimeout
	}
	w.Plugin, w.Automator = Plugin(s.cluster, operation, n, action, entry)
	k := encodedKey{n.ID, n.Version, scopeKey{-1, whole}, action.Hardware(), departs(action)}
	var d model.Service
	if service != "" {
		d = built(s.cluster, operation, n, action, key, service)
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
	if action.Hardware() {
		w.Identity, w.Subject = s.cluster.Provider.Identity, "provider:"+s.cluster.Provider.Name
	}
	var about []byte
	if service != "" {
		a := d.Provisioner.Actions[key]
		w.Fields = a.Fields
		w.Identity, w.Subject = a.Identity, "service:"+service
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
	w.Input, err = assemble(
		model.TaskInput{TaskID: task, Job: operation, Cluster: s.cluster.ID, TaskName: w.Action, NodeID: n.ID},
		config,
		about,
	)
	return w, err
}

// config encodes the part of the input that all tasks of a node and scope share. The
// provider's own values are not in it, because only hardware tasks see them. The result is
// cached as long as the node stays the same, because encoding it again was most of the cost of
// a task.
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
		ClusterName:  s.cluster.Name,
		ClusterJSON:  sc.raw,
		Hostname:     n.Hostname,
		IPAddresses:  n.IPAddresses,
		NodeNum:      model.Int(max(n.Number, 0)),
		HardwareType: n.HardwareType,
		ImageType:    n.ImageType,
		Flavor:       n.Flavor,
		Image:        n.Image,
		SSHUser:      n.SSHUser,
		Zone:         n.Zone,
		Host:         n.Host,
		Automators:   n.Automators,
		Services:     n.Services,
		Results:      n.Results,
		Saved:        saved,
		Provider: model.TaskProvider{
			Name:         s.cluster.Provider.Name,
			Description:  s.cluster.Provider.Description,
			ProviderType: s.cluster.Provider.ProviderType,
		},
	}
	if k.hardware {
		c.Provider.Provisioner = s.cluster.Provider.Provisioner
		if fields := s.opened.Load(); fields != nil {
			c.Provider.Provisioner = *fields
		}
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

// encodedKey identifies an encoded configuration.
type encodedKey struct {
	node              string
	version           uint64
	scope             scopeKey
	hardware, departs bool
}

// assemble joins the head of an input with its encoded parts. The service is inserted into the
// object of the configuration.
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
