package model

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// ResolveTemplate merges a template with all it extends and includes
// (docs/spec/coopr.md 3.6), in the order: the parent's includes, the parent, the
// child's includes, the child; parents of parents first.
//
//   - lists are unioned in that order; must- and can't-coexist sets likewise,
//     where two sets with the same members are one;
//   - scalars: the later one counts, where it is not blank; size and
//     administration as a whole, where they are given;
//   - config: the later one counts for each top-level key, nothing deeper; the
//     configuration of a default service is put under the service's name;
//   - constraints of a service: the later one counts as a whole;
//   - links: the later one of a label counts; of plans, that of a name;
//   - of a partial template only defaults and compatibility are taken, once,
//     however often it is included; the top-level keys that an immutable one
//     configures may not be configured again later.
//
// Name, label, description, icon, version, extends and includes are the
// child's own. The error, of type Faults, has every reason: what does not
// exist, a cycle with its members, immutability, and what a template must have
// in the end (default services, a default provider, a right DNS suffix). The
// result must not be resolved again: its own configuration would then seem to
// override the immutable one.
func ResolveTemplate(t ClusterTemplate, known Lookup) (ClusterTemplate, error) {
	r := resolver{known: known, locked: map[string]string{}, owner: map[string]string{}, included: map[string]bool{}}
	chain := r.chain(t)
	for i := len(chain) - 1; i >= 0; i-- {
		r.includes(chain[i], i == 0)
		r.layer(*chain[i], "template "+chain[i].Name, false)
		r.constraints(chain[i])
	}
	out := r.out
	out.Base, out.Extends, out.Includes = t.Base, t.Extends, t.Includes
	if len(r.faults) == 0 {
		r.complete(out)
	}
	return out, r.faults.Err()
}

type resolver struct {
	known    Lookup
	out      ClusterTemplate
	faults   Faults
	included map[string]bool
	// locked has the immutable partial of each configuration key.
	locked map[string]string
	owner  map[string]string
}

// chain returns the template and its parents, the template first.
func (r *resolver) chain(t ClusterTemplate) []*ClusterTemplate {
	chain := []*ClusterTemplate{&t}
	names := []string{t.Name}
	for at := &t; at.Extends != nil && at.Extends.Name != ""; {
		name := at.Extends.Name
		if i := slices.Index(names, name); i >= 0 {
			r.faults.addf("extends", "the templates extend each other in a circle: %s: take one \"extends\" away", strings.Join(append(names[i:], name), " → "))
			return chain
		}
		parent, ok := find[ClusterTemplate](r.known, KindClusterTemplate, name)
		if !ok {
			r.faults.addf("extends", "%sthere is no cluster template %q%s", of(at, &t), name, didYouMean(name, r.known.Names(KindClusterTemplate)))
			return chain
		}
		chain, names, at = append(chain, parent), append(names, name), parent
	}
	return chain
}

// of names the template that contains a fault, if it is not the template itself.
func of(at, child *ClusterTemplate) string {
	if at.Name == child.Name {
		return ""
	}
	return "in template " + at.Name + ": "
}

func (r *resolver) includes(t *ClusterTemplate, own bool) {
	where := ""
	if !own {
		where = "in template " + t.Name + ": "
	}
	for i, ref := range t.Includes {
		if ref.Name == "" || r.included[ref.Name] {
			continue
		}
		p, ok := find[PartialTemplate](r.known, KindPartialTemplate, ref.Name)
		if !ok {
			r.faults.addf(fmt.Sprintf("includes[%d]", i), "%sthere is no partial template %q%s", where, ref.Name, didYouMean(ref.Name, r.known.Names(KindPartialTemplate)))
			continue
		}
		r.included[ref.Name] = true
		r.layer(ClusterTemplate{Defaults: p.Defaults, Compatibility: p.Compatibility}, "partial template "+ref.Name, p.Immutable)
	}
}

