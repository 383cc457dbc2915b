package lint

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/sets"
	"github.com/coopr/coopr/internal/words"
)

// template checks a cluster template in its merged form.
func (j *judge) template(t *model.ClusterTemplate) {
	merged, err := model.ResolveTemplate(*t, j.all)
	if err != nil {
		for _, f := range faultsOf(err) {
			// Without known definitions a missing parent is not a fault.
			if j.Known == nil && (t.Extends != nil || len(t.Includes) > 0) {
				continue
			}
			j.faults = append(j.faults, &model.Fault{Subject: j.subject, Path: f.Path, Message: f.Message})
		}
		j.macros("defaults.config", map[string]any(t.Defaults.Config))
		j.links(t.Links)
		return
	}
	if t.Extends != nil || len(t.Includes) > 0 {
		t = &merged // otherwise paths are those of the text itself
	}
	j.defaults(t)
	j.defaultServices(t)
	j.compatibility(t)
	j.constraints(t)
	for i, n := range t.Preferences.HardwareTypes {
		if !j.exists(model.KindHardwareType, n) {
			j.warn(fmt.Sprintf("preferences.hardwaretypes[%d]", i), "%s", j.missing(model.KindHardwareType, n, ""))
		}
	}
	for i, n := range t.Preferences.ImageTypes {
		if !j.exists(model.KindImageType, n) {
			j.warn(fmt.Sprintf("preferences.imagetypes[%d]", i), "%s", j.missing(model.KindImageType, n, ""))
		}
	}
	if t.Comparator != "" && t.Comparator != "original" && t.Comparator != "cost" {
		j.warn("comparator", "%q is neither \"original\" nor \"cost\": a plugin must offer it", t.Comparator)
	}
	j.macros("defaults.config", map[string]any(t.Defaults.Config))
	j.links(t.Links)
	j.lintPlans(t)
}

// defaults checks the default provider, hardware type and image type.
func (j *judge) defaults(t *model.ClusterTemplate) {
	d := t.Defaults
	if !j.exists(model.KindProvider, d.Provider) {
		j.fault("defaults.provider", "%s", j.missing(model.KindProvider, d.Provider, "no cluster can be made with the defaults"))
	}
	for _, x := range []struct {
		path, name string
		kind       model.Kind
		compatible []string
		entry      string
	}{
		{"defaults.hardwaretype", d.HardwareType, model.KindHardwareType, t.Compatibility.HardwareTypes, "flavor"},
		{"defaults.imagetype", d.ImageType, model.KindImageType, t.Compatibility.ImageTypes, "image"},
	} {
		if x.name == "" {
			continue
		}
		if len(x.compatible) > 0 && !slices.Contains(x.compatible, x.name) {
			j.fault(x.path, "%s is not in compatibility.%s%s, so no cluster can be made with it: change the one or add to the other", x.name,
				x.kind, oneOf(x.compatible))
		}
		if !j.exists(x.kind, x.name) {
			j.fault(x.path, "%s", j.missing(x.kind, x.name, "no cluster can be made with the defaults"))
			continue
		}
		if entries, ok := j.entries(x.kind, x.name); ok && d.Provider != "" && j.exists(model.KindProvider, d.Provider) &&
			entries[d.Provider] == nil {
			j.warn(x.path, "%s has no %s for the default provider %s: clusters must choose another provider or %s", x.name, x.entry, d.Provider,
				singular(x.kind))
		}
	}
}

// entries returns the providermap of a hardware or image type.
func (j *judge) entries(kind model.Kind, name string) (map[string]map[string]any, bool) {
	if kind == model.KindHardwareType {
		if h, ok := model.Find[model.HardwareType](j.all, kind, name); ok {
			return h.ProviderMap, true
		}
		return nil, false
	}
	if i, ok := model.Find[model.ImageType](j.all, kind, name); ok {
		return i.ProviderMap, true
	}
	return nil, false
}

func oneOf(names []string) string {
	const show = 6
	if len(names) > show {
		return fmt.Sprintf(" (%s, …)", words.And(names[:show]))
	}
	return fmt.Sprintf(" (%s)", words.And(names))
}

