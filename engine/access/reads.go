package access

import (
	"fmt"
	"slices"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/schema/resolved"

	"github.com/coopr/coopr/internal/words"
)

// reads are the parts of a request that a policy's conditions look at.
type reads struct {
	principal, resource, context names
	// tags are the keys of labels that are read. allTags is set if a key is computed.
	tags    names
	allTags bool
	// itself is set if the resource is compared with another, or asked what it is in.
	itself bool
	// groups is set if the principal is asked what it is in.
	groups bool
}

// names is a sorted list without repetitions.
type names []string

func (n *names) add(name string) {
	if at, found := slices.BinarySearch(*n, name); !found {
		*n = slices.Insert(*n, at, name)
	}
}

func (n *names) join(m names) {
	for _, x := range m {
		n.add(x)
	}
}

func (n names) clone() names { return slices.Clone(n) }

func (r *reads) join(o *reads) {
	r.principal.join(o.principal)
	r.resource.join(o.resource)
	r.context.join(o.context)
	r.tags.join(o.tags)
	r.allTags = r.allTags || o.allTags
	r.itself = r.itself || o.itself
	r.groups = r.groups || o.groups
}

// body checks the names in a condition, and notes what it reads.
func (c *checker) body(n ast.IsNode) {
	ast.Inspect(ast.NewNode(n), func(n ast.IsNode) bool {
		c.nodes++
		switch n := n.(type) {
		case ast.NodeTypeAccess:
			return c.attribute(n.Arg, string(n.Value))
		case ast.NodeTypeHas:
			return c.attribute(n.Arg, string(n.Value))
		case ast.NodeTypeGetTag:
			return c.tag(n.Left, n.Right)
		case ast.NodeTypeHasTag:
			return c.tag(n.Left, n.Right)
		case ast.NodeTypeIs:
			return c.is(n)
		case ast.NodeTypeIsIn:
			c.is(n.NodeTypeIs)
			c.ancestor(n.Left)
			c.body(n.Entity)
			return false
		case ast.NodeTypeIn:
			c.ancestor(n.Left)
			c.body(n.Right)
			return false
		case ast.NodeTypeVariable:
			// It stands alone, as in a comparison.
			switch n.Name {
			case "resource":
				c.reads.itself = true
			case "context":
				for _, name := range vocab().attributes.context {
					c.reads.context.add(name)
				}
			}
		case ast.NodeValue:
			c.value(n.Value)
		}
		return true
	})
}

func (c *checker) value(v types.Value) {
	switch v := v.(type) {
	case types.EntityUID:
		c.entity(v)
	case types.Set:
		for x := range v.All() {
			c.value(x)
		}
	}
}

// variable returns the variable that an expression is, or "".
func variable(n ast.IsNode) string {
	if v, ok := n.(ast.NodeTypeVariable); ok {
		return string(v.Name)
	}
	return ""
}

// is checks the type that something is compared with. The type of a resource is no part of its
// attributes: it selects the policies.
func (c *checker) is(n ast.NodeTypeIs) bool {
	c.typeName(n.EntityType)
	if variable(n.Left) == "" {
		c.fault("is", "only the types of principal and resource can be asked for")
	}
	return false
}

func (c *checker) ancestor(n ast.IsNode) {
	switch variable(n) {
	case "action":
	case "principal":
		c.reads.groups = true
	case "resource":
		c.reads.itself = true
	default:
		c.fault("in", "only principal, action and resource can be asked what they are in")
	}
}

// attribute checks the access to an attribute. It returns whether the object is still to be
// inspected, which it is not if it is a variable.
func (c *checker) attribute(object ast.IsNode, name string) bool {
	switch variable(object) {
	case "principal":
		if c.oneOf("principal", name, vocab().attributes.principal) {
			c.reads.principal.add(name)
		}
		return false
	case "resource":
		if c.oneOf("resource", name, vocab().attributes.resource) {
			c.reads.resource.add(name)
		}
		return false
	case "context":
		if c.oneOf("context", name, vocab().attributes.context) {
			c.reads.context.add(name)
		}
		return false
	}
	if a, ok := object.(ast.NodeTypeAccess); ok && variable(a.Arg) == "context" && a.Value == "after" {
		c.oneOf("context.after", name, vocab().attributes.after)
		return true
	}
	c.fault(name, fmt.Sprintf("attribute %s: only principal, resource, context and context.after have attributes", name))
	return false
}

func (c *checker) oneOf(object, name string, known names) bool {
	if slices.Contains(known, name) {
		return true
	}
	c.fault(name, fmt.Sprintf("unknown attribute %s.%s%s", object, name, words.DidYouMean(name, known)))
	return false
}

func (c *checker) tag(object, key ast.IsNode) bool {
	if variable(object) != "resource" {
		c.fault("", "only resources have labels: use resource.hasTag and resource.getTag")
		return false
	}
	if v, ok := key.(ast.NodeValue); ok {
		if s, ok := v.Value.(types.String); ok {
			c.reads.tags.add(string(s))
			return false
		}
	}
	c.reads.allTags = true
	c.body(key)
	return false
}

// attributes are the names of all attributes in the schema.
type attributes struct{ principal, resource, context, after names }

func (v *vocabulary) names() (a attributes) {
	for t, e := range v.Entities {
		for name := range e.Shape {
			if t == "User" {
				a.principal.add(string(name))
			}
			a.resource.add(string(name))
		}
	}
	for _, x := range v.Actions {
		for name, y := range x.AppliesTo.Context {
			a.context.add(string(name))
			if r, ok := y.Type.(resolved.RecordType); ok {
				for inner := range r {
					a.after.add(string(inner))
				}
			}
		}
	}
	return a
}
