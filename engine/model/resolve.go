package model

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/coopr/coopr/internal/sets"
	"github.com/coopr/coopr/internal/words"
)

// ResolveTemplate merges a template with the templates that it extends and the partial templates
// that any of them includes (docs/spec/coopr.md 3.6). The order is: the parent's includes, the
// parent, the template's includes, the template. The parent's own parents come before it in the
// same way. What comes later is merged into what came before:
//
//   - Default services and the lists in compatibility are united. So are the must-coexist and
//     can't-coexist sets; two sets with the same members count as one.
//   - A scalar replaces an earlier one unless it is blank.
//   - Size, lease duration, recovery and each list of preferences replace an earlier one as a
//     whole if they are given.
//   - Each top-level key of the configuration replaces an earlier one with its whole value. The
//     configuration of a default service is put under the service's name.
//   - The constraint of a service, a link and a plan replace an earlier one of the same service,
//     label or name as a whole.
//   - A partial template contributes only its defaults and compatibility, and only once. If it is
//     immutable, nothing after it may set a top-level key that it configures.
//
// Name, label, description, icon, version, extends and includes are the template's own. The error
// is of type Faults. It lists missing templates, a cycle with its members, and keys that an
// immutable template does not allow to be set. If there are none, it lists what the result lacks:
// default services, a default provider or a valid DNS suffix. The result must not be resolved
// again, because its own configuration would seem to override that of an immutable template.
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
	// locked maps a configuration key to the immutable partial template that set it.
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
			r.faults.Addf("extends", "the templates extend each other in a circle: %s: take one \"extends\" away",
				strings.Join(append(names[i:], name), " → "))
			return chain
		}
		parent, ok := Find[ClusterTemplate](r.known, KindClusterTemplate, name)
		if !ok {
			r.faults.Addf("extends", "%sthere is no cluster template %q%s", of(at, &t), name,
				words.DidYouMean(name, r.known.Names(KindClusterTemplate)))
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
		p, ok := Find[PartialTemplate](r.known, KindPartialTemplate, ref.Name)
		if !ok {
			r.faults.Addf(fmt.Sprintf("includes[%d]", i), "%sthere is no partial template %q%s", where, ref.Name,
				words.DidYouMean(ref.Name, r.known.Names(KindPartialTemplate)))
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
	for _, key := range slices.Sorted(maps.Keys(config)) {
		if lock, ok := r.locked[key]; ok {
			r.faults.Addf("defaults.config."+key, "%s may not set this: the immutable %s has set it; take it out of %s", who, lock, who)
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
	c.HardwareTypes = sets.Unique(slices.Concat(c.HardwareTypes, t.Compatibility.HardwareTypes))
	c.ImageTypes = sets.Unique(slices.Concat(c.ImageTypes, t.Compatibility.ImageTypes))
	c.Services = sets.Unique(slices.Concat(c.Services, t.Compatibility.Services))
}

// constraints merges the parts that partial templates do not contribute.
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
		set = sets.Unique(set)
		if !slices.ContainsFunc(have, func(x []string) bool { return sets.Equal(x, set) }) {
			have = append(have, set)
		}
	}
	return have
}