// defaultServices checks the services that a cluster gets by default.
func (j *judge) defaultServices(t *model.ClusterTemplate) {
	path := func(i int) string { return fmt.Sprintf("defaults.services[%d]", i) }
	on := map[string]model.Service{}
	provided := map[string]bool{}
	whole := true
	for i, s := range t.Defaults.Services {
		v, ok := model.Find[model.Service](j.all, model.KindService, s.Name)
		if !ok {
			whole = false
			if j.Known != nil {
				j.fault(path(i), "%s", j.missing(model.KindService, s.Name, "no cluster can be made with the defaults"))
			}
		} else {
			on[s.Name] = *v
			for _, p := range v.Dependencies.Provides {
				provided[p] = true
			}
		}
		provided[s.Name] = true
		if c := t.Compatibility.Services; len(c) > 0 && !slices.Contains(c, s.Name) {
			j.warn(path(i), "%s is not in compatibility.services: clusters must choose other services than the default ones, or it must be "+
				"added there", s.Name)
		}
	}
	if !whole {
		return // a missing service might be what the others require
	}
	for i, s := range t.Defaults.Services {
		d := on[s.Name].Dependencies
		lacks := slices.DeleteFunc(sets.Unique(slices.Concat(d.Install.Requires, d.Runtime.Requires)), func(n string) bool { return provided[n] })
		if len(lacks) > 0 {
			j.warn(path(i), "%s requires %s, which no default service is or provides: clusters must choose other services than the default "+
				"ones, or defaults.services needs more", s.Name, words.And(lacks))
		}
		for _, c := range sets.Unique(d.Conflicts) {
			if _, both := on[c]; both && c != s.Name {
				j.fault(path(i), "%s conflicts with %s, which is a default service too: take one away", s.Name, c)
			}
		}
	}
}

// compatibility warns about allowed choices that do not exist.
func (j *judge) compatibility(t *model.ClusterTemplate) {
	for _, x := range []struct {
		kind  model.Kind
		names []string
	}{{model.KindHardwareType, t.Compatibility.HardwareTypes}, {model.KindImageType, t.Compatibility.ImageTypes},
		{model.KindService, t.Compatibility.Services}} {
		first := map[string]int{}
		for i, n := range x.names {
			path := fmt.Sprintf("compatibility.%s[%d]", x.kind, i)
			if at, twice := first[n]; twice {
				j.warn(path, "%s is already named at [%d]", n, at)
				continue
			}
			first[n] = i
			if !j.exists(x.kind, n) {
				j.warn(path, "%s", j.missing(x.kind, n, "it cannot be chosen"))
			}
		}
	}
}

// constraints checks the names in the constraints, and the layouts that they leave possible.
func (j *judge) constraints(t *model.ClusterTemplate) {
	isDefault := func(name string) bool {
		return slices.ContainsFunc(t.Defaults.Services, func(s model.DefaultService) bool { return s.Name == name })
	}
	possible := func(path, name string) {
		switch {
		case isDefault(name):
		case !j.exists(model.KindService, name):
			j.warn(path, "%s", j.missing(model.KindService, name, "this has no effect"))
		case len(t.Compatibility.Services) > 0 && !slices.Contains(t.Compatibility.Services, name):
			j.warn(path, "%s is not in compatibility.services, so this has no effect%s", name, words.DidYouMean(name, t.Compatibility.Services))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.Constraints.Services)) {
		c := t.Constraints.Services[name]
		path := "constraints.services." + name
		possible(path, name)
		say := j.warn
		if isDefault(name) {
			say = j.fault
		}
		j.types(path+".hardwaretypes", name, model.KindHardwareType, c.HardwareTypes, t.Compatibility.HardwareTypes, t.Defaults.HardwareType, say)
		j.types(path+".imagetypes", name, model.KindImageType, c.ImageTypes, t.Compatibility.ImageTypes, t.Defaults.ImageType, say)
		if size := t.Constraints.Size; size != nil && size.Max != nil && c.Quantities.Min != nil && *c.Quantities.Min > *size.Max {
			say(path+".quantities.min", "%d nodes with %s are more than the %d nodes that constraints.size.max allows", *c.Quantities.Min, name,
				*size.Max)
		}
		if q := c.Quantities; q.Max != nil && *q.Max == 0 && isDefault(name) {
			j.fault(path+".quantities.max", "is 0, but %s is a default service: raise it, or take %s out of defaults.services", name, name)
		}
		for i, r := range c.Requires {
			if r.Service != "" {
				possible(fmt.Sprintf("%s.requires[%d].service", path, i), r.Service)
			}
		}
	}
	for _, x := range []struct {
		key  string
		sets [][]string
	}{{"mustcoexist", t.Constraints.Layout.MustCoexist}, {"cantcoexist", t.Constraints.Layout.CantCoexist}} {
		for i, set := range x.sets {
			path := fmt.Sprintf("constraints.layout.%s[%d]", x.key, i)
			for k, name := range set {
				if slices.Index(set, name) == k {
					possible(path, name)
				}
			}
			for k := range i {
				if sets.Equal(x.sets[k], set) {
					j.warn(path, "has the same services as %s[%d]", x.key, k)
				}
			}
		}
	}
}

