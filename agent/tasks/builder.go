package tasks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/coopr/coopr/consensus/duty/dispatch"
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/sealed"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/hostexec"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/internal/mask"
	pb "github.com/coopr/coopr/rpc/proto"
)

// maxClusters bounds the number of clusters that a Builder caches. Few clusters have
// operations at the same time.
const maxClusters = 64

// Builder builds tasks from the replicated state. A cluster may have thousands of
// tasks, so it caches the parsed configuration and the node records of a cluster
// until either changes. It is safe for concurrent use.
type Builder struct {
	machine *state.Machine
	opener  state.Opener
	issuer  string // the claim iss of tokens of tasks; "": the mesh issues none

	mu       sync.Mutex
	clusters map[string]*clusterCache
	program  *program // the run program that was prepared last
	last     struct { // the cluster that was read last
		view *state.View
		id   string
		*model.Cluster
	}
}

// clusterCache holds the data of one cluster that a Builder caches.
type clusterCache struct {
	source      *operation.Source
	opened      bool // source has the provider's passwords, because a hardware task needed them
	secrets     []string
	marked      map[string][]string // the names of sensitive results, by the key of the plugin's type
	version     uint64              // version of the cluster that source was made from
	sourceIndex uint64              // source includes every change of nodes up to this index
	nodes       map[string]*model.Node
	nodesIndex  uint64 // nodes include every change up to this index
}

// NewBuilder returns a Builder that reads from a replica's state machine. The opener decrypts secrets of steps for one
// assignment, and those of providers for as long as the cluster's configuration is cached. The issuer is that of tokens of tasks.
func NewBuilder(m *state.Machine, o state.Opener, issuer string) *Builder {
	return &Builder{machine: m, opener: o, issuer: issuer, clusters: map[string]*clusterCache{}}
}

// cluster returns an operation's cluster.
func (b *Builder) cluster(v *state.View, op *model.Operation) (*model.Cluster, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l := &b.last; l.view != v || l.id != op.Cluster {
		l.view, l.id = v, op.Cluster
		l.Cluster, _ = v.Cluster(op.Tenant, op.Cluster)
	}
	return b.last.Cluster, b.last.Cluster != nil
}

// cacheLocked returns the cache of a cluster and two indexes: changed is the
// index of the last change of the cluster's nodes, and v includes every such
// change up to seen.
func (b *Builder) cacheLocked(v *state.View, id string) (c *clusterCache, changed, seen uint64) {
	if c = b.clusters[id]; c == nil {
		if len(b.clusters) > maxClusters {
			clear(b.clusters)
		}
		c = &clusterCache{}
		b.clusters[id] = c
	}
	changed = b.machine.NodesVersion(id)
	return c, changed, min(changed, v.Index())
}

// source returns the prepared configuration from which a cluster's task inputs are made. For hardware tasks it decrypts the
// provider, and returns the values that were encrypted. They stay in this leader's memory. Other tasks need no keys.
func (b *Builder) source(v *state.View, cl *model.Cluster, hardware bool) (src *operation.Source, secrets []string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c, changed, seen := b.cacheLocked(v, cl.ID)
	if c.source == nil || c.version != cl.Version || (c.source.Dependent && c.sourceIndex < changed) {
		c.source, c.version, c.sourceIndex = operation.NewSource(cl, v.Nodes(cl.Tenant, cl.ID)), cl.Version, seen
		c.opened, c.secrets, c.marked = false, nil, map[string][]string{}
	}
	if !hardware {
		return c.source, nil, nil
	}
	if !c.opened {
		fields, err := b.opener.OpenFields(v.SealedView, cl.Tenant, cl.Provider.Provisioner)
		if err != nil {
			return nil, nil, fmt.Errorf("provider %s of cluster %s: %w", cl.Provider.Name, cl.ID, err)
		}
		c.source.Open(fields)
		c.opened, c.secrets = true, sealed.RevealedBy(cl.Provider.Provisioner, fields)
	}
	return c.source, c.secrets, nil
}

