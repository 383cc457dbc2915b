package model

import (
	"fmt"
	"maps"
	"slices"
)

// Part is a part of a definition whose values a user chooses freely, secrets among them: the fields of a provider or of an action of a
// service, or a configuration.
type Part struct {
	// Path is the place of the part in its definition: "provisioner.actions.start.fields".
	Path string
	// Key is the same for the part wherever it stands in a list: a service of a template has its name there.
	Key string
	// Plugin is the key of the plugin type that gets the fields, "provider/NAME" or "automator/NAME". It is "" for a configuration.
	Plugin string
	Fields map[string]any
}

// MapParts returns a copy of a definition in which fn replaces the fields of its parts. It calls fn in the order of the paths, and ends
// with the first error, which gets the path before it. Parts without fields are left out.
func (d Definition) MapParts(fn func(p Part) (map[string]any, error)) (Definition, error) {
	var err error
	put := func(path, key, plugin string, fields map[string]any) map[string]any {
		if len(fields) == 0 || err != nil {
			return fields
		}
		out, e := fn(Part{Path: path, Key: key, Plugin: plugin, Fields: fields})
		if e != nil {
			err = fmt.Errorf("%s.%w", path, e)
			return fields
		}
		return out
	}
	defaults := func(x Defaults) Defaults {
		x.Config, x.Services = put("defaults.config", "defaults.config", "", x.Config), slices.Clone(x.Services)
		for i := range x.Services {
			s := &x.Services[i]
			s.Config = put(fmt.Sprintf("defaults.services[%d].config", i), "defaults.services["+s.Name+"].config", "", s.Config)
		}
		return x
	}
	switch v := d.Value.(type) {
	case *Provider:
		p := *v
		p.Provisioner = put("provisioner", "provisioner", "provider/"+p.ProviderType, p.Provisioner)
		d.Value = &p
	case *Service:
		s := *v
		s.Provisioner.Actions = maps.Clone(s.Provisioner.Actions)
		for _, key := range slices.Sorted(maps.Keys(s.Provisioner.Actions)) {
			a := s.Provisioner.Actions[key]
			path := "provisioner.actions." + key + ".fields"
			a.Fields = put(path, path, "automator/"+a.Type, a.Fields)
			s.Provisioner.Actions[key] = a
		}
		d.Value = &s
	case *ClusterTemplate:
		t := *v
		t.Defaults = defaults(t.Defaults)
		d.Value = &t
	case *PartialTemplate:
		t := *v
		t.Defaults = defaults(t.Defaults)
		d.Value = &t
	}
	return d, err
}

// Parts returns the parts of a definition that have fields, by their paths.
func (d Definition) Parts() map[string]Part { return d.parts(func(p Part) string { return p.Path }) }

// KeyedParts returns the parts of a definition that have fields, by their keys.
func (d Definition) KeyedParts() map[string]Part {
	return d.parts(func(p Part) string { return p.Key })
}

func (d Definition) parts(name func(p Part) string) map[string]Part {
	out := map[string]Part{}
	_, _ = d.MapParts(func(p Part) (map[string]any, error) { // it does not fail
		out[name(p)] = p
		return p.Fields, nil
	})
	return out
}
