package plan

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/coopr/coopr/engine/model"
)

// None means "no node" or "no service" in a Graph's columns.
const None = -1

// Graph is the directed acyclic graph of an operation's tasks in flat columns, because a plan
// of 500,000 tasks is not unusual. Vertices are numbered from 0. A vertex is a task, or a
// barrier (Action Barrier) that joins many tasks to many others, so that the number of edges
// grows with the number of nodes and not with its square (docs/spec/planner.md, "Graph" 3). A
// built Graph never changes.
type Graph struct {
	// Nodes and Services are the tables that the columns index. A node may occur more than
	// once: tasks with the same index take turns, and the tasks of a service that is
	// independent of the node's other services have an index of their own. See Machine.
	Nodes    []string
	Services []string
	// Node, Service and Action describe each vertex.
	Node    []int32
	Service []int16
	Action  []model.Action
	// Succ[SuccOff[v]:SuccOff[v+1]] are the vertices that wait for v.
	SuccOff []uint32
	Succ    []uint32
	// Preds is the number of vertices that each vertex waits for.
	Preds []uint32
	// Rank is the longest remaining path from each vertex, in tasks, including the vertex
	// itself. Among ready tasks the one with the highest rank goes first.
	Rank []uint32
	// Step is the step of each vertex, or NoStep. PhaseOff[p] is the first step of each phase,
	// with one more entry at the end. Both are nil in a graph without steps.
	Step     []uint32
	PhaseOff []uint32

	members []uint32 // the tasks in steps, by step
	byID    []int32  // the indexes of Nodes, in order of id
	first   []int32  // the first index with the same id, by index; nil: ids are unique
	places  *places  // shared by all copies
}

// Len returns the number of vertices.
func (g *Graph) Len() int { return len(g.Action) }

// Tasks returns the number of vertices that are not barriers.
func (g *Graph) Tasks() int {
	n := 0
	for _, a := range g.Action {
		if a != model.Barrier {
			n++
		}
	}
	return n
}

// Next returns the vertices that wait for v.
func (g *Graph) Next(v int) []uint32 { return g.Succ[g.SuccOff[v]:g.SuccOff[v+1]] }

// Machine returns the index that represents all entries of the same node.
func (g *Graph) Machine(node int32) int32 {
	if g.first == nil || node < 0 {
		return node
	}
	return g.first[node]
}

// nodes returns the indexes of the nodes with this id.
func (g *Graph) nodes(id string) []int32 {
	at, ok := slices.BinarySearchFunc(g.byID, id, func(i int32, id string) int { return strings.Compare(g.Nodes[i], id) })
	end := at
	for ok && end < len(g.byID) && g.Nodes[g.byID[end]] == id {
		end++
	}
	return g.byID[at:end]
}

// places finds the vertices of nodes. It is built on first use.
type places struct {
	once      sync.Once
	off, list []uint32
}

// On returns the vertices of the node with this id, in order.
func (g *Graph) On(id string) []uint32 {
	p := g.places
	p.once.Do(func() {
		p.off = make([]uint32, len(g.Nodes)+1)
		for _, n := range g.Node {
			if n >= 0 {
				p.off[n+1]++
			}
		}
		for i := range g.Nodes {
			p.off[i+1] += p.off[i]
		}
		p.list = make([]uint32, p.off[len(g.Nodes)])
		fill := slices.Clone(p.off)
		for v, n := range g.Node {
			if n >= 0 {
				p.list[fill[n]] = uint32(v)
				fill[n]++
			}
		}
	})
	at := g.nodes(id)
	if len(at) == 1 {
		return p.list[p.off[at[0]]:p.off[at[0]+1]]
	}
	var out []uint32
	for _, i := range at { // independent services have an index each
		out = append(out, p.list[p.off[i]:p.off[i+1]]...)
	}
	slices.Sort(out)
	return out
}

// NodeID returns the id of v's node, or "".
func (g *Graph) NodeID(v int) string {
	if n := g.Node[v]; n >= 0 {
		return g.Nodes[n]
	}
	return ""
}

// ServiceName returns the name of v's service, or "".
func (g *Graph) ServiceName(v int) string {
	service, _ := model.SplitAction(g.Entry(v))
	return service
}

// Entry returns v's entry in Services, or "". It is the name of v's service, or model.OwnAction of that.
func (g *Graph) Entry(v int) string {
	if s := g.Service[v]; s >= 0 {
		return g.Services[s]
	}
	return ""
}

// HasOwnActions reports whether a task carries out an action of a service's own.
func (g *Graph) HasOwnActions() bool {
	return slices.ContainsFunc(g.Services, func(entry string) bool {
		_, key := model.SplitAction(entry)
		return key != ""
	})
}

// OnAgent reports whether v is a task on no node, which an agent does on its own machine.
func (g *Graph) OnAgent(v int) bool { return g.Node[v] < 0 && g.Action[v] != model.Barrier }

// AgentTasks returns the tasks on no node.
func (g *Graph) AgentTasks() iter.Seq[int] {
	return func(yield func(int) bool) {
		for v := range g.Len() {
			if g.OnAgent(v) && !yield(v) {
				return
			}
		}
	}
}

// ActionKey returns the key that v's action has in the definition of its service: "install", or that of an action of the service's own.
func (g *Graph) ActionKey(v int) string {
	if _, key := model.SplitAction(g.Entry(v)); key != "" {
		return key
	}
	return g.Action[v].Key()
}

