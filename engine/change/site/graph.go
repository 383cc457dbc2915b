package site

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/coopr/coopr/engine/change/object"
)

// Graph is a drawing of a site. It is also the JSON of the API.
type Graph struct {
	Site       string      `json:"site"`
	Generation uint64      `json:"generation"`
	Nodes      []GraphNode `json:"nodes"`
	Edges      []GraphEdge `json:"edges"`
}

// GraphNode is an object. State and Target are empty if they are unknown.
type GraphNode struct {
	Name      string `json:"name"`
	Host      string `json:"host"`
	Type      string `json:"type"`
	Preferred string `json:"preferred"`
	State     string `json:"state,omitempty"`
	Target    string `json:"target,omitempty"`
	// Waits has the names of the objects that this one is waiting for now.
	Waits []string `json:"waits,omitempty"`
}

// GraphEdge is a dependency of From on To.
type GraphEdge struct {
	From string `json:"from"`
	To   string `json:"to"`
	// When is the transition ("down→up", "*→up") or the granted state ("up"). State is the
	// state in which To must be.
	When  string `json:"when"`
	State string `json:"state"`
	Hold  bool   `json:"hold,omitempty"`
}

// NewGraph returns the graph of a site with the known statuses of its objects. The function
// status may be nil.
func NewGraph(s *object.Site, status func(object.ID) (object.Status, bool)) *Graph {
	g := &Graph{Site: s.Name, Generation: s.Generation}
	for i := range s.Defs {
		d := &s.Defs[i]
		if d.Name == "" {
			continue
		}
		n := GraphNode{Name: d.Name, Host: d.Host, Type: d.Type.Name, Preferred: d.Type.States[d.Preferred]}
		if status != nil {
			if st, ok := status(d.ID); ok {
				n.State, n.Target = d.Type.States[st.State], d.Type.States[st.Target]
				for _, w := range st.Waits {
					n.Waits = append(n.Waits, s.Defs[w.Peer].Name)
				}
			}
		}
		g.Nodes = append(g.Nodes, n)
		for _, need := range d.Needs {
			p := &s.Defs[d.Out[need.Slot]]
			e := GraphEdge{From: d.Name, To: p.Name, State: p.Type.States[need.State], Hold: need.Hold}
			if e.When = word(d.Type, need.From); !need.Hold {
				e.When += "→" + word(d.Type, need.To)
			}
			g.Edges = append(g.Edges, e)
		}
	}
	return g
}

func word(t *object.Type, s object.State) string {
	if s == object.Any {
		return "*"
	}
	return t.States[s]
}

// DOT returns the graph for graphviz: a box for each host, filled nodes for objects in their
// preferred states, and dashed edges for locks that are held in order to grant a state.
func (g *Graph) DOT() string {
	var b strings.Builder
	fmt.Fprintf(&b, "digraph %s {\n  rankdir=BT;\n  node [shape=box, style=rounded, fontname=\"sans-serif\"];\n", strconv.Quote(g.Site))
	hosts := map[string][]GraphNode{}
	var order []string
	for _, n := range g.Nodes {
		if hosts[n.Host] == nil {
			order = append(order, n.Host)
		}
		hosts[n.Host] = append(hosts[n.Host], n)
	}
	slices.Sort(order)
	for i, h := range order {
		fmt.Fprintf(&b, "  subgraph cluster_%d {\n    label=%s;\n", i, strconv.Quote(h))
		for _, n := range hosts[h] {
			label, style := n.Name, ""
			if n.State != "" {
				label += "\n" + n.State
				style = ", style=\"rounded,filled\", fillcolor=palegreen"
				if n.State != n.Preferred || n.State != n.Target {
					label += " → " + n.Target
					style = ", style=\"rounded,filled\", fillcolor=khaki"
				}
			}
			fmt.Fprintf(&b, "    %s [label=%s%s];\n", strconv.Quote(n.Name), strconv.Quote(label), style)
		}
		b.WriteString("  }\n")
	}
	for _, e := range g.Edges {
		style := ""
		if e.Hold {
			style = ", style=dashed"
		}
		fmt.Fprintf(&b, "  %s -> %s [label=%s%s];\n", strconv.Quote(e.From), strconv.Quote(e.To), strconv.Quote(e.When+": "+e.State), style)
	}
	b.WriteString("}\n")
	return b.String()
}
