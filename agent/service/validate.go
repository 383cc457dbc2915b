package service

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/coopr/coopr/engine/model"
)

// validateTimeout is how long all plugins together may take to check the definitions of one
// request.
const validateTimeout = 20 * time.Second

// validate lets automators check the fields of services' actions, beyond the rules in their
// descriptors, so that a mistake is found when a definition is written and not when a
// cluster is created. It skips definitions with known faults, and automators that this agent
// does not have. A plugin that does not answer causes a warning. The faults that a provider
// reports about its fields are warnings too, because a wrong provider cannot damage a cluster
// that does not exist yet.
func validate(ctx context.Context, p Plugins, defs []model.Definition, known model.Faults) (faults, warnings model.Faults) {
	automators, providers := map[string]bool{}, map[string]bool{}
	for _, t := range p.Types() {
		if t.Kind == model.KindAutomatorType {
			automators[t.Name] = true
		} else {
			providers[t.Name] = true
		}
	}
	ctx, cancel := context.WithTimeout(ctx, validateTimeout)
	defer cancel()
	for _, d := range defs {
		switch v := d.Value.(type) {
		case *model.Provider:
			if providers[v.ProviderType] {
				warnings = append(warnings, validateProvider(ctx, p, d.ID(), v)...)
			}
		case *model.Service:
			if slices.ContainsFunc(known, func(f *model.Fault) bool { return f.Subject == d.ID() }) {
				continue
			}
			found, unchecked := validateService(ctx, p, automators, d.ID(), v)
			faults, warnings = append(faults, found...), append(warnings, unchecked...)
		}
	}
	return faults, warnings
}

// validateService lets automators check the actions of a service. It removes an automator
// that does not answer from the set, so that no other action waits for it.
func validateService(ctx context.Context, p Plugins, automators map[string]bool, id string, s *model.Service) (faults,
	warnings model.Faults) {
	for _, key := range slices.Sorted(maps.Keys(s.Provisioner.Actions)) {
		action := s.Provisioner.Actions[key]
		if !automators[action.Type] {
			continue
		}
		path := "provisioner.actions." + key
		found, err := validateAction(ctx, p, action)
		if err != nil {
			delete(automators, action.Type)
			warnings = append(warnings, &model.Fault{Subject: id, Path: path,
				Message: fmt.Sprintf("automator %s did not check its fields: %v", action.Type, err)})
		}
		for _, f := range found {
			at := path + ".fields"
			if f.Path != "" {
				at += "." + f.Path
			}
			faults = append(faults, &model.Fault{Subject: id, Path: at, Message: f.Message + " (reported by automator " + action.Type + ")"})
		}
	}
	return faults, warnings
}

// validateProvider lets a provider check its fields. It leaves out missing fields, which the
// check of the definition reports.
func validateProvider(ctx context.Context, p Plugins, id string, provider *model.Provider) (warnings model.Faults) {
	fields := provider.Provisioner
	if fields == nil {
		fields = map[string]any{}
	}
	found, err := p.Validate(ctx, model.KindProviderType, provider.ProviderType, "admin", fields)
	if err != nil {
		return model.Faults{{Subject: id, Path: "provisioner",
			Message: fmt.Sprintf("provider type %s did not check its fields: %v", provider.ProviderType, err)}}
	}
	for _, f := range found {
		if _, given := fields[topField(f.Path)]; given {
			warnings = append(warnings, &model.Fault{Subject: id, Path: "provisioner." + f.Path,
				Message: f.Message + " (reported by provider type " + provider.ProviderType + ")"})
		}
	}
	return warnings
}

// validateAction lets an automator check the fields of an action. It leaves out faults of
// fields with macros, whose values are known only when the macros are expanded.
func validateAction(ctx context.Context, p Plugins, action model.ServiceAction) (model.Faults, error) {
	found, err := p.Validate(ctx, model.KindAutomatorType, action.Type, "admin", action.Fields)
	hasMacro, anyMacro := map[string]bool{}, false
	for name, v := range action.Fields {
		b, _ := json.Marshal(v) // it was decoded from JSON
		hasMacro[name] = strings.Contains(string(b), "%")
		anyMacro = anyMacro || hasMacro[name]
	}
	return slices.DeleteFunc(found, func(f *model.Fault) bool {
		return hasMacro[topField(f.Path)] || f.Path == "" && anyMacro
	}), err
}

// topField returns the name of the field that a path such as "files[2].name" begins with.
func topField(path string) string {
	name, _, _ := strings.Cut(path, ".")
	name, _, _ = strings.Cut(name, "[")
	return name
}