// Name returns the name of the vertex for messages: "n1000/INSTALL/nginx".
func (g *Graph) Name(v int) string {
	switch {
	case g.Action[v] == model.Barrier:
		return fmt.Sprintf("barrier/%d", v)
	case g.Service[v] >= 0:
		return cmp.Or(g.NodeID(v), model.AgentSteps) + "/" + strings.ToUpper(g.ActionKey(v)) + "/" + g.ServiceName(v)
	}
	return g.NodeID(v) + "/" + g.Action[v].String()
}

// Before returns the vertex with this action on v's node that v waits for. It searches the
// vertices shortly before v, where a planner puts the chain of a node.
func (g *Graph) Before(v uint32, action model.Action) (uint32, bool) {
	for w := int(v) - 1; w >= 0; w-- {
		if g.Action[w] == action && g.Node[w] == g.Node[v] {
			for _, to := range g.Next(w) {
				if to == v {
					return uint32(w), true
				}
			}
		}
	}
	return 0, false
}

// Builder collects vertices and edges and builds a Graph.
type Builder struct {
	g        Graph
	from, to []uint32
}

// NewBuilder starts a graph with these nodes and services, which vertices refer to by index.
func NewBuilder(nodes, services []string) *Builder {
	return &Builder{g: Graph{Nodes: nodes, Services: services}}
}

// Grow reserves room for the given numbers of further vertices and edges.
func (b *Builder) Grow(vertices, edges int) {
	b.g.Node = append(make([]int32, 0, len(b.g.Node)+vertices), b.g.Node...)
	b.g.Service = append(make([]int16, 0, len(b.g.Service)+vertices), b.g.Service...)
	b.g.Action = append(make([]model.Action, 0, len(b.g.Action)+vertices), b.g.Action...)
	b.from = append(make([]uint32, 0, len(b.from)+edges), b.from...)
	b.to = append(make([]uint32, 0, len(b.to)+edges), b.to...)
}

// Task adds a task and returns its vertex. The arguments node and service are indexes, or
// None.
func (b *Builder) Task(action model.Action, node, service int) uint32 {
	b.g.Node = append(b.g.Node, int32(node))
	b.g.Service = append(b.g.Service, int16(service))
	b.g.Action = append(b.g.Action, action)
	return uint32(len(b.g.Action) - 1)
}

// Barrier adds a barrier and returns its vertex.
func (b *Builder) Barrier() uint32 { return b.Task(model.Barrier, None, None) }

// Edge makes vertex to wait for vertex from. A repeated edge counts twice, which is harmless.
func (b *Builder) Edge(from, to uint32) {
	b.from = append(b.from, from)
	b.to = append(b.to, to)
}

// Build checks that the graph has no cycle and returns it with its ranks.
func (b *Builder) Build() (*Graph, error) {
	g := &b.g
	n := g.Len()
	g.SuccOff = make([]uint32, n+1)
	g.Preds = make([]uint32, n)
	for i, f := range b.from {
		if int(f) >= n || int(b.to[i]) >= n {
			return nil, fmt.Errorf("edge %d to %d: the graph has %d vertices", f, b.to[i], n)
		}
		g.SuccOff[f+1]++
		g.Preds[b.to[i]]++
	}
	for v := range n {
		g.SuccOff[v+1] += g.SuccOff[v]
	}
	g.Succ = make([]uint32, len(b.from))
	fill := append([]uint32(nil), g.SuccOff[:n]...)
	for i, f := range b.from {
		g.Succ[fill[f]] = b.to[i]
		fill[f]++
	}
	g.places = &places{}
	g.byID = make([]int32, len(g.Nodes))
	for i := range g.byID {
		g.byID[i] = int32(i)
	}
	slices.SortFunc(g.byID, func(a, b int32) int { return cmp.Or(strings.Compare(g.Nodes[a], g.Nodes[b]), cmp.Compare(a, b)) })
	for i := 1; i < len(g.byID); i++ {
		if a, b := g.byID[i-1], g.byID[i]; g.Nodes[a] == g.Nodes[b] {
			if g.first == nil {
				g.first = make([]int32, len(g.Nodes))
				for n := range g.first {
					g.first[n] = int32(n)
				}
			}
			g.first[b] = g.first[a]
		}
	}
	return g, g.rank()
}

// rank computes Rank in reverse topological order. A vertex that never becomes free is on a
// cycle.
func (g *Graph) rank() error {
	n := g.Len()
	order := make([]uint32, 0, n)
	left := append([]uint32(nil), g.Preds...)
	for v := range n {
		if left[v] == 0 {
			order = append(order, uint32(v))
		}
	}
	for i := 0; i < len(order); i++ {
		for _, w := range g.Next(int(order[i])) {
			if left[w]--; left[w] == 0 {
				order = append(order, w)
			}
		}
	}
	if len(order) < n {
		for v := range n {
			if left[v] > 0 {
				return fmt.Errorf("the plan has a cycle through %s", g.Name(v))
			}
		}
	}
	g.Rank = make([]uint32, n)
	for i := n - 1; i >= 0; i-- {
		v := order[i]
		longest := uint32(0)
		for _, w := range g.Next(int(v)) {
			longest = max(longest, g.Rank[w])
		}
		if g.Action[v] != model.Barrier {
			longest++
		}
		g.Rank[v] = longest
	}
	return nil
}
