package model

import (
	"fmt"
	"slices"
	"strings"

	"github.com/coopr/coopr/internal/words"
)

// Linter checks definitions that are about to be written against all others.
type Linter struct {
	// Known are the existing definitions, including the plugin types that agents offer. If it
	// is nil, references to anything but the definitions themselves are not checked.
	Known Lookup
	// Macros checks the macros of a text in a template's config or link. Its error has the
	// position. If it is nil, macros are not checked.
	Macros func(text string) error
}

// Lint checks definitions, and their macros if a function for that is given: see Linter.Lint.
func Lint(defs []Definition, known Lookup, macros ...func(text string) error) (faults, warnings Faults) {
	l := Linter{Known: known}
	if len(macros) > 0 {
		l.Macros = macros[0]
	}
	return l.Lint(defs)
}

// Lint returns the problems of the definitions once they are added to the known ones: faults,
// which refuse a write because the definition could never be used, and warnings, which are
// only shown. The subject of each is the definition ("clustertemplates/lamp").
//
// Faults are: a broken rule of a definition by itself; two definitions with one name; a
// dependency cycle; a requirement that no service meets; and for merged templates references
// that cannot be resolved, missing defaults, incompatible default hardware or image types, and
// default services that exclude each other or cannot be placed. Warnings are about definitions
// that are still usable: compatible services that do not exist, default services that need
// others (a request may choose its services), or a plugin type that no agent offers.
func (l Linter) Lint(defs []Definition) (faults, warnings Faults) {
	// Samples have nothing to check.
	defs = slices.DeleteFunc(slices.Clone(defs), func(d Definition) bool { return d.Value == nil })
	own := NewSet(defs...)
	j := &judge{Linter: l, own: own, all: Over(own, l.Known), offers: map[string][]string{}}
	seen := map[string]string{}
	for _, d := range defs {
		j.subject = d.ID()
		if first, twice := seen[d.ID()]; twice {
			message := "is defined twice"
			if d.Source != "" {
				message = fmt.Sprintf("is defined in %s and again in %s: keep one, or rename one", first, d.Source)
			}
			j.faults = append(j.faults, &Fault{Subject: d.ID(), Message: message})
			continue
		}
		seen[d.ID()] = d.Source
		j.faults = append(j.faults, check(d).about(d.ID())...)
		j.definition(d)
	}
	j.cycles()
	j.children()
	j.pluginTypes()
	return j.faults, j.warnings
}

// judge is one run of a Linter.
type judge struct {
	Linter
	own              Set
	all              Lookup
	subject          string
	faults, warnings Faults
	// offers has the users of each plugin type that no agent offers.
	offers map[string][]string
}

func (j *judge) fault(path, format string, args ...any) {
	j.faults = append(j.faults, &Fault{Subject: j.subject, Path: path, Message: fmt.Sprintf(format, args...)})
}

func (j *judge) warn(path, format string, args ...any) {
	j.warnings = append(j.warnings, &Fault{Subject: j.subject, Path: path, Message: fmt.Sprintf(format, args...)})
}

// exists reports whether a definition exists, or cannot be looked up.
func (j *judge) exists(kind Kind, name string) bool {
	if name == "" {
		return true
	}
	_, ok := j.all.Definition(kind, name)
	return ok || j.Known == nil
}

// missing returns the message for a missing definition, with the consequence and the nearest
// name.
func (j *judge) missing(kind Kind, name, so string) string {
	if so != "" {
		so = ", so " + so
	}
	return fmt.Sprintf("there is no %s %q%s%s", singular(kind), name, so, didYouMean(name, j.all.Names(kind)))
}

var singulars = map[Kind]string{
	KindProvider: "provider", KindHardwareType: "hardware type", KindImageType: "image type", KindService: "service",
	KindClusterTemplate: "cluster template", KindPartialTemplate: "partial template", KindProviderType: "provider type", KindAutomatorType: "automator type",
}

func singular(kind Kind) string { return singulars[kind] }

func (j *judge) definition(d Definition) {
	switch v := d.Value.(type) {
	case *Provider:
		j.provider(v)
	case *HardwareType:
		j.providerMap(v.ProviderMap)
	case *ImageType:
		j.providerMap(v.ProviderMap)
	case *Service:
		j.service(v)
	case *ClusterTemplate:
		j.template(v)
	case *PartialTemplate:
		j.partial(v)
	}
}

func (j *judge) provider(p *Provider) {
	t, ok := find[PluginType](j.all, KindProviderType, p.ProviderType)
	if !ok {
		if p.ProviderType != "" {
			j.offers["provider type "+p.ProviderType] = append(j.offers["provider type "+p.ProviderType], p.Name)
		}
		return
	}
	known := sorted(t.Parameters.Admin.Fields)
	for _, key := range sorted(p.Provisioner) {
		f, isAdmin := t.Parameters.Admin.Fields[key]
		if _, isUser := t.Parameters.User.Fields[key]; isUser && !isAdmin {
			continue
		}
		if !isAdmin && (key == "zones" || key == "hosts") {
			continue // the solver reads it to spread nodes (docs/spec/solver.md rule 5); plugins need not know it
		}
		if !isAdmin {
			j.warn("provisioner."+key, "provider type %s has no field %q%s", t.Name, key, didYouMeanOrOneOf(key, known))
			continue
		}
		if why := f.odd(p.Provisioner[key]); why != "" {
			j.warn("provisioner."+key, "%s", why)
		}
	}
	for _, set := range shortest(MissingFields(*t, ScopeAdmin, p.Provisioner)) {
		j.warn("provisioner."+set, "is missing: provider type %s needs it", t.Name)
	}
}

