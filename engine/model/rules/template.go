package rules

import (
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/sets"
	"github.com/coopr/coopr/internal/words"
)

// checkTemplate adds the faults that a cluster or partial template has by itself: numbers out
// of bounds, and constraints that contradict each other.
func checkTemplate(fs *model.Faults, t *model.ClusterTemplate) {
	checkRecovery(fs, t.Recovery)
	lists := map[string]int{
		"defaults.services": len(t.Defaults.Services), "plans": len(t.Plans), "includes": len(t.Includes), "links": len(t.Links),
		"compatibility.hardwaretypes": len(t.Compatibility.HardwareTypes), "compatibility.imagetypes": len(t.Compatibility.ImageTypes),
		"compatibility.services":         len(t.Compatibility.Services),
		"constraints.services":           len(t.Constraints.Services),
		"constraints.layout.mustcoexist": len(t.Constraints.Layout.MustCoexist),
		"constraints.layout.cantcoexist": len(t.Constraints.Layout.CantCoexist),
	}
	for i, p := range t.Plans {
		for k, ph := range p.Phases {
			lists[fmt.Sprintf("plans[%d].phases", i)] = len(p.Phases)
			lists[fmt.Sprintf("plans[%d].phases[%d].steps", i, k)] = len(ph.Steps)
		}
	}
	together := 0
	for _, set := range slices.Concat(t.Constraints.Layout.MustCoexist, t.Constraints.Layout.CantCoexist) {
		together += len(set)
	}
	lists["constraints.layout"] = together / 5
	for name, c := range t.Constraints.Services {
		lists["constraints.services."+name] = max(len(c.HardwareTypes), len(c.ImageTypes), len(c.Requires))
	}
	if tooLong(fs, lists) {
		return
	}
	seen := map[string]int{}
	for i, s := range t.Defaults.Services {
		path := fmt.Sprintf("defaults.services[%d]", i)
		if s.Name == "" {
			fs.Add(path, "is missing its name")
		} else if first, twice := seen[s.Name]; twice {
			fs.Addf(path, "%s is already named at defaults.services[%d]: keep one", s.Name, first)
		} else {
			seen[s.Name] = i
		}
	}
	if why := model.CheckDNSSuffix(t.Defaults.DNSSuffix); why != "" {
		fs.Add("defaults.dnsSuffix", why)
	}
	for _, name := range slices.Sorted(maps.Keys(t.Constraints.Services)) {
		c := t.Constraints.Services[name]
		checkQuantities(fs, "constraints.services."+name+".quantities", c.Quantities)
		for i, r := range c.Requires {
			path := fmt.Sprintf("constraints.services.%s.requires[%d]", name, i)
			switch {
			case r.Service == "":
				fs.Add(path+".service", "is missing")
			case r.Service == name:
				fs.Add(path+".service", "is the service itself: use quantities.min")
			}
			if r.Min < 0 {
				fs.Add(path+".min", "must not be negative")
			}
		}
	}
	checkBounds(fs, "constraints.size", "nodes", t.Constraints.Size, 1)
	checkLayout(fs, t.Constraints)
	checkLease(fs, t.Administration.LeaseDuration)
	checkLinks(fs, t.Links)
	checkPlans(fs, t.Plans)
	if t.Extends != nil {
		switch t.Extends.Name {
		case "":
			fs.Add("extends.name", "is missing: name the template to extend, or take \"extends\" away")
		case t.Name:
			fs.Add("extends", "is the template itself")
		}
	}
	for i, r := range t.Includes {
		if r.Name == "" {
			fs.Addf(fmt.Sprintf("includes[%d].name", i), "is missing: name a partial template")
		}
	}
}

func checkBounds(fs *model.Faults, path, what string, s *model.Size, least int) {
	if s == nil {
		return
	}
	if s.Min != nil && int(*s.Min) < 0 {
		fs.Add(path+".min", "must not be negative")
	}
	if s.Max != nil && int(*s.Max) < least {
		fs.Addf(path+".max", "must be at least %d", least)
	}
	if s.Min != nil && s.Max != nil && *s.Min > *s.Max {
		fs.Addf(path, "min %d is more than max %d: no number of %s can be right", *s.Min, *s.Max, what)
	}
	if s.Min != nil && int(*s.Min) > model.MaxClusterSize {
		fs.Addf(path+".min", "is %d, but a cluster may have at most %d nodes", *s.Min, model.MaxClusterSize)
	}
}

func checkQuantities(fs *model.Faults, path string, q model.Quantities) {
	checkBounds(fs, path, "nodes", &model.Size{Min: q.Min, Max: q.Max}, 0)
	if q.Step != nil {
		switch {
		case *q.Step < 1:
			fs.Add(path+".step", "must be at least 1")
		case q.Max != nil && *q.Max > 0 && *q.Step > *q.Max && q.Min != nil && *q.Min > 0:
			fs.Addf(path+".step", "no multiple of %d is between min %d and max %d", *q.Step, *q.Min, *q.Max)
		case q.Odd && *q.Step%2 == 0:
			fs.Addf(path+".step", "a multiple of %d is never odd: change step, or take \"odd\" away", *q.Step)
		}
	}
	if q.Odd && q.Max != nil && *q.Max == 0 {
		fs.Add(path+".odd", "0 is not odd: change max, or take \"odd\" away")
	}
	if q.Ratio == nil {
		return
	}
	bound := func(key, text string) *big.Rat {
		if text == "" {
			return nil
		}
		r, ok := parseRatio(text)
		if !ok {
			fs.Addf(path+".ratio."+key, "must be a share of the nodes from 0 to 1 such as 0.25, but is %s", words.Shorten(text))
			return nil
		}
		return r
	}
	low, high := bound("min", q.Ratio.Min.String()), bound("max", q.Ratio.Max.String())
	if low != nil && high != nil && low.Cmp(high) > 0 {
		fs.Addf(path+".ratio", "min %s is more than max %s", q.Ratio.Min, q.Ratio.Max)
	}
}

