package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/api"
)

type importBody struct {
	Body raw[api.Definitions]
}

func (s *server) importRoutes() {
	write(s, route{
		id: "importDefinitions", method: http.MethodPost, path: "/v1/import", tag: "definitions", rule: rule{need: model.RoleAdmin},
		summary: "Write many definitions at once, all or none",
		description: "The body is what an export returns, or a list of definitions, each with its kind under \"kind\"; JSON or YAML. " +
			"Definitions that are not named stay as they are.",
	}, s.importDefinitions)
	read(s, route{
		id: "exportDefinitions", path: "/v1/export", tag: "definitions", rule: rule{need: model.RoleRead},
		summary: "All definitions of the tenant", description: "Secrets of providers are given to admins only.",
	}, func(_ context.Context, c *call, v View, _ *none) (*api.Definitions, error) {
		return export(v, c.who)
	})
}

func (s *server) importDefinitions(ctx context.Context, c *call, in *importBody) (api.Imported, api.Written, error) {
	var done api.Imported
	defs, err := model.Classify("", in.Body.data)
	if err != nil {
		return done, api.Written{}, judge(err, in.Body.data)
	}
	var kept []model.Definition
	seen := map[string]model.Definition{}
	var faults model.Faults
	for _, d := range defs {
		if ok, why := d.Imports(); !ok {
			done.Warnings = append(done.Warnings, &model.Fault{Subject: d.Name, Line: d.Line, Message: why})
			continue
		}
		if first, twice := seen[d.ID()]; twice {
			faults = append(faults, &model.Fault{Subject: d.ID(), Line: d.Line, Message: fmt.Sprintf("stands in the import twice, first in line %d: leave one out", first.Line)})
			continue
		}
		seen[d.ID()] = d
		kept = append(kept, d)
	}
	if len(faults) > 0 {
		return done, api.Written{}, faults
	}
	if len(kept) == 0 {
		return done, api.Written{}, invalid(model.Faults{{Message: "there is nothing to import: the body has no definition"}})
	}
	stored, err := s.store(ctx, c, kept)
	if err != nil {
		return done, api.Written{}, err
	}
	w, err := s.Definitions.Put(ctx, c.who, stored, false)
	if err != nil {
		return done, w, err
	}
	done.Warnings = append(done.Warnings, w.Warnings...)
	v, err := s.now(ctx)
	if err != nil {
		return done, w, problem.New(problem.UnknownOutcome, "the definitions are written, but cannot be read back: %w", err)
	}
	for _, d := range stored {
		ref := api.DefinitionRef{Kind: d.Kind, Name: d.Name}
		if got, ok := v.Definition(c.who.Tenant, d.Kind, d.Name, 0); ok {
			ref.Version = got.Version
		}
		done.Written = append(done.Written, ref)
	}
	return done, w, nil
}

// export returns a tenant's definitions. Only admins get secrets.
func export(v View, who model.Caller) (*api.Definitions, error) {
	out := &api.Definitions{}
	r := newRedactor(v, who.Tenant)
	var all error
	for _, kind := range model.Kinds {
		for _, d := range v.Definitions(who.Tenant, kind) {
			def, err := restore(d)
			if err != nil {
				all = errors.Join(all, err)
				continue
			}
			switch x := def.Value.(type) {
			case *model.Provider:
				p := *x
				if !atLeast(who.Role, model.RoleAdmin) {
					p = r.provider(p)
				}
				out.Providers = append(out.Providers, &p)
			case *model.HardwareType:
				out.HardwareTypes = append(out.HardwareTypes, x)
			case *model.ImageType:
				out.ImageTypes = append(out.ImageTypes, x)
			case *model.Service:
				out.Services = append(out.Services, x)
			case *model.ClusterTemplate:
				out.ClusterTemplates = append(out.ClusterTemplates, x)
			case *model.PartialTemplate:
				out.PartialTemplates = append(out.PartialTemplates, x)
			case *model.PluginType:
				if kind == model.KindAutomatorType {
					out.AutomatorTypes = append(out.AutomatorTypes, x)
				} else {
					out.ProviderTypes = append(out.ProviderTypes, x)
				}
			}
		}
	}
	return out, all
}