func (j *judge) providerMap(entries map[string]map[string]any) {
	for _, name := range sorted(entries) {
		if !j.exists(KindProvider, name) {
			j.warn("providermap."+name, "%s", j.missing(KindProvider, name, "nothing uses this entry"))
		}
	}
}

func (j *judge) service(s *Service) {
	d := s.Dependencies
	for _, x := range []struct {
		path  string
		names []string
	}{{"dependencies.install.requires", d.Install.Requires}, {"dependencies.runtime.requires", d.Runtime.Requires}} {
		for i, name := range x.names {
			if name == "" || j.exists(KindService, name) || len(j.providersOf(name)) > 0 {
				continue
			}
			j.fault(fmt.Sprintf("%s[%d]", x.path, i), "no service is called or provides %q%s", name, didYouMean(name, j.all.Names(KindService)))
		}
	}
	for _, key := range sorted(s.Provisioner.Actions) {
		a := s.Provisioner.Actions[key]
		if a.Type == "" {
			continue
		}
		path := "provisioner.actions." + key
		t, ok := find[PluginType](j.all, KindAutomatorType, a.Type)
		if !ok {
			who := "automator type " + a.Type
			if !slices.Contains(j.offers[who], s.Name) {
				j.offers[who] = append(j.offers[who], s.Name)
			}
			continue
		}
		known := sorted(t.Parameters.Admin.Fields)
		for _, f := range sorted(a.Fields) {
			if schema, ok := t.Parameters.Admin.Fields[f]; !ok {
				j.warn(path+".fields."+f, "automator type %s has no field %q%s", t.Name, f, didYouMeanOrOneOf(f, known))
			} else if why := schema.odd(a.Fields[f]); why != "" {
				j.warn(path+".fields."+f, "%s", why)
			}
		}
		for _, f := range shortest(MissingFields(*t, ScopeAdmin, a.Fields)) {
			j.warn(path+".fields."+f, "is missing: automator type %s needs it", t.Name)
		}
	}
	j.links(s.Links)
}

// providersOf returns the services that provide a name, in order.
func (j *judge) providersOf(name string) []string {
	var by []string
	for _, n := range j.all.Names(KindService) {
		if s, ok := find[Service](j.all, KindService, n); ok && slices.Contains(s.Dependencies.Provides, name) {
			by = append(by, n)
		}
	}
	return by
}

// shortest returns the fields of the alternative that lacks the fewest.
func shortest(alternatives []map[string]FieldSchema) []string {
	var best map[string]FieldSchema
	for _, a := range alternatives {
		if best == nil || len(a) < len(best) {
			best = a
		}
	}
	return sorted(best)
}

// cycles adds a fault for every written service on a dependency cycle.
func (j *judge) cycles() {
	services := map[string]Service{}
	for _, n := range j.all.Names(KindService) {
		if s, ok := find[Service](j.all, KindService, n); ok {
			services[n] = *s
		}
	}
	for {
		circle := DependencyCycle(services)
		if circle == nil {
			return
		}
		guilty := circle[0]
		for _, n := range circle {
			if _, written := j.own[KindService][n]; written {
				guilty = n
				j.subject = string(KindService) + "/" + n
				j.fault("dependencies", "these services depend on each other in a circle: %s: take one dependency away", arrows(circle))
				break
			}
		}
		delete(services, guilty)
	}
}

// pluginTypes adds a warning for each type that no agent offers.
func (j *judge) pluginTypes() {
	if j.Known == nil {
		return
	}
	for _, what := range sorted(j.offers) {
		users := j.offers[what]
		kind, name := KindAutomatorType, strings.TrimPrefix(what, "automator type ")
		noun := "service"
		if n, ok := strings.CutPrefix(what, "provider type "); ok {
			kind, name, noun = KindProviderType, n, "provider"
		}
		if len(users) > 1 {
			noun += "s"
		}
		shown := words.And(users)
		if len(users) > 4 {
			shown = fmt.Sprintf("%s and %d others", strings.Join(users[:3], ", "), len(users)-3)
		}
		j.warnings = append(j.warnings, &Fault{Subject: string(kind) + "/" + name, Message: fmt.Sprintf("no agent offers the %s%s; %s %s cannot be used until one does", what, didYouMean(name, j.all.Names(kind)), noun, shown)})
	}
}

func (j *judge) links(links []Link) {
	for i, l := range links {
		j.macros(fmt.Sprintf("links[%d].url", i), l.URL)
	}
}

// macros checks every text of a configuration.
func (j *judge) macros(path string, v any) {
	if j.Macros == nil {
		return
	}
	switch v := v.(type) {
	case string:
		if err := j.Macros(v); err != nil {
			j.fault(path, "%v", err)
		}
	case []any:
		for i, x := range v {
			j.macros(fmt.Sprintf("%s[%d]", path, i), x)
		}
	case map[string]any:
		for _, k := range sorted(v) {
			j.macros(join(path, k), v[k])
		}
	}
}

// Sift separates the definitions that can be written from the others, whose faults it returns.
// A definition that cannot do without a refused one is refused as well. It is for imports that
// leave out invalid definitions.
func (l Linter) Sift(defs []Definition) (good []Definition, faults, warnings Faults) {
	good = defs
	for {
		bad, warned := l.Lint(good)
		if len(bad) == 0 {
			return good, faults, warned
		}
		faults = append(faults, bad...)
		left := slices.DeleteFunc(slices.Clone(good), func(d Definition) bool {
			return slices.ContainsFunc(bad, func(f *Fault) bool { return f.Subject == d.ID() })
		})
		if len(left) == len(good) { // no definition is to blame: refuse all
			return nil, faults, warned
		}
		good = left
	}
}
