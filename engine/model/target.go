package model

import (
	"maps"
	"reflect"
	"slices"
)

// Target is a set of definitions and a configuration that services of a cluster were built
// from before an operation moved the cluster to its next target
// (docs/decisions/023-recovery.md).
type Target struct {
	// Number is the number of the last target that this one describes. It applies to services
	// with marks of this or of lower numbers, unless an earlier target applies.
	Number int `json:"number"`
	// Definitions are the definitions of those services whose definition changed.
	Definitions map[string]Service `json:"definitions,omitempty"`
	// Config is the configuration; nil: it did not change.
	Config map[string]any `json:"config"`
	// Mixed is true if several targets were joined because there were too many. It is unknown
	// which of them a service is at.
	Mixed bool `json:"mixed,omitempty"`
}

// MostTargets is how many earlier targets a cluster keeps.
const MostTargets = 8

// HalfConfigured is the Config of a mark whose configuration may be half written.
const HalfConfigured = -1

// Moves reports whether an operation brings services to the cluster's target. Other operations
// leave each service at its target.
func (c *Cluster) Moves(operation string) bool { return len(c.Earlier) == 0 || c.Mover == operation }

// Varies reports whether services on nodes may have other definitions or another configuration
// than the cluster's record.
func (c *Cluster) Varies() bool {
	return slices.ContainsFunc(c.Earlier, func(t Target) bool { return len(t.Definitions) > 0 || t.Config != nil })
}

// definedAt returns the index of the earlier target whose definition a service has, or -1 for
// the cluster's record.
func (c *Cluster) definedAt(m Mark, service string) int {
	for i := len(c.Earlier) - 1; i >= 0; i-- {
		if t := &c.Earlier[i]; m.Definition <= t.Number {
			if _, ok := t.Definitions[service]; ok {
				return i
			}
		}
	}
	return -1
}

// DefinitionAt returns the definition that a service with this mark was built from. If known
// is false, it may have been built from another one.
func (c *Cluster) DefinitionAt(m Mark, service string) (d Service, known bool) {
	if i := c.definedAt(m, service); i >= 0 {
		return c.Earlier[i].Definitions[service], !c.Earlier[i].Mixed
	}
	return c.Definitions[service], true
}

// ConfiguredAt returns the index in Earlier of the configuration that a service with this mark
// has, or -1 for that of the cluster's record.
func (c *Cluster) ConfiguredAt(m Mark) int {
	for i := len(c.Earlier) - 1; i >= 0; i-- {
		if t := &c.Earlier[i]; m.Config <= t.Number && t.Config != nil {
			return i
		}
	}
	return -1
}

// Stands reports whether a service with this mark is at the cluster's current target.
func (c *Cluster) Stands(m Mark, service string) bool {
	return c.definedAt(m, service) < 0 && c.ConfiguredAt(m) < 0
}

// Numbered returns marks with the exact numbers of the targets that their services are at. The
// parameter record is the number of the cluster's own target. A mark that was kept when
// everything had reached the cluster's target has a lower number, which another list of
// targets (that of a snapshot, or the next one) would take for an earlier target.
func (c *Cluster) Numbered(services []string, marks map[string]Mark, record int) map[string]Mark {
	out := maps.Clone(marks)
	for _, s := range services {
		m, ok := out[s]
		if !ok {
			continue
		}
		at := func(place int) int {
			if place < 0 {
				return record
			}
			return c.Earlier[place].Number
		}
		to := m
		if to.Definition = at(c.definedAt(m, s)); m.Config != HalfConfigured {
			to.Config = at(c.ConfiguredAt(m))
		}
		out[s] = to
	}
	return out
}

// MoveOn makes the cluster's changed record its next target. The parameter was is the record
// before, nodes are the nodes before. Earlier targets that no node is at are dropped.
func (c *Cluster) MoveOn(operation string, was *Cluster, nodes []*Node) {
	c.Mover, c.Target = operation, was.Target+1
	t := Target{Number: was.Target, Definitions: map[string]Service{}}
	for name, d := range was.Definitions {
		if now, ok := c.Definitions[name]; ok && !SameService(d, now) {
			t.Definitions[name] = d
		}
	}
	if !reflect.DeepEqual(was.Config, c.Config) {
		if t.Config = was.Config; t.Config == nil {
			t.Config = map[string]any{}
		}
	}
	c.Earlier = append([]Target{t}, was.stoodAt(nodes)...)
	for n := len(c.Earlier); n > MostTargets; n-- {
		c.Earlier[n-2] = mixed(c.Earlier[n-2], c.Earlier[n-1])
		c.Earlier = c.Earlier[:n-1]
	}
}

// stoodAt returns the earlier targets that some service is at.
func (c *Cluster) stoodAt(nodes []*Node) []Target {
	used := make([]bool, len(c.Earlier))
	for _, n := range nodes {
		for _, s := range n.Services {
			for _, m := range []Mark{n.Marks[s], n.Back[s]} {
				for _, i := range []int{c.definedAt(m, s), c.ConfiguredAt(m)} {
					if i >= 0 {
						used[i] = true
					}
				}
			}
		}
		if !slices.Contains(used, false) {
			break
		}
	}
	var out []Target
	for i, t := range c.Earlier {
		if used[i] {
			out = append(out, t)
		}
	}
	return out
}

// mixed joins two targets into one.
func mixed(newer, older Target) Target {
	out := Target{Number: newer.Number, Definitions: maps.Clone(older.Definitions), Config: newer.Config, Mixed: true}
	if out.Definitions == nil {
		out.Definitions = map[string]Service{}
	}
	maps.Copy(out.Definitions, newer.Definitions)
	if out.Config == nil {
		out.Config = older.Config
	}
	return out
}

// SameService reports whether two definitions build and run the same service.
func SameService(a, b Service) bool { return reflect.DeepEqual(a.Substance(), b.Substance()) }

// Substance returns a definition reduced to the fields that affect the running service.
func (s Service) Substance() Service {
	s.Base, s.Links, s.AllowDecommission, s.Exclusive = Base{}, nil, nil, ""
	return s
}

// Touch records in a node's Marks that a task of an operation changed a service, or tried to:
// the definition and configuration that the service has now, and whether it is to run. The
// parameter done reports whether the task succeeded.
func (n *Node) Touch(c *Cluster, op *Operation, action Action, service string, done bool) {
	m, back := n.Marks[service], n.Back[service]
	moves := c.Moves(op.ID)
	switch is := n.States[service]; {
	case op.Type == OpRollback:
		m.Goal = back.Goal
	case action == Start && done, action == Stop && c.Mover != op.ID:
		m.Goal = ""
	case action != Stop && action != Install || m.Goal != "" || c.Mover != op.ID:
	case is == Start.String(), is == Start.String()+"?":
		m.Goal = Start.String()
	case is == Stop.String():
		m.Goal = is
	}
	switch action {
	case Configure:
		m.Configured = op.ID
		fallthrough
	case Install, Initialize, Start:
		if moves {
			to := Mark{Definition: c.Target, Config: c.Target}
			if _, ok := n.Back[service]; ok {
				to = back
			}
			m.Definition = to.Definition
			if action == Configure || m.Configured == "" {
				m.Config = to.Config // a service without CONFIGURE takes it when it starts
			}
		}
		if action == Configure && !done {
			m.Config = HalfConfigured
		}
	case Remove:
		m.Initialized = false
	}
	if action == Initialize {
		m.Initialized = m.Initialized || done
	}
	n.Marks[service] = m
}
