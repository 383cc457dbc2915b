package compile

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sort"
	"strings"

	"github.com/coopr/coopr/engine/change/object"
	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/engine/model"
)

// Options are the options of Site.
type Options struct {
	// Types are the known types; nil means object.BuiltinTypes.
	Types map[string]*object.Type
	// Last is the previous generation, if there is one. Objects keep the IDs that they have in
	// it.
	Last *object.Site
	// IDs are the IDs of the document's objects from an earlier call (Numbers), or nil. With
	// IDs, Generation is the generation of the site, and faults that an earlier call would
	// have reported are not looked for again. The document may then be a Slice.
	IDs        []object.ID
	Generation uint64
	// Unsafe accepts sites that are certain to deadlock or livelock (rules 26 and 27). It is
	// for tests of the consequences.
	Unsafe bool
}

var (
	nameRule = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*$`)
	hostRule = regexp.MustCompile(`^(agent:[A-Za-z0-9][A-Za-z0-9._-]*|node:[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*)$`)
)

type compiler struct {
	doc     *site.Document
	types   map[string]*object.Type
	offered map[string]*object.Type // types of automators that the document names
	faults  model.Faults
	index   map[string]int // from names to positions in doc.Objects
	defs    []*object.Def  // parallel to doc.Objects; nil for an unknown type
	ids     []object.ID
}

// Site checks a document and compiles it into a site, numbered as the generation after
// opt.Last. The error is model.Faults with every fault of the document.
func Site(doc *site.Document, opt Options) (*object.Site, error) {
	c := &compiler{doc: doc, types: opt.Types, index: make(map[string]int, len(doc.Objects))}
	if c.types == nil {
		c.types = object.BuiltinTypes()
	}
	if !nameRule.MatchString(doc.Name) || strings.Contains(doc.Name, "/") {
		c.fault("name", "%q is not a name for a site: letters, digits, dots, dashes and underscores", doc.Name)
	}
	if doc.CheckInterval < 0 {
		c.fault("check_interval", "must not be negative")
	}
	s := &object.Site{Name: doc.Name, Generation: 1, CheckInterval: int64(doc.CheckInterval)}
	if opt.Last != nil {
		s.Generation = opt.Last.Generation + 1
	}
	c.defs = make([]*object.Def, len(doc.Objects))
	for i := range doc.Objects {
		c.object(i)
	}
	var size int
	if opt.IDs != nil {
		s.Generation, opt.Unsafe = opt.Generation, true
		if len(opt.IDs) != len(doc.Objects) {
			return nil, fmt.Errorf("site %s: %d objects with %d numbers", doc.Name, len(doc.Objects), len(opt.IDs))
		}
		size = c.numbered(opt.IDs)
	} else {
		size = c.number(opt.Last)
	}
	for i := range doc.Objects {
		if c.defs[i] != nil {
			c.needs(i)
		}
	}
	if len(c.faults) > 0 {
		return nil, c.faults
	}
	s.Defs = make([]object.Def, size)
	for i := range s.Defs {
		s.Defs[i].ID = object.ID(i)
	}
	for i, d := range c.defs {
		s.Defs[c.ids[i]] = *d
	}
	s.Link()
	if !opt.Unsafe {
		c.faults = append(c.faults, Contradictions(s)...)
		c.faults = append(c.faults, Deadlocks(s)...)
		c.faults = append(c.faults, Livelocks(s)...)
	}
	if len(c.faults) > 0 {
		return nil, c.faults
	}
	return s, nil
}

func (c *compiler) fault(path, format string, args ...any) {
	c.faults.Add(path, fmt.Sprintf(format, args...))
}

func at(i int, field string) string { return fmt.Sprintf("objects[%d].%s", i, field) }

// object checks an object except for its dependencies.
func (c *compiler) object(i int) {
	o := &c.doc.Objects[i]
	switch first, twice := c.index[o.Name]; {
	case !nameRule.MatchString(o.Name):
		c.fault(
			at(i, "name"),
			"%q is not a name for an object: letters, digits, dots, dashes and underscores, in parts with slashes between them",
			o.Name,
		)
	case twice:
		c.fault(at(i, "name"), "objects[%d] is called %q too: give each object a name of its own", first, o.Name)
	default:
		c.index[o.Name] = i
	}
	if !hostRule.MatchString(o.Host) {
		c.fault(at(i, "host"), `%q is not a host: write "agent:NAME" or "node:CLUSTER/NODE"`, o.Host)
	}
	t := c.typeOf(o.Type)
	if t == nil {
		c.fault(
			at(i, "type"),
			"there is no type %q: the types are %s, and %sNAME of an automator plugin",
			o.Type,
			strings.Join(slices.Sorted(maps.Keys(c.types)), ", "),
			object.OfferedPrefix,
		)
		return
	}
	d := &object.Def{Name: o.Name, Host: o.Host, Type: t, Preferred: t.Preferred, Content: digest(o)}
	if o.Preferred != "" {
		if s, ok := c.target(t, o.Preferred, at(i, "preferred")); ok {
			d.Preferred = s
		}
	}
	for s := 1; s < len(t.States); s++ {
		if object.State(s) != d.Preferred && t.Way(object.State(s), d.Preferred) == nil {
			c.fault(at(i, "preferred"), "%s cannot get from %s to %s: type %s has no way", o.Name, t.States[s], t.States[d.Preferred], t.Name)
		}
	}
	for a := range o.Actions {
		if a != "check" && !slices.Contains(t.Actions, a) {
			c.fault(at(i, "actions."+a), "type %s has no action %q: it has check, %s", t.Name, a, strings.Join(t.Actions, ", "))
		}
	}
	c.defs[i] = d
}

// typeOf returns the type with this name, or nil.
func (c *compiler) typeOf(name string) *object.Type {
	if t := c.types[name]; t != nil {
		return t
	}
	if t := c.offered[name]; t != nil {
		return t
	}
	t, ok := object.Offered(name)
	if !ok {
		return nil
	}
	if c.offered == nil {
		c.offered = map[string]*object.Type{}
	}
	c.offered[name] = t
	return t
}

// digest returns a hash of an object's type and content.
func digest(o *site.Object) uint64 {
	b, err := json.Marshal([]any{o.Type, o.Content, o.Actions})
	if err != nil {
		return 0 // a value that no document can hold
	}
	sum := sha256.Sum256(b)
	return binary.BigEndian.Uint64(sum[:])
}

// target returns the state with this name, if objects may be asked for it.
func (c *compiler) target(t *object.Type, name, path string) (object.State, bool) {
	s, ok := t.State(name)
	if !ok || !t.Targetable(s) {
		var names []string
		for i, n := range t.States {
			if t.Targetable(object.State(i)) {
				names = append(names, n)
			}
		}
		c.fault(path, "type %s has no state %q that may be asked for: it has %s", t.Name, name, strings.Join(names, ", "))
		return 0, false
	}
	return s, true
}

// number assigns IDs to all objects and returns how many IDs there are. An object that moved
// to another host or changed to a different type counts as a new object.
func (c *compiler) number(last *object.Site) int {
	c.ids = make([]object.ID, len(c.defs))
	known := map[string]object.ID{}
	var free []object.ID
	size := 0
	if last != nil {
		size = len(last.Defs)
		for i := range last.Defs {
			if d := &last.Defs[i]; d.Name == "" {
				free = append(free, d.ID)
			} else {
				known[d.Name] = d.ID
			}
		}
	}
	for i, d := range c.defs {
		if d == nil {
			continue
		}
		if id, ok := known[d.Name]; ok && last.Defs[id].Host == d.Host && last.Defs[id].Type.Same(d.Type) {
			c.ids[i] = id
		} else if len(free) > 0 {
			c.ids[i], free = free[0], free[1:]
		} else {
			c.ids[i] = object.ID(size)
			size++
		}
		d.ID = c.ids[i]
	}
	return size
}

// numbered assigns the IDs that an earlier call returned.
func (c *compiler) numbered(ids []object.ID) int {
	c.ids = ids
	size := 0
	for i, d := range c.defs {
		if d != nil {
			d.ID = ids[i]
		}
		size = max(size, int(ids[i])+1)
	}
	return size
}

// Numbers returns the IDs that a compiled site has for the objects of its document, in the
// document's order.
func Numbers(doc *site.Document, s *object.Site) []object.ID {
	known := make(map[string]object.ID, len(s.Defs))
	for i := range s.Defs {
		if s.Defs[i].Name != "" {
			known[s.Defs[i].Name] = s.Defs[i].ID
		}
	}
	ids := make([]object.ID, len(doc.Objects))
	for i := range doc.Objects {
		ids[i] = known[doc.Objects[i].Name]
	}
	return ids
}

// draft is a need before its slot is known.
type draft struct {
	object.Need
	provider object.ID
	path     string
}

// needs checks an object's dependencies.
func (c *compiler) needs(i int) {
	o, d := &c.doc.Objects[i], c.defs[i]
	if len(o.Requires)+len(o.Holds) == 0 {
		return
	}
	var drafts []draft
	for j := range o.Requires {
		r := &o.Requires[j]
		path := at(i, fmt.Sprintf("requires[%d]", j))
		n := draft{path: path, Need: object.Need{From: object.Any, To: d.Preferred}}
		ok := true
		if r.From != "" && r.From != "*" {
			s, known := d.Type.State(r.From)
			if !known || s == object.Unknown {
				c.fault(path+".from", "type %s has no state %q: it has %s", d.Type.Name, r.From, strings.Join(d.Type.States[1:], ", "))
				ok = false
			}
			n.From = s
		}
		if r.To == "*" {
			n.To = object.Any
		} else if r.To != "" {
			var good bool
			n.To, good = c.target(d.Type, r.To, path+".to")
			ok = ok && good
		}
		if ok && !slices.ContainsFunc(d.Type.Moves(), func(m object.Transition) bool {
			return (n.From == object.Any || n.From == m.From) && (n.To == object.Any || n.To == m.To)
		}) {
			c.fault(path, "type %s has no transition from %s to %s", d.Type.Name, either(r.From), d.Type.States[n.To])
		}
		if c.provider(i, &n, r.Object, r.State, path+".object", path+".state") && ok {
			drafts = append(drafts, n)
		}
	}
	for j := range o.Holds {
		h := &o.Holds[j]
		path := at(i, fmt.Sprintf("holds[%d]", j))
		n := draft{path: path, Need: object.Need{Hold: true, From: d.Preferred}}
		ok := true
		if h.State != "" {
			n.From, ok = c.target(d.Type, h.State, path+".state")
		}
		if c.provider(i, &n, h.Object, h.In, path+".object", path+".in") && ok {
			drafts = append(drafts, n)
		}
	}
	c.assemble(d, drafts)
}

func either(s string) string {
	if s == "" || s == "*" {
		return "any state"
	}
	return s
}

// provider fills in the object and the state that a dependency names.
func (c *compiler) provider(i int, n *draft, name, state, namePath, statePath string) bool {
	p, ok := c.index[name]
	switch {
	case !ok:
		c.fault(namePath, "there is no object %q in this site", name)
		return false
	case p == i:
		c.fault(namePath, "%s cannot depend on itself", name)
		return false
	case c.defs[p] == nil:
		return false // its type is reported as a fault already
	}
	d := c.defs[p]
	n.provider, n.State = c.ids[p], d.Preferred
	if state != "" {
		if n.State, ok = c.target(d.Type, state, statePath); !ok {
			return false
		}
		for s := 1; s < len(d.Type.States); s++ {
			if object.State(s) != n.State && d.Type.Way(object.State(s), n.State) == nil {
				c.fault(statePath, "%s cannot get from %s to %s: type %s has no way", name, d.Type.States[s], state, d.Type.Name)
				return false
			}
		}
	}
	return true
}

// assemble fills in the needs of a definition and refuses needs that contradict each other.
func (c *compiler) assemble(d *object.Def, drafts []draft) {
	for j, n := range drafts {
		for _, m := range drafts[:j] {
			if m.provider == n.provider && m.State != n.State && overlap(d.Type, &m.Need, &n.Need) {
				c.fault(n.path, "%s wants the same object in another state at the same time", m.path)
			}
		}
	}
	for _, n := range drafts {
		d.Out = append(d.Out, n.provider)
	}
	slices.Sort(d.Out)
	d.Out = slices.Clip(slices.Compact(d.Out))
	for _, n := range drafts {
		n.Slot = uint32(sort.Search(len(d.Out), func(i int) bool { return d.Out[i] >= n.provider }))
		d.Needs = append(d.Needs, n.Need)
	}
	d.Needs = slices.Clip(d.Needs)
}

// overlap reports whether two needs of one object can apply at the same time.
func overlap(t *object.Type, a, b *object.Need) bool {
	if a.Hold || b.Hold {
		return a.Hold && b.Hold && a.From == b.From
	}
	return slices.ContainsFunc(t.Moves(), func(m object.Transition) bool {
		return a.Covers(m.From, m.To) && b.Covers(m.From, m.To)
	})
}

// Part compiles a part of a generation, or a whole generation.
func Part(p *site.Part) (*object.Site, error) {
	return Site(p.Document, Options{IDs: append([]object.ID{}, p.IDs...), Generation: p.Generation})
}