var ratio = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?$`)

// parseRatio reads a decimal share from 0 to 1 exactly.
func parseRatio(text string) (*big.Rat, bool) {
	if len(text) > 40 || !ratio.MatchString(text) {
		return nil, false
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok || r.Sign() < 0 || r.Cmp(big.NewRat(1, 1)) > 0 {
		return nil, false
	}
	return r, true
}

// checkLayout adds faults for sets of services that both must and must not share a node.
func checkLayout(fs *model.Faults, c model.Constraints) {
	empty := func(kind string, sets [][]string) {
		for i, set := range sets {
			if slices.Contains(set, "") {
				fs.Addf(fmt.Sprintf("constraints.layout.%s[%d]", kind, i), "contains an empty name")
			}
			if len(set) == 0 {
				fs.Addf(fmt.Sprintf("constraints.layout.%s[%d]", kind, i), "is empty: name at least two services, or take it away")
			}
		}
	}
	empty("mustcoexist", c.Layout.MustCoexist)
	empty("cantcoexist", c.Layout.CantCoexist)
	for i, cant := range c.Layout.CantCoexist {
		set := sets.Unique(cant)
		if len(set) == 1 {
			fs.Addf(fmt.Sprintf("constraints.layout.cantcoexist[%d]", i),
				"names only %s, which can then be on no node: name at least two services", set[0])
		}
		if len(set) < 2 {
			continue
		}
		for j, must := range c.Layout.MustCoexist {
			if sets.Contains(must, set) {
				fs.Addf(fmt.Sprintf("constraints.layout.cantcoexist[%d]", i),
					"%s may not share a node, but constraints.layout.mustcoexist[%d] says that they must: remove one of the two", words.And(set), j)
			}
		}
	}
	for j, must := range c.Layout.MustCoexist {
		set := sets.Unique(must)
		for x := range set {
			for y := x + 1; y < len(set); y++ {
				a, b := c.Services[set[x]], c.Services[set[y]]
				path := fmt.Sprintf("constraints.layout.mustcoexist[%d]", j)
				for _, k := range []struct {
					key  string
					a, b []string
				}{{"hardwaretypes", a.HardwareTypes, b.HardwareTypes}, {"imagetypes", a.ImageTypes, b.ImageTypes}} {
					if len(k.a) > 0 && len(k.b) > 0 && !slices.ContainsFunc(k.a, func(n string) bool { return slices.Contains(k.b, n) }) {
						fs.Addf(path, "%s and %s must share a node, but no %s is allowed to both: change constraints.services.%s.%s", set[x], set[y],
							strings.TrimSuffix(k.key, "s"), set[x], k.key)
					}
				}
				if low, high := a.Quantities.Min, b.Quantities.Max; low != nil && high != nil && *low > *high && *high > 0 {
					fs.Addf(path, "%s and %s must share a node, but there must be at least %d of %s and at most %d of %s", set[x], set[y], *low,
						set[x], *high, set[y])
				}
				if low, high := b.Quantities.Min, a.Quantities.Max; low != nil && high != nil && *low > *high && *high > 0 {
					fs.Addf(path, "%s and %s must share a node, but there must be at least %d of %s and at most %d of %s", set[x], set[y], *low,
						set[y], *high, set[x])
				}
			}
		}
	}
}

func checkLease(fs *model.Faults, l model.LeaseDuration) {
	const path = "administration.leaseduration"
	if l.Initial < 0 || l.Max < 0 || l.Step < 0 {
		fs.Add(path, "durations must not be negative")
	}
	if l.Max > 0 && l.Initial > l.Max {
		fs.Addf(path, "initial %s is more than max %s: a new cluster would already be too old", l.Initial, l.Max)
	}
}

func checkRecovery(fs *model.Faults, p *model.RecoveryPolicy) {
	if p == nil {
		return
	}
	switch p.Replace {
	case "", model.ReplaceGone, model.ReplaceFailing, model.ReplaceNever:
	default:
		fs.Addf("recovery.replace", "must be %q, %q or %q, but is %q", model.ReplaceGone, model.ReplaceFailing, model.ReplaceNever,
			words.Shorten(p.Replace))
	}
	if p.AtOnce != "" && !batchSize(p.AtOnce) {
		fs.Addf("recovery.max-at-once", "must be a number of nodes from 1 on, or 1%% to 100%% of them, but is %q", words.Shorten(p.AtOnce))
	}
	if p.Attempts < 0 {
		fs.Add("recovery.max-attempts", "must not be negative")
	}
	if p.MaxBackoff != 0 && p.MaxBackoff < p.Backoff {
		fs.Add("recovery.max-backoff", "must not be less than backoff")
	}
}
