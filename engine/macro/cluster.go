package macro

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Node holds the properties of a node that macros can refer to.
type Node struct {
	Number      int
	Hostname    string
	IPAddresses map[string]string // by type: "bind_v4"
	Services    []string
}

// Cluster holds the properties of a cluster that macros can refer to. It never changes and is
// safe for concurrent use.
type Cluster struct {
	owner     string
	nodes     []Node // by number
	byNumber  map[int]int
	byService map[string][]int // indexes into nodes, ascending
}

// NewCluster returns a cluster with these nodes, in any order.
func NewCluster(owner string, nodes []Node) *Cluster {
	c := &Cluster{owner: owner, nodes: slices.Clone(nodes), byNumber: make(map[int]int, len(nodes)), byService: map[string][]int{}}
	slices.SortStableFunc(c.nodes, func(a, b Node) int { return cmp.Compare(a.Number, b.Number) })
	for i := range c.nodes {
		c.byNumber[c.nodes[i].Number] = i
		for _, s := range c.nodes[i].Services {
			if on := c.byService[s]; len(on) == 0 || on[len(on)-1] != i {
				c.byService[s] = append(on, i)
			}
		}
	}
	return c
}

// MissingError is a macro that cannot be expanded for a cluster.
type MissingError struct {
	Macro   string // as written
	Message string
	// Layout is true if the services and numbers of the nodes alone make it impossible.
	// Otherwise a node has no host name or address yet.
	Layout bool
}

// Error returns the macro and the reason.
func (e *MissingError) Error() string { return "macro " + e.Macro + ": " + e.Message }

// Context is the cluster and the node that a value is expanded for.
type Context struct {
	Cluster *Cluster
	// Self is the number of the node, or NoNode, for example for the links of a cluster, or Nowhere.
	Self int
}

// NoNode means that a Context has no node.
const NoNode = -1

// Nowhere means that a value is expanded for what is done on no node. Macros about the node are left as they were written: a
// configuration has them for other tasks.
const Nowhere = -2

func (c Context) self() *Node {
	if i, ok := c.Cluster.byNumber[c.Self]; ok && c.Self != NoNode {
		return &c.Cluster.nodes[i]
	}
	return nil
}

// eval writes the value of a macro. If the macro's service is not on the cluster, or not on
// this node, it writes the macro as it was written, because templates may refer to services
// that a cluster need not have.
func (c Context) eval(b *strings.Builder, e *Expr, written string) error {
	missing := func(layout bool, format string, args ...any) error {
		return &MissingError{Macro: written, Message: fmt.Sprintf(format, args...), Layout: layout}
	}
	self := c.self()
	if e.Self() && self == nil {
		if c.Self == Nowhere {
			b.WriteString(written)
			return nil
		}
		return missing(true, "it asks for this node, but it is not expanded for one")
	}
	on, placed := []int(nil), true
	if e.Service != "" {
		on, placed = c.Cluster.byService[e.Service], len(c.Cluster.byService[e.Service]) > 0
	}
	if !placed {
		b.WriteString(written)
		return nil
	}
	switch e.Kind {
	case Owner:
		b.WriteString(e.format(c.Cluster.owner))
	case Num:
		b.WriteString(e.format(strconv.Itoa(len(on))))
	case Instance:
		i, there := slices.BinarySearchFunc(on, c.Self, func(i, number int) int { return cmp.Compare(c.Cluster.nodes[i].Number, number) })
		if !there {
			b.WriteString(written)
			return nil
		}
		b.WriteString(e.format(strconv.Itoa(i + 1)))
	case HostSelf, IPSelf:
		v, what := e.of(self)
		if v == "" {
			return missing(false, "node %d has no %s", self.Number, what)
		}
		b.WriteString(e.format(v))
	default:
		if e.Index >= len(on) {
			return indexFault(e, written, len(on))
		}
		if e.Index >= 0 {
			on = on[e.Index : e.Index+1]
		}
		sep := ","
		if e.Joined {
			sep = e.Separator
		}
		for k, i := range on {
			v, what := e.of(&c.Cluster.nodes[i])
			if v == "" {
				return missing(false, "node %d, which has service %s, has no %s", c.Cluster.nodes[i].Number, e.Service, what)
			}
			if k > 0 {
				b.WriteString(sep)
			}
			b.WriteString(e.format(v))
		}
	}
	return nil
}

// indexFault returns the error for an index beyond the nodes of a macro's service.
func indexFault(e *Expr, written string, nodes int) *MissingError {
	return &MissingError{
		Macro:   written,
		Layout:  true,
		Message: fmt.Sprintf("there is no index %d: service %s is on so many nodes: %d, and the first has index 0", e.Index, e.Service, nodes),
	}
}

// of returns a node's host name or address, and the name of that property.
func (e *Expr) of(n *Node) (value, what string) {
	if e.Kind == Host || e.Kind == HostSelf {
		return n.Hostname, "host name"
	}
	return n.IPAddresses[e.IPType], "address of type " + e.IPType
}

// format replaces each $ of the format by a value; $$ stands for one $.
func (e *Expr) format(value string) string {
	if !e.Mapped {
		return value
	}
	return formatted(e.Format, value)
}

func formatted(format, value string) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		switch {
		case format[i] != '$':
			b.WriteByte(format[i])
		case i+1 < len(format) && format[i+1] == '$':
			b.WriteByte('$')
			i++
		default:
			b.WriteString(value)
		}
	}
	return b.String()
}

// expand returns a text with its macros expanded, and the error of every macro that cannot be.
func (c Context) expand(t text) (string, []error) {
	if len(t.pieces) == 1 && t.pieces[0].macro == nil {
		return t.pieces[0].literal, nil
	}
	var b strings.Builder
	var errs []error
	for _, p := range t.pieces {
		if p.macro == nil {
			b.WriteString(p.literal)
		} else if err := c.eval(&b, p.macro, p.literal); err != nil {
			errs = append(errs, err)
		}
	}
	return b.String(), errs
}
