package solver

import (
	"fmt"
	"math/big"
	"slices"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/words"
)

// rule is one named constraint from which a problem is built. An explanation leaves rules out to
// find those that contradict each other.
type rule struct {
	Constraint
	kind    ruleKind
	service string
	set     []string // members of a must- or can't-coexist set, allowed types
	n       int64
	other   string
	index   int
}

type ruleKind int

const (
	ruleMust ruleKind = iota
	ruleCant
	ruleHardware
	ruleImage
	ruleMin
	ruleMax
	ruleStep
	ruleOdd
	ruleRequires
	ruleSizeMin
	ruleSizeMax
	ruleResources
	ruleTypeHardware // the requested hardware type
	ruleTypeImage
	ruleCompatHardware
	ruleCompatImage
	ruleSpreadZone
	ruleSpreadHost
	ruleExclude
	ruleStay // a shrunk cluster keeps every service
)

// collect appends to w.rules every rule that concerns the cluster's services, in a fixed order.
func (w *world) collect() {
	t := &w.in.Template
	add := func(kind ruleKind, path, text string, r rule) {
		r.kind, r.Path, r.Words = kind, path, text
		w.rules = append(w.rules, r)
	}
	if s := t.Constraints.Size; s != nil {
		if s.Min != nil && *s.Min > 0 {
			add(
				ruleSizeMin,
				"constraints.size.min",
				fmt.Sprintf("the cluster must have at least %s", nodesWord(int(*s.Min))),
				rule{n: int64(*s.Min)},
			)
		}
		if s.Max != nil {
			add(ruleSizeMax, "constraints.size.max", fmt.Sprintf("the cluster must have at most %s", nodesWord(int(*s.Max))), rule{n: int64(*s.Max)})
		}
	}
	if c := t.Compatibility.HardwareTypes; len(c) > 0 {
		add(ruleCompatHardware, "compatibility.hardwaretypes", "nodes must have hardware type "+words.Or(c), rule{set: c})
	}
	if c := t.Compatibility.ImageTypes; len(c) > 0 {
		add(ruleCompatImage, "compatibility.imagetypes", "nodes must have image type "+words.Or(c), rule{set: c})
	}
	if h := w.wantedHW; h != "" && w.fresh > 0 {
		add(ruleTypeHardware, orDefault(w.in.HardwareType, "hardwaretype"), "new nodes must have hardware type "+h, rule{set: []string{h}})
	}
	if i := w.wantedImg; i != "" && w.fresh > 0 {
		add(ruleTypeImage, orDefault(w.in.ImageType, "imagetype"), "new nodes must have image type "+i, rule{set: []string{i}})
	}
	for i, set := range t.Constraints.Layout.MustCoexist {
		if here := w.present(set); len(here) > 1 {
			add(
				ruleMust,
				fmt.Sprintf("constraints.layout.mustcoexist[%d]", i),
				"nodes with one of "+words.And(here)+" must have all of them",
				rule{set: here},
			)
		}
	}
	for i, set := range t.Constraints.Layout.CantCoexist {
		set = sortedUnique(set)
		if here := w.present(set); len(set) > 0 && len(here) == len(set) {
			text := "no node may have all of " + words.And(set)
			if len(set) == 1 {
				text = "no node may have " + set[0]
			} else if len(set) == 2 {
				text = set[0] + " and " + set[1] + " may not share a node"
			}
			add(ruleCant, fmt.Sprintf("constraints.layout.cantcoexist[%d]", i), text, rule{set: set})
		}
	}
	for _, s := range w.services {
		if w.in.Change.Kind == Shrink {
			add(ruleStay, "services."+s, s+" must stay on at least 1 node", rule{service: s})
		}
		if c, ok := t.Constraints.Services[s]; ok {
			w.collectService(s, &c, add)
		}
		d := w.in.Services[s]
		if d.Resources != nil && (d.Resources.VCPU > 0 || d.Resources.RAM > 0 || d.Resources.Disk > 0) {
			add(ruleResources, "services."+s+".resources", fmt.Sprintf("%s takes %s of a node", s, amounts(d.Resources)), rule{service: s})
		}
		switch {
		case d.Spread == "zone" && len(w.in.Zones) > 0:
			add(ruleSpreadZone, "services."+s+".spread", fmt.Sprintf("%s must be spread evenly over %d zones", s, len(w.in.Zones)), rule{service: s})
		case d.Spread == "host" && len(w.in.Hosts) > 0:
			add(ruleSpreadHost, "services."+s+".spread", fmt.Sprintf("%s must be spread evenly over %d hosts", s, len(w.in.Hosts)), rule{service: s})
		}
	}
	for i := range w.in.Exclude {
		add(ruleExclude, fmt.Sprintf("exclude[%d]", i), fmt.Sprintf("excluded layout %d must not be chosen again", i), rule{index: i})
	}
}

