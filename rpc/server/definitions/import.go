package definitions

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/coopr/coopr/engine/access"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/model/decode"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/redact"
	"github.com/coopr/coopr/rpc/server/rest"
)

type importBody struct {
	Body rest.Raw[api.Definitions]
}

type importInput struct {
	DryRun bool `query:"dryRun" doc:"Only check the definitions and show what would be written"`
	importBody
}

func importRoutes(s *rest.Server) {
	rest.Write(s, rest.Route{
		ID: "importDefinitions", Method: http.MethodPost, Path: "/v1/import", Tag: "definitions",
		Summary: "Write many definitions at once, all or none",
		Description: "The body is what an export returns, or a list of definitions, each with its kind under \"kind\"; JSON or YAML. " +
			"Definitions that are not named stay as they are. With dryRun nothing is written, and the answer is that of the import.",
	}, func(ctx context.Context, c *rest.Call, in *importInput) (api.Imported, api.Written, error) {
		return importDefinitions(ctx, s, c, in)
	})
	rest.Read(s, rest.Route{
		ID: "exportDefinitions", Path: "/v1/export", Tag: "definitions",
		Summary: "All definitions of the tenant", Description: "Secrets of definitions are given to admins only.",
	}, func(_ context.Context, c *rest.Call, v rest.View, _ *rest.None) (*api.Definitions, error) {
		return export(s, c, v)
	})
}

func importDefinitions(ctx context.Context, s *rest.Server, c *rest.Call, in *importInput) (api.Imported, api.Written, error) {
	done := api.Imported{DryRun: in.DryRun}
	defs, err := decode.Classify("", in.Body.Data)
	if err != nil {
		return done, api.Written{}, rest.Judge(err, in.Body.Data)
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
			faults = append(
				faults,
				&model.Fault{
					Subject: d.ID(),
					Line:    d.Line,
					Message: fmt.Sprintf("is in the import twice, first in line %d: leave one out", first.Line),
				},
			)
			continue
		}
		seen[d.ID()] = d
		kept = append(kept, d)
	}
	if len(faults) > 0 {
		return done, api.Written{}, faults
	}
	if len(kept) == 0 {
		return done, api.Written{}, rest.Invalid(model.Faults{{Message: "there is nothing to import: the body has no definition"}})
	}
	stored, w, _, err := put(ctx, s, c, kept, rest.PutOptions{DryRun: in.DryRun})
	if err != nil {
		return done, w, err
	}
	done.Warnings = append(done.Warnings, w.Warnings...)
	for _, d := range stored {
		done.Written = append(done.Written, api.DefinitionRef{Kind: d.Kind, Name: d.Name, Version: d.Version})
	}
	return done, w, nil
}

// mayReveal reports whether an export for the caller has the secrets of a definition: it is of an administrator who may write the
// definition. Others may have been allowed to write it, but not to use the secrets that it refers to.
func mayReveal(c *rest.Call, d model.Definition) bool {
	return redact.Reveals(c.Who.Role) && len(d.Parts()) > 0 && c.MayNamed(access.Update, typeOf[d.Kind], d.Name) == nil
}

// export returns those of a tenant's definitions that the caller may list. It has the secrets of those that
// the caller may write as an administrator.
func export(s *rest.Server, c *rest.Call, v rest.View) (*api.Definitions, error) {
	out := &api.Definitions{}
	r := redact.For(v, c.Who.Tenant)
	var all error
	for _, kind := range model.Kinds {
		listed, err := list(c, v, kind)
		if err != nil && !errors.Is(err, problem.Forbidden) {
			return nil, err
		}
		for _, d := range listed {
			def, err := restore(d)
			if err != nil {
				all = errors.Join(all, err)
				continue
			}
			if !mayReveal(c, def) {
				def = r.Definition(def)
			} else if def, err = s.Definitions.Reveal(c.Who.Tenant, def); err != nil {
				return nil, err
			}
			switch x := def.Value.(type) {
			case *model.Provider:
				out.Providers = append(out.Providers, x)
			case *model.HardwareType:
				out.HardwareTypes = append(out.HardwareTypes, x)
			case *model.ImageType:
				out.ImageTypes = append(out.ImageTypes, x)
			case *model.Service:
				out.Services = append(out.Services, x)
			case *model.ClusterTemplate:
				out.ClusterTemplates = append(out.ClusterTemplates, x)
			case *model.Policies:
				out.Policies = append(out.Policies, x)
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
