package lint

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/model/rules"
	"github.com/coopr/coopr/internal/words"
)

// Linter checks definitions that are about to be written against all others.
type Linter struct {
	// Known are the existing definitions, including the plugin types that agents offer. If it
	// is nil, references to anything but the definitions themselves are not checked.
	Known model.Lookup
	// Macros checks the macros of a text in a template's config or link, and calls service for
	// each service that they name. Its error has the position. If it is nil, macros are not
	// checked.
	Macros func(text string, service func(name string) error) error
}

// Lint checks definitions, and their macros if a function for that is given: see Linter.Lint.
func Lint(
	defs []model.Definition,
	known model.Lookup,
	macros ...func(text string, service func(name string) error) error,
) (faults, warnings model.Faults) {
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
// default services that exclude each other or cannot be placed; and macros that are malformed,
// unknown, or, in a configuration, of a service that does not exist. Warnings are about definitions
// that are still usable: compatible services that do not exist, default services that need
// others (a request may choose its services), or a plugin type that no agent offers.
func (l Linter) Lint(defs []model.Definition) (faults, warnings model.Faults) {
	// Samples have nothing to check.
	defs = slices.DeleteFunc(slices.Clone(defs), func(d model.Definition) bool { return d.Value == nil })
	own := model.NewSet(defs...)
	j := &judge{Linter: l, own: own, all: model.Over(own, l.Known), offers: map[string][]string{}}
	seen := map[string]string{}
	for _, d := range defs {
		j.subject = d.ID()
		if first, twice := seen[d.ID()]; twice {
			message := "is defined twice"
			if d.Source != "" {
				message = fmt.Sprintf("is defined in %s and again in %s: keep one, or rename one", first, d.Source)
			}
			j.faults = append(j.faults, &model.Fault{Subject: d.ID(), Message: message})
			continue
		}
		seen[d.ID()] = d.Source
		j.faults = append(j.faults, rules.Check(d).About(d.ID())...)
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
	own              model.Set
	all              model.Lookup
	subject          string
	faults, warnings model.Faults
	// offers has the users of each plugin type that no agent offers.
	offers map[string][]string
}

func (j *judge) fault(path, format string, args ...any) {
	j.faults = append(j.faults, &model.Fault{Subject: j.subject, Path: path, Message: fmt.Sprintf(format, args...)})
}

func (j *judge) warn(path, format string, args ...any) {
	j.warnings = append(j.warnings, &model.Fault{Subject: j.subject, Path: path, Message: fmt.Sprintf(format, args...)})
}

// exists reports whether a definition exists, or cannot be looked up.
func (j *judge) exists(kind model.Kind, name string) bool {
	if name == "" {
		return true
	}
	_, ok := j.all.Definition(kind, name)
	return ok || j.Known == nil
}

// missing returns the message for a missing definition, with the consequence and the nearest
// name.
func (j *judge) missing(kind model.Kind, name, so string) string {
	if so != "" {
		so = ", so " + so
	}
	return fmt.Sprintf("there is no %s %q%s%s", singular(kind), name, so, words.DidYouMean(name, j.all.Names(kind)))
}

var singulars = map[model.Kind]string{
	model.KindProvider: "provider", model.KindHardwareType: "hardware type", model.KindImageType: "image type", model.KindService: "service",
	model.KindClusterTemplate: "cluster template", model.KindPartialTemplate: "partial template", model.KindProviderType: "provider type",
	model.KindAutomatorType: "automator type", model.KindPolicies: "policy document",
}

func singular(kind model.Kind) string { return singulars[kind] }

func (j *judge) definition(d model.Definition) {
	switch v := d.Value.(type) {
	case *model.Provider:
		j.provider(v)
	case *model.HardwareType:
		j.providerMap(v.ProviderMap)
	case *model.ImageType:
		j.providerMap(v.ProviderMap)
	case *model.Service:
		j.service(v)
	case *model.ClusterTemplate:
		j.template(v)
	case *model.PartialTemplate:
		j.partial(v)
	}
}

func (j *judge) provider(p *model.Provider) {
	t, ok := model.Find[model.PluginType](j.all, model.KindProviderType, p.ProviderType)
	if !ok {
		if p.ProviderType != "" {
			j.offers["provider type "+p.ProviderType] = append(j.offers["provider type "+p.ProviderType], p.Name)
		}
		return
	}
	known := slices.Sorted(maps.Keys(t.Parameters.Admin.Fields))
	for _, key := range slices.Sorted(maps.Keys(p.Provisioner)) {
		f, isAdmin := t.Parameters.Admin.Fields[key]
		if _, isUser := t.Parameters.User.Fields[key]; isUser && !isAdmin {
			continue
		}
		if !isAdmin && (key == "zones" || key == "hosts") {
			continue // the solver reads it to spread nodes (docs/spec/solver.md rule 5); plugins need not know it
		}
		if !isAdmin {
			j.warn("provisioner."+key, "provider type %s has no field %q%s", t.Name, key, words.DidYouMeanOrOneOf(key, known))
			continue
		}
		if why := odd(f, p.Provisioner[key]); why != "" {
			j.warn("provisioner."+key, "%s", why)
		}
	}
	for _, set := range shortest(model.MissingFields(*t, model.ScopeAdmin, p.Provisioner)) {
		j.warn("provisioner."+set, "is missing: provider type %s needs it", t.Name)
	}
}

func (j *judge) providerMap(entries map[string]map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		if !j.exists(model.KindProvider, name) {
			j.warn("providermap."+name, "%s", j.missing(model.KindProvider, name, "nothing uses this entry"))
		}
	}
}

func (j *judge) service(s *model.Service) {
	d := s.Dependencies
	for _, x := range []struct {
		path  string
		names []string
	}{{"dependencies.install.requires", d.Install.Requires}, {"dependencies.runtime.requires", d.Runtime.Requires}} {
		for i, name := range x.names {
			if name == "" || j.exists(model.KindService, name) || len(j.providersOf(name)) > 0 {
				continue
			}
			j.fault(fmt.Sprintf("%s[%d]", x.path, i), "no service is called or provides %q%s", name,
				words.DidYouMean(name, j.all.Names(model.KindService)))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(s.Provisioner.Actions)) {
		a := s.Provisioner.Actions[key]
		if a.Type == "" {
			continue
		}
		path := "provisioner.actions." + key
		t, ok := model.Find[model.PluginType](j.all, model.KindAutomatorType, a.Type)
		if !ok {
			who := "automator type " + a.Type
			if !slices.Contains(j.offers[who], s.Name) {
				j.offers[who] = append(j.offers[who], s.Name)
			}
			continue
		}
		known := slices.Sorted(maps.Keys(t.Parameters.Admin.Fields))
		for _, f := range slices.Sorted(maps.Keys(a.Fields)) {
			if schema, ok := t.Parameters.Admin.Fields[f]; !ok {
				j.warn(path+".fields."+f, "automator type %s has no field %q%s", t.Name, f, words.DidYouMeanOrOneOf(f, known))
			} else if why := odd(schema, a.Fields[f]); why != "" {
				j.warn(path+".fields."+f, "%s", why)
			}
		}
		for _, f := range shortest(model.MissingFields(*t, model.ScopeAdmin, a.Fields)) {
			j.warn(path+".fields."+f, "is missing: automator type %s needs it", t.Name)
		}
	}
	j.links(s.Links)
}

// providersOf returns the names of the services that provide a name, sorted.
func (j *judge) providersOf(name string) []string {
	var by []string
	for _, n := range j.all.Names(model.KindService) {
		if s, ok := model.Find[model.Service](j.all, model.KindService, n); ok && slices.Contains(s.Dependencies.Provides, name) {
			by = append(by, n)
		}
	}
	return by
}

// shortest returns the fields of the alternative that lacks the fewest.
func shortest(alternatives []map[string]model.FieldSchema) []string {
	var best map[string]model.FieldSchema
	for _, a := range alternatives {
		if best == nil || len(a) < len(best) {
			best = a
		}
	}
	return slices.Sorted(maps.Keys(best))
}

// cycles adds a fault for every written service on a dependency cycle.
func (j *judge) cycles() {
	services := map[string]model.Service{}
	for _, n := range j.all.Names(model.KindService) {
		if s, ok := model.Find[model.Service](j.all, model.KindService, n); ok {
			services[n] = *s
		}
	}
	for {
		circle := dependencyCycle(services)
		if circle == nil {
			return
		}
		guilty := circle[0]
		for _, n := range circle {
			if _, written := j.own[model.KindService][n]; written {
				guilty = n
				j.subject = string(model.KindService) + "/" + n
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
	for _, what := range slices.Sorted(maps.Keys(j.offers)) {
		users := j.offers[what]
		kind, name := model.KindAutomatorType, strings.TrimPrefix(what, "automator type ")
		noun := "service"
		if n, ok := strings.CutPrefix(what, "provider type "); ok {
			kind, name, noun = model.KindProviderType, n, "provider"
		}
		if len(users) > 1 {
			noun += "s"
		}
		shown := words.And(users)
		if len(users) > 4 {
			shown = fmt.Sprintf("%s and %d others", strings.Join(users[:3], ", "), len(users)-3)
		}
		j.warnings = append(j.warnings, &model.Fault{Subject: string(kind) + "/" + name,
			Message: fmt.Sprintf("no agent offers the %s%s; %s %s cannot be used until one does", what,
				words.DidYouMean(name, j.all.Names(kind)), noun, shown)})
	}
}

func (j *judge) links(links []model.Link) {
	for i, l := range links {
		if j.Macros == nil {
			continue
		}
		// A link is only shown if its macros can be expanded, so a service may be missing.
		if err := j.Macros(l.URL, func(string) error { return nil }); err != nil {
			j.fault(fmt.Sprintf("links[%d].url", i), "%v", err)
		}
	}
}

// macros checks every text of a configuration.
func (j *judge) macros(path string, v any) {
	if j.Macros == nil {
		return
	}
	switch v := v.(type) {
	case string:
		if err := j.Macros(v, j.macroService); err != nil {
			j.fault(path, "%v", err)
		}
	case []any:
		for i, x := range v {
			j.macros(fmt.Sprintf("%s[%d]", path, i), x)
		}
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			j.macros(path+"."+k, v[k])
		}
	}
}

// macroService returns an error if a macro names a service that does not exist: it can never be
// expanded.
func (j *judge) macroService(name string) error {
	if j.exists(model.KindService, name) {
		return nil
	}
	return errors.New(j.missing(model.KindService, name, "the macro can never be expanded"))
}

// Sift separates the definitions that can be written from the others, whose faults it returns.
// A definition that cannot do without a refused one is refused as well. It is for imports that
// leave out invalid definitions.
func (l Linter) Sift(defs []model.Definition) (good []model.Definition, faults, warnings model.Faults) {
	good = defs
	for {
		bad, warned := l.Lint(good)
		if len(bad) == 0 {
			return good, faults, warned
		}
		faults = append(faults, bad...)
		left := slices.DeleteFunc(slices.Clone(good), func(d model.Definition) bool {
			return slices.ContainsFunc(bad, func(f *model.Fault) bool { return f.Subject == d.ID() })
		})
		if len(left) == len(good) { // no definition is to blame: refuse all
			return nil, faults, warned
		}
		good = left
	}
}

// odd is like Judge for values in a definition. There the value of a text field may also be a
// list or an object, such as variables, which its plugin checks.
func odd(f model.FieldSchema, v any) string {
	switch v.(type) {
	case map[string]any, []any:
		if f.Type == "text" {
			return ""
		}
	}
	return f.Judge(v)
}