func (w *world) collectService(s string, c *model.ServiceConstraint, add func(ruleKind, string, string, rule)) {
	at := "constraints.services." + s
	if len(c.HardwareTypes) > 0 {
		add(ruleHardware, at+".hardwaretypes", s+" needs hardware type "+words.Or(c.HardwareTypes), rule{service: s, set: c.HardwareTypes})
	}
	if len(c.ImageTypes) > 0 {
		add(ruleImage, at+".imagetypes", s+" needs image type "+words.Or(c.ImageTypes), rule{service: s, set: c.ImageTypes})
	}
	q := &c.Quantities
	if q.Min != nil && *q.Min > 0 {
		add(
			ruleMin,
			at+".quantities.min",
			fmt.Sprintf("%s must be on at least %s", s, nodesWord(int(*q.Min))),
			rule{service: s, n: int64(*q.Min)},
		)
	}
	if q.Max != nil {
		add(ruleMax, at+".quantities.max", fmt.Sprintf("%s must be on at most %s", s, nodesWord(int(*q.Max))), rule{service: s, n: int64(*q.Max)})
	}
	if q.Step != nil && *q.Step > 1 {
		add(
			ruleStep,
			at+".quantities.step",
			fmt.Sprintf("the number of nodes with %s must be a multiple of %d", s, *q.Step),
			rule{service: s, n: int64(*q.Step)},
		)
	}
	if q.Odd {
		add(ruleOdd, at+".quantities.odd", fmt.Sprintf("the number of nodes with %s must be odd", s), rule{service: s})
	}
	if q.Ratio != nil {
		if r := w.ratio(at+".quantities.ratio.min", string(q.Ratio.Min)); r != nil && r.Sign() > 0 {
			n := ceilOf(r, w.nodes)
			add(
				ruleMin,
				at+".quantities.ratio.min",
				fmt.Sprintf("%s must be on at least a share of %s of the nodes (%d of %d)", s, q.Ratio.Min, n, w.nodes),
				rule{service: s, n: n},
			)
		}
		if r := w.ratio(at+".quantities.ratio.max", string(q.Ratio.Max)); r != nil {
			n := floorOf(r, w.nodes)
			add(
				ruleMax,
				at+".quantities.ratio.max",
				fmt.Sprintf("%s must be on at most a share of %s of the nodes (%d of %d)", s, q.Ratio.Max, n, w.nodes),
				rule{service: s, n: n},
			)
		}
	}
	for i, r := range c.Requires {
		if r.Min > 0 {
			add(ruleRequires, fmt.Sprintf("%s.requires[%d]", at, i), fmt.Sprintf("%s needs %s on at least %s", s, r.Service, nodesWord(r.Min)),
				rule{service: s, other: r.Service, n: int64(r.Min)})
		}
	}
}

// ratio parses a share. A text that is not a share is a fault.
func (w *world) ratio(path, text string) *big.Rat {
	if text == "" {
		return nil
	}
	r, ok := decimal(text)
	if !ok || r.Sign() < 0 || r.Cmp(big.NewRat(1, 1)) > 0 {
		w.fault("template."+path, "%q is not a share: write a decimal number from 0 to 1, such as 0.5", text)
		return nil
	}
	return r
}

// constrained reports whether a service has any constraint in the template. A service without
// constraints is on every node (docs/spec/coopr.md 4.3).
func constrained(t *model.ClusterTemplate, s string) bool {
	if _, ok := t.Constraints.Services[s]; ok {
		return true
	}
	has := func(set []string) bool { return slices.Contains(set, s) }
	return slices.ContainsFunc(t.Constraints.Layout.MustCoexist, has) || slices.ContainsFunc(t.Constraints.Layout.CantCoexist, has)
}

// present returns the members of a set that are on the cluster, sorted.
func (w *world) present(set []string) []string {
	var here []string
	for _, s := range sortedUnique(set) {
		if _, ok := slices.BinarySearch(w.services, s); ok {
			here = append(here, s)
		}
	}
	return here
}

func orDefault(asked, path string) string {
	if asked == "" {
		return "defaults." + path
	}
	return path
}

func amounts(r *model.Resources) string {
	var parts []string
	for _, a := range []struct {
		name string
		v    float64
	}{{"vcpu", r.VCPU}, {"ram", r.RAM}, {"disk", r.Disk}} {
		if a.v > 0 {
			parts = append(parts, fmt.Sprintf("%v %s", a.v, a.name))
		}
	}
	return words.And(parts)
}