// returned returns a node whose results are decrypted, its saved values, and the texts in both that were encrypted. They are in the
// memory of the leader until the node changes.
func (b *Builder) returned(v *state.View, n *model.Node) (_ *model.Node, saved map[string]json.RawMessage, secrets []string, err error) {
	if model.HasSealedRef(n.Results) {
		with := *n
		if with.Results, err = b.opener.OpenFields(v.SealedView, n.Tenant, n.Results); err != nil {
			return nil, nil, nil, fmt.Errorf("results of node %s: %w", n.ID, err)
		}
		secrets = sealed.RevealedBy(n.Results, with.Results)
		n = &with
	}
	saved = v.Values(n.ID)
	for key, text := range saved {
		if len(model.SealedRefs(text)) == 0 {
			continue
		}
		var value any
		if err := json.Unmarshal(text, &value); err != nil {
			return nil, nil, nil, fmt.Errorf("value %s of node %s: %w", key, n.ID, err)
		}
		stored := map[string]any{key: value}
		opened, err := b.opener.OpenFields(v.SealedView, n.Tenant, stored)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("value %s of node %s: %w", key, n.ID, err)
		}
		if saved[key], err = json.Marshal(opened[key]); err != nil {
			return nil, nil, nil, err
		}
		secrets = append(secrets, sealed.RevealedBy(stored, opened)...)
	}
	return n, saved, secrets, nil
}

// opened returns the input of a task with the values that references in it stand for, and their texts: in the configuration, and in the
// fields of the service's action. Macros were expanded before, so that none in a secret is. An input without references needs no keys.
func (b *Builder) opened(v *state.View, tenant string, input []byte) (out []byte, secrets []string, err error) {
	if len(model.SealedRefs(input)) == 0 {
		return input, nil, nil
	}
	var in map[string]any
	d := json.NewDecoder(bytes.NewReader(input))
	d.UseNumber()
	if err := d.Decode(&in); err != nil {
		return nil, nil, err
	}
	config, _ := in["config"].(map[string]any)
	for _, part := range []string{"cluster", "service"} {
		fields, ok := config[part].(map[string]any)
		if !ok {
			continue
		}
		with, err := b.opener.OpenFields(v.SealedView, tenant, fields)
		if err != nil {
			return nil, nil, fmt.Errorf("%s of the task's input: %w", part, err)
		}
		config[part], secrets = with, append(secrets, sealed.RevealedBy(fields, with)...)
	}
	out, err = json.Marshal(in)
	return out, secrets, err
}

// openable returns an error if the values that a cluster's configuration and services name cannot be decrypted. It tries one: all of a
// tenant are encrypted with its data key.
func (b *Builder) openable(v *state.View, cl *model.Cluster) error {
	refs := cl.SealedRefs()
	if len(refs) == 0 {
		return nil
	}
	_, err := b.opener.OpenFields(v.SealedView, cl.Tenant, map[string]any{"value": refs[0].String()})
	return err
}