// types checks the hardware or image types that one service may have.
func (j *judge) types(path, service string, kind model.Kind, names, compatible []string, standard string,
	say func(string, string, ...any)) {
	usable := 0
	for i, n := range names {
		at := fmt.Sprintf("%s[%d]", path, i)
		switch {
		case !j.exists(kind, n):
			j.warn(at, "%s", j.missing(kind, n, ""))
		case len(compatible) > 0 && !slices.Contains(compatible, n):
			j.warn(at, "%s is not in compatibility.%s%s", n, kind, words.DidYouMean(n, compatible))
		default:
			usable++
		}
	}
	switch {
	case len(names) == 0:
	case usable == 0:
		say(path, "none of %s can be used: %s could be placed nowhere", words.And(names), service)
	case standard != "" && !slices.Contains(names, standard):
		j.warn(path, "the default %s %s is not among %s: with it %s could be placed nowhere", singular(kind), standard, words.And(names), service)
	}
}

// partial checks a partial template by itself.
func (j *judge) partial(p *model.PartialTemplate) {
	for i, s := range p.Defaults.Services {
		if !j.exists(model.KindService, s.Name) {
			j.warn(fmt.Sprintf("defaults.services[%d]", i), "%s", j.missing(model.KindService, s.Name, "no cluster can be made with it"))
		}
	}
	for _, x := range []struct {
		path, name string
		kind       model.Kind
	}{{"defaults.provider", p.Defaults.Provider, model.KindProvider},
		{"defaults.hardwaretype", p.Defaults.HardwareType, model.KindHardwareType},
		{"defaults.imagetype", p.Defaults.ImageType, model.KindImageType}} {
		if !j.exists(x.kind, x.name) {
			j.warn(x.path, "%s", j.missing(x.kind, x.name, ""))
		}
	}
	j.compatibility(&p.ClusterTemplate)
	for _, x := range []struct {
		key  string
		used bool
	}{
		{"constraints", len(p.Constraints.Services) > 0 || p.Constraints.Size != nil || len(p.Constraints.Layout.MustCoexist) > 0 ||
			len(p.Constraints.Layout.CantCoexist) > 0},
		{"administration", p.Administration != (model.Administration{})},
		{"links", len(p.Links) > 0},
		{"extends", p.Extends != nil},
		{"includes", len(p.Includes) > 0},
		{"preferences", len(p.Preferences.HardwareTypes) > 0 || len(p.Preferences.ImageTypes) > 0},
		{"comparator", p.Comparator != ""},
		{"plans", len(p.Plans) > 0},
	} {
		if x.used {
			j.warn(x.key, "has no effect in a partial template, of which only defaults and compatibility are taken: put it into a cluster template")
		}
	}
	j.macros("defaults.config", map[string]any(p.Defaults.Config))
}

// children warns about existing templates that a written template or partial would break.
func (j *judge) children() {
	if j.Known == nil || len(j.own[model.KindClusterTemplate]) == 0 && len(j.own[model.KindPartialTemplate]) == 0 {
		return
	}
	for _, name := range j.Known.Names(model.KindClusterTemplate) {
		if _, written := j.own[model.KindClusterTemplate][name]; written {
			continue
		}
		t, ok := model.Find[model.ClusterTemplate](j.Known, model.KindClusterTemplate, name)
		if !ok || t.Extends == nil && len(t.Includes) == 0 {
			continue
		}
		if _, err := model.ResolveTemplate(*t, j.Known); err != nil {
			continue // it was broken before
		}
		if _, err := model.ResolveTemplate(*t, j.all); err != nil {
			for _, f := range faultsOf(err) {
				j.warnings = append(j.warnings, &model.Fault{Subject: string(model.KindClusterTemplate) + "/" + name, Path: f.Path,
					Message: "after this change no cluster can be made of it: " + f.Message})
			}
		}
	}
}

// faultsOf returns the faults of which an error consists.
func faultsOf(err error) model.Faults {
	if fs, ok := errors.AsType[model.Faults](err); ok {
		return fs
	}
	return model.Faults{{Message: err.Error()}}
}