// layer merges defaults and compatibility.
func (r *resolver) layer(t ClusterTemplate, who string, immutable bool) {
	d := &r.out.Defaults
	later(&d.Provider, t.Defaults.Provider)
	later(&d.HardwareType, t.Defaults.HardwareType)
	later(&d.ImageType, t.Defaults.ImageType)
	later(&d.DNSSuffix, t.Defaults.DNSSuffix)
	config := EffectiveDefaults(t.Defaults)
	for _, key := range sorted(config) {
		if lock, ok := r.locked[key]; ok {
			r.faults.addf("defaults.config."+key, "%s may not set this: the immutable %s has set it; take it out of %s", who, lock, who)
			continue
		}
		if d.Config == nil {
			d.Config = map[string]any{}
		}
		d.Config[key] = config[key]
		if immutable {
			r.locked[key] = who
		}
	}
	for _, s := range t.Defaults.Services {
		if !slices.ContainsFunc(d.Services, func(x DefaultService) bool { return x.Name == s.Name }) {
			d.Services = append(d.Services, DefaultService{Name: s.Name})
		}
	}
	c := &r.out.Compatibility
	c.HardwareTypes = unique(slices.Concat(c.HardwareTypes, t.Compatibility.HardwareTypes))
	c.ImageTypes = unique(slices.Concat(c.ImageTypes, t.Compatibility.ImageTypes))
	c.Services = unique(slices.Concat(c.Services, t.Compatibility.Services))
}

// constraints merges the parts that only whole templates have.
func (r *resolver) constraints(t *ClusterTemplate) {
	out := &r.out
	out.Constraints.Layout.MustCoexist = union(out.Constraints.Layout.MustCoexist, t.Constraints.Layout.MustCoexist)
	out.Constraints.Layout.CantCoexist = union(out.Constraints.Layout.CantCoexist, t.Constraints.Layout.CantCoexist)
	if len(t.Constraints.Services) > 0 {
		if out.Constraints.Services == nil {
			out.Constraints.Services = map[string]ServiceConstraint{}
		}
		maps.Copy(out.Constraints.Services, t.Constraints.Services)
	}
	if t.Constraints.Size != nil {
		out.Constraints.Size = t.Constraints.Size
	}
	if l := t.Administration.LeaseDuration; l != (LeaseDuration{}) {
		out.Administration.LeaseDuration = l
	}
	for _, l := range t.Links {
		if i := slices.IndexFunc(out.Links, func(x Link) bool { return x.Label == l.Label }); i >= 0 {
			out.Links[i] = l
		} else {
			out.Links = append(out.Links, l)
		}
	}
	if len(t.Preferences.HardwareTypes) > 0 {
		out.Preferences.HardwareTypes = t.Preferences.HardwareTypes
	}
	if len(t.Preferences.ImageTypes) > 0 {
		out.Preferences.ImageTypes = t.Preferences.ImageTypes
	}
	for _, p := range t.Plans {
		if i := slices.IndexFunc(out.Plans, func(x Plan) bool { return x.Name == p.Name }); i >= 0 {
			out.Plans[i] = p
		} else {
			out.Plans = append(out.Plans, p)
		}
	}
	if t.Recovery != nil {
		out.Recovery = t.Recovery
	}
	later(&out.Comparator, t.Comparator)
}

// complete adds a fault for everything that a template lacks to make clusters.
func (r *resolver) complete(t ClusterTemplate) {
	from := ""
	if t.Extends != nil || len(t.Includes) > 0 {
		from = ", and neither do the templates that it extends and includes"
	}
	if len(t.Defaults.Services) == 0 {
		r.faults.Add("defaults.services", "the template names no default services"+from+": name at least one")
	}
	if t.Defaults.Provider == "" {
		r.faults.Add("defaults.provider", "the template names no default provider"+from+": name one")
	}
	if why := CheckDNSSuffix(t.Defaults.DNSSuffix); why != "" {
		r.faults.Add("defaults.dnsSuffix", why)
	}
}

// EffectiveDefaults returns the configuration of a template's defaults: its config, with the
// configuration of each default service under the service's name, which takes precedence
// there.
func EffectiveDefaults(d Defaults) map[string]any {
	out := d.Config
	for _, s := range d.Services {
		if len(s.Config) > 0 {
			out = MergeConfig(out, map[string]any{s.Name: s.Config})
		}
	}
	return out
}

func later(to *string, from string) {
	if strings.TrimSpace(from) != "" {
		*to = from
	}
}

// union adds the sets that are not in the list yet, without duplicate names within a set.
func union(have, more [][]string) [][]string {
	for _, set := range more {
		set = unique(set)
		if !slices.ContainsFunc(have, func(x []string) bool { return sameSet(x, set) }) {
			have = append(have, set)
		}
	}
	return have
}