// marked returns the names of results that the descriptions of a task's plugin mark as sensitive. They are looked up again when the
// cluster has changed.
func (b *Builder) marked(v *state.View, cl *model.Cluster, w *operation.Work) []string {
	key := "provider/" + w.Plugin
	if w.Automator {
		key = "automator/" + w.Plugin
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.clusters[cl.ID]
	if c == nil || c.marked == nil {
		return sealed.Marked(v.SealedView, cl.Tenant, key)
	}
	names, ok := c.marked[key]
	if !ok {
		names = sealed.Marked(v.SealedView, cl.Tenant, key)
		c.marked[key] = names
	}
	return names
}

// secretFields returns the texts in the fields of a service's action that the type of its plugin marks. They are not encrypted in the
// state, and are hidden in what the task says all the same.
func secretFields(marked []string, fields map[string]any) (texts []string) {
	for _, name := range marked {
		texts = append(texts, mask.Texts(fields[name])...)
	}
	return texts
}

// node returns a node of a cluster.
func (b *Builder) node(v *state.View, cl *model.Cluster, id string) (*model.Node, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c, changed, seen := b.cacheLocked(v, cl.ID)
	if c.nodes == nil || c.nodesIndex < changed {
		c.nodes, c.nodesIndex = map[string]*model.Node{}, seen
	}
	n, ok := c.nodes[id]
	if !ok {
		if n, ok = v.Node(cl.Tenant, id); ok {
			c.nodes[id] = n
		}
	}
	return n, ok
}

// action returns the action that is carried out for a vertex now: a CREATE whose
// CONFIRM failed starts with a DELETE, and a service that is launched anew with a STOP.
func action(g *plan.Graph, n *plan.Note, u uint32) model.Action {
	switch is := g.Action[u]; {
	case n == nil || !n.Undo:
		return is
	case is == model.Create:
		return model.Delete
	}
	return model.Stop
}

// Task returns the task of vertex u of an operation's plan, as it is sent to a
// worker.
func (b *Builder) Task(v *state.View, op *model.Operation, s *plan.State, u uint32) (*pb.Task, error) {
	cl, ok := b.cluster(v, op)
	if !ok {
		return nil, fmt.Errorf("cluster %s of operation %s no longer exists", op.Cluster, op.ID)
	}
	n, err := b.subject(v, op, cl, s.Graph, int(u))
	if err != nil {
		return nil, err
	}
	st := s.Task(u)
	act := action(s.Graph, st.Note, u)
	if act == model.Run && op.Type == model.OpRun {
		return b.step(v, op, cl, n, s, u)
	}
	id := string(model.OperationID(op.ID).Task(u))
	src, secrets, err := b.source(v, cl, act.Hardware())
	if err != nil {
		return nil, err
	}
	var saved map[string]json.RawMessage
	var returned []string
	if n.ID != "" {
		if n, saved, returned, err = b.returned(v, v.Live(cl, n)); err != nil {
			return nil, err
		}
	}
	w, err := src.Work(op.ID, id, n, saved, act, s.Graph.Entry(int(u)))
	if err != nil {
		return nil, err
	}
	marked := b.marked(v, cl, w)
	input, inside, err := b.opened(v, op.Tenant, w.Input)
	if err != nil {
		return nil, err
	}
	out := &pb.Task{
		Id: id, Attempt: uint32(st.Attempt), Tenant: op.Tenant, Mesh: v.Mesh(), Cluster: op.Cluster, Operation: op.ID, Node: n.ID,
		Action: w.Action, Service: s.Graph.ServiceName(int(u)), Plugin: w.Plugin, Automator: w.Automator,
		Observe: st.Note != nil && st.Note.Observe && act == s.Graph.Action[u], TimeoutMs: w.Timeout.Milliseconds(),
		Input:     operation.WithParameters(input, op.Parameters),
		Resources: op.Resources, Secrets: slices.Concat(secrets, returned, inside, secretFields(marked, w.Fields)), Sensitive: marked,
		Encrypts: encrypts(v),
	}
	if p := w.Ready; act == model.Check {
		out.Ready = &pb.Ready{IntervalMs: int64(p.Interval), DelayMs: int64(p.Delay), TimeoutMs: int64(p.Timeout)}
		out.TimeoutMs = readyWithinMillis
	}
	return out, b.identify(v, out, w, s.Fence(u))
}

// subject returns the node of a task, or operation.Nowhere for one that an agent does on its own machine. What the cluster has now is
// carried out there, so its author must have had the right, whoever started the plan and when.
func (b *Builder) subject(v *state.View, op *model.Operation, cl *model.Cluster, g *plan.Graph, u int) (*model.Node, error) {
	if g.OnAgent(u) {
		s := cl.Definitions[g.ServiceName(u)]
		if why := s.CannotRunOnAgent(g.ActionKey(u)); why != "" {
			return nil, errors.New(why)
		}
		return operation.Nowhere(cl), hostexec.Written(&s)
	}
	n, ok := b.node(v, cl, g.NodeID(u))
	if !ok {
		return nil, fmt.Errorf("node %s of operation %s no longer exists", g.NodeID(u), op.ID)
	}
	return n, nil
}

// encrypts reports whether the leader encrypts the results of tasks that are secrets, as keys.Sealer.SealResults does.
func encrypts(v *state.View) bool { return v.Understands(logformat.RotationLevel) }

// readyWithinMillis is how long a started service has to become ready before its
// readiness check counts as one failure.
const readyWithinMillis = 30 * 60_000

// Needs returns the requirements on the agent that carries out vertex u.
func (b *Builder) Needs(v *state.View, op *model.Operation, g *plan.Graph, u uint32) dispatch.Needs {
	if cl, ok := b.cluster(v, op); ok {
		if g.OnAgent(int(u)) {
			return NeedsOf(cl, op.ID, operation.Nowhere(cl), g.Action[u], g.Entry(int(u)))
		}
		if n, ok := b.node(v, cl, g.NodeID(int(u))); ok {
			var note *plan.Note
			if s, ok := v.Plan(op.ID); ok {
				note = s.Note(u)
			}
			return NeedsOf(cl, op.ID, v.Live(cl, n), action(g, note, u), g.Entry(int(u)))
		}
	}
	return dispatch.Needs{}
}

// NeedsOf is like Needs, for an action on a node that need not be in the state yet. entry is the task's entry in the services of its
// graph.
func NeedsOf(cl *model.Cluster, op string, n *model.Node, action model.Action, entry string) dispatch.Needs {
	name, automator := operation.Plugin(cl, op, n, action, entry)
	out := dispatch.Needs{Plugin: "provider/" + name}
	if automator {
		out.Plugin = "automator/" + name
	}
	out.Machine = n.AgentMachine()
	if action.Hardware() {
		out.Limit, out.Most = cl.Tenant+"/"+cl.Provider.Name, cl.Provider.MaxParallel
	}
	return out
}
