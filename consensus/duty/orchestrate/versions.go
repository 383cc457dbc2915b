package orchestrate

import (
	"fmt"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
)

// versions returns the definitions that a cluster moves to with a version of its template. A move forwards takes the newest definitions of
// the services, which are not in the set. A move backwards takes for each service the definition that the cluster had when it was last at
// that version, or else the newest one that is older than the next version of the template.
func versions(v *state.View, cl *model.Cluster, version int) (model.Set, error) {
	tenant, name := cl.Tenant, cl.Template.Name
	row, ok := v.Definition(tenant, model.KindClusterTemplate, name, version)
	if !ok {
		var fs model.Faults
		fs.Add("to", fmt.Sprintf("cluster template %s has no version %d: name one that exists", name, version))
		return nil, fs
	}
	out := model.Set{}
	add := func(row model.StoredDefinition) error {
		d, err := model.Restore(row.Kind, row.Body)
		if err != nil {
			return fmt.Errorf("%s %s, version %d: %w", row.Kind, row.Name, row.Version, err)
		}
		d.SetOrigin(row)
		out.Add(d)
		return nil
	}
	if err := add(row); err != nil || version >= cl.Template.Version {
		return out, err
	}
	var then *model.Cluster
	for _, s := range v.History(tenant, cl.ID) {
		if s.State.Template.Name == name && s.State.Template.Version == version {
			then = s.State
		}
	}
	next, hasNext := v.Definition(tenant, model.KindClusterTemplate, name, version+1)
	for _, service := range cl.Services {
		if then != nil {
			if d, ok := then.Definitions[service]; ok {
				out.Add(model.Define(model.KindService, &d))
				continue
			}
		}
		var older *model.StoredDefinition
		for _, row := range v.Versions(tenant, model.KindService, service) {
			if hasNext && row.Index < next.Index && (older == nil || row.Version > older.Version) {
				older = &row
			}
		}
		if older == nil {
			continue
		}
		if err := add(*older); err != nil {
			return out, err
		}
	}
	return out, nil
}
