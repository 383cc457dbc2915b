package model

import (
	"maps"
	"reflect"
	"slices"
)

// Target is what the services of a cluster were built from and configured with
// until an operation moved the cluster on (docs/decisions/023-recovery.md).
type Target struct {
	// Number is that of the last target which it tells of: services with marks of it
	// or of earlier ones stand at it, unless an earlier one tells of them, too.
	Number int `json:"number"`
	// Definitions are those of the services that were given others.
	Definitions map[string]Service `json:"definitions,omitempty"`
	// Config is the configuration; nil: it was left as it was.
	Config map[string]any `json:"config"`
	// Mixed is true if several targets became one, because there were too many: nobody knows of
	// which of them a service is.
	Mixed bool `json:"mixed,omitempty"`
}

// MostTargets is how many earlier targets a cluster keeps.
const MostTargets = 8

// HalfConfigured stands in a mark's Config for a configuration that may be half written.
const HalfConfigured = -1

// Moves reports whether an operation brings services to the cluster's target; others leave
// each of them at the target where it stands.
func (c *Cluster) Moves(operation string) bool { return len(c.Earlier) == 0 || c.Mover == operation }

// Varies reports whether services on nodes may be of other definitions, or have another
// configuration, than the cluster's record says.
func (c *Cluster) Varies() bool {
	return slices.ContainsFunc(c.Earlier, func(t Target) bool { return len(t.Definitions) > 0 || t.Config != nil })
}

// definedAt finds which of the earlier targets a service stands at: its place, or -1
// where it is as the cluster's record says.
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

// DefinitionAt returns the definition that a service with this mark is really of. Not known
// says that it may be another one.
func (c *Cluster) DefinitionAt(m Mark, service string) (d Service, known bool) {
	if i := c.definedAt(m, service); i >= 0 {
		return c.Earlier[i].Definitions[service], !c.Earlier[i].Mixed
	}
	return c.Definitions[service], true
}

// ConfiguredAt returns the place in Earlier of the configuration that a service with this mark
// really has, or -1 for that of the cluster's record.
func (c *Cluster) ConfiguredAt(m Mark) int {
	for i := len(c.Earlier) - 1; i >= 0; i-- {
		if t := &c.Earlier[i]; m.Config <= t.Number && t.Config != nil {
			return i
		}
	}
	return -1
}

// Stands reports whether a service with this mark is as the cluster's record says.
func (c *Cluster) Stands(m Mark, service string) bool {
	return c.definedAt(m, service) < 0 && c.ConfiguredAt(m) < 0
}

// Numbered returns marks that name the very targets at which their services stand: record is
// the number of the cluster's own. A mark that was left as it was when all had come to the
// cluster's target has a lower number, which another cluster's list of targets, a snapshot's
// or the next one, would take for an earlier one.
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

// MoveOn makes the cluster's record, which an operation changed, its next target:
// was is the record before. nodes are those of before; what none of them stands at is
// forgotten.
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

// stoodAt returns those of the earlier targets that some service stands at.
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

// mixed makes one of two targets.
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

// SameService reports whether two definitions build and run the same.
func SameService(a, b Service) bool { return reflect.DeepEqual(a.Substance(), b.Substance()) }

// Substance is what of a definition matters to what runs.
func (s Service) Substance() Service {
	s.Base, s.Links, s.AllowDecommission, s.Exclusive = Base{}, nil, nil, ""
	return s
}

// Touch notes on a node that a task of an operation on its cluster did something to
// a service, or tried to: of which definition and configuration that leaves it, and
// whether it is to run. The node's Marks are written to; done says that it succeeded.
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
				m.Config = to.Config // what has no CONFIGURE takes it as it starts
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
