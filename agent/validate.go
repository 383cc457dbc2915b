package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/host"
)

// judgeWithin bounds the time that automators have to judge what is imported at once.
const judgeWithin = 20 * time.Second

// judgeActions lets the automators that this agent has judge the fields of services'
// actions, beyond what their descriptors say: a mistake shows at the import, and not when a
// cluster is made. Definitions that have faults already are left out. Automators that this agent
// lacks, or that do not answer, stop nothing. What providers say of their fields is a warning:
// no cluster is spoilt by a provider that is not right yet.
func (a *Agent) judgeActions(ctx context.Context, defs []model.Definition, known model.Faults) (faults, warnings model.Faults) {
	if a.host == nil {
		return nil, nil
	}
	offered, provided := map[string]bool{}, map[string]bool{}
	for _, t := range a.host.Types() {
		if t.Kind == model.KindAutomatorType {
			offered[t.Name] = true
		} else {
			provided[t.Name] = true
		}
	}
	ctx, cancel := context.WithTimeout(ctx, judgeWithin)
	defer cancel()
	silent := map[string]bool{} // automators that could not be asked
	for _, d := range defs {
		if p, ok := d.Value.(*model.Provider); ok && provided[p.ProviderType] {
			warnings = append(warnings, a.judgeProvider(ctx, d.ID(), p)...)
			continue
		}
		s, ok := d.Value.(*model.Service)
		if !ok || slices.ContainsFunc(known, func(f *model.Fault) bool { return f.Subject == d.ID() }) {
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(s.Provisioner.Actions)) {
			act := s.Provisioner.Actions[key]
			if !offered[act.Type] || silent[act.Type] {
				continue
			}
			found, err := judgeFields(ctx, a.host, act)
			if err != nil {
				silent[act.Type] = true
				warnings = append(warnings, &model.Fault{Subject: d.ID(), Path: "provisioner.actions." + key, Message: fmt.Sprintf("automator %s could not be asked about its fields: %v", act.Type, err)})
			}
			for _, f := range found {
				path := "provisioner.actions." + key + ".fields"
				if f.Path != "" {
					path += "." + f.Path
				}
				faults = append(faults, &model.Fault{Subject: d.ID(), Path: path, Message: f.Message + " (automator " + act.Type + " says)"})
			}
		}
	}
	return faults, warnings
}

// judgeProvider lets a provider judge its fields. Those that are missing, the definition's own
// check has named already.
func (a *Agent) judgeProvider(ctx context.Context, id string, p *model.Provider) (warnings model.Faults) {
	fields := p.Provisioner
	if fields == nil {
		fields = map[string]any{}
	}
	found, err := a.host.Validate(ctx, model.KindProviderType, p.ProviderType, "admin", fields)
	if err != nil {
		return model.Faults{{Subject: id, Path: "provisioner", Message: fmt.Sprintf("provider type %s could not be asked about its fields: %v", p.ProviderType, err)}}
	}
	for _, f := range found {
		name, _, _ := strings.Cut(f.Path, ".")
		name, _, _ = strings.Cut(name, "[")
		if _, given := fields[name]; given {
			warnings = append(warnings, &model.Fault{Subject: id, Path: "provisioner." + f.Path, Message: f.Message + " (provider type " + p.ProviderType + " says)"})
		}
	}
	return warnings
}

// judgeFields asks an automator about an action. What macros stand in is judged when
// they are expanded, and not before.
func judgeFields(ctx context.Context, h *host.Host, act model.ServiceAction) (model.Faults, error) {
	found, err := h.Validate(ctx, model.KindAutomatorType, act.Type, "admin", act.Fields)
	macros := map[string]bool{}
	for name, v := range act.Fields {
		b, _ := json.Marshal(v) // it came as JSON
		macros[name] = strings.Contains(string(b), "%")
	}
	return slices.DeleteFunc(found, func(f *model.Fault) bool {
		name, _, _ := strings.Cut(f.Path, ".")
		name, _, _ = strings.Cut(name, "[")
		return macros[name] || f.Path == "" && slices.Contains(slices.Collect(maps.Values(macros)), true)
	}), err
}
