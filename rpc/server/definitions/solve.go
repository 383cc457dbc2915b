package definitions

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/coopr/coopr/engine/access"
	"github.com/coopr/coopr/engine/macro"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/model/decode"
	"github.com/coopr/coopr/engine/model/lint"
	"github.com/coopr/coopr/engine/solver"
	"github.com/coopr/coopr/internal/words"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/rest"
)

func solveRoutes(s *rest.Server) {
	rest.Read(s, rest.Route{ID: "lintClusterTemplate", Path: "/v1/clustertemplates/{name}/lint", Tag: tag,
		Summary: "Check a cluster template against the present definitions"},
		func(ctx context.Context, c *rest.Call, v rest.View, in *rest.ByName) (api.Linted, error) {
			d, ok := v.Definition(c.Who.Tenant, model.KindClusterTemplate, in.Name, 0)
			if !ok {
				return api.Linted{}, noDefinition(v, c.Who.Tenant, model.KindClusterTemplate, "cluster template", in.Name)
			}
			def, err := restore(d)
			if err != nil {
				return api.Linted{}, err
			}
			return faultsOf(ctx, s, c, v, []model.Definition{def}), nil
		})
	rest.Write(s, rest.Route{ID: "lintDefinitions", Method: http.MethodPost, Path: "/v1/lint", Tag: tag,
		Summary:     "Check definitions without importing them",
		Description: "The body is what an import takes. Nothing is written."},
		func(ctx context.Context, c *rest.Call, in *importBody) (api.Linted, api.Written, error) {
			defs, err := decode.Classify("", in.Body.Data)
			if err != nil {
				return api.Linted{}, api.Written{}, rest.Judge(err, in.Body.Data)
			}
			v, err := s.Latest(ctx)
			if err != nil {
				return api.Linted{}, api.Written{}, err
			}
			return faultsOf(ctx, s, c, v, defs), api.Written{}, nil
		})
	rest.Write(s, rest.Route{ID: "solve", Method: http.MethodPost, Path: "/v1/solve", Tag: tag,
		Summary:     "Find layouts and costs for clusters of several sizes, or the reasons why there is no layout",
		Description: "Nothing is written."},
		func(ctx context.Context, c *rest.Call, in *struct{ Body rest.Raw[api.SolveRequest] }) (api.Solved, api.Written, error) {
			req, err := in.Body.Value()
			if err != nil {
				return api.Solved{}, api.Written{}, err
			}
			v, err := s.Latest(ctx)
			if err != nil {
				return api.Solved{}, api.Written{}, err
			}
			out, err := solve(ctx, s, c, v, req)
			return out, api.Written{}, err
		})
}

// The bounds on the search for a template's smallest cluster: the number of sizes and of steps.
const (
	lintSizes  = 100
	lintBudget = 2_000_000
)

// faultsOf checks definitions together with those of the tenant.
func faultsOf(ctx context.Context, s *rest.Server, c *rest.Call, v rest.View, defs []model.Definition) api.Linted {
	known := rest.Known(v, c.Who.Tenant)
	var out api.Linted
	out.Faults, out.Warnings = lint.Lint(defs, known, macro.Check)
	for _, d := range defs {
		out.Warnings = append(out.Warnings, lint.Literals(d, func(plugin string) (offered, defined model.PluginType) {
			return v.TypesOf(c.Who.Tenant, plugin)
		})...)
	}
	all := model.Over(model.NewSet(defs...), known)
	for _, d := range defs {
		t, ok := d.Value.(*model.ClusterTemplate)
		if !ok || faulty(out.Faults, d.ID()) {
			continue
		}
		smallest, fault, sure := smallest(ctx, s, *t, all)
		if fault != nil {
			fault.Subject = d.ID()
			if sure {
				out.Faults = append(out.Faults, fault)
				continue
			}
			out.Warnings = append(out.Warnings, fault)
		}
		out.Templates = append(out.Templates, api.LintedTemplate{Name: t.Name, Smallest: smallest})
	}
	return out
}

func faulty(faults model.Faults, subject string) bool {
	for _, f := range faults {
		if f.Subject == subject {
			return true
		}
	}
	return false
}

// smallest returns the smallest number of nodes of a template's clusters. sure is true if the
// fault leaves the template without any cluster.
func smallest(ctx context.Context, s *rest.Server, t model.ClusterTemplate, all model.Lookup) (n int, fault *model.Fault, sure bool) {
	t, err := model.ResolveTemplate(t, all)
	if err != nil {
		return 0, &model.Fault{Message: err.Error()}, true
	}
	in := solver.Input{Template: t, Budget: lintBudget}
	if err := in.Define(ctx, model.WithRanker(all, s.Definitions.Rank)); err != nil {
		return 0, &model.Fault{Message: err.Error()}, false
	}
	from, most := 1, model.MaxClusterSize
	if size := t.Constraints.Size; size != nil {
		if size.Min != nil {
			from = max(1, int(*size.Min))
		}
		if size.Max != nil {
			most = min(most, int(*size.Max))
		}
	}
	to := min(most, from+lintSizes-1)
	n, err = solver.SmallestSize(ctx, in, from, to)
	switch {
	case err != nil:
		return 0, &model.Fault{Message: "no cluster can be made with the defaults: " + err.Error()}, false
	case n > 0:
		return n, nil, false
	}
	message := fmt.Sprintf("no number of nodes from %d to %d has a layout with the default services", from, to)
	in.Nodes = to
	_, err = solver.Solve(ctx, in)
	if why := new(solver.Unsolvable); errors.As(err, &why) {
		why.Hints = nil
		message += ": " + why.Error()
	}
	return 0, &model.Fault{Message: message}, to == most
}

// solve solves all sizes of a request.
func solve(ctx context.Context, s *rest.Server, c *rest.Call, v rest.View, req api.SolveRequest) (api.Solved, error) {
	known := rest.Known(v, c.Who.Tenant)
	in := solver.Input{
		Provider: req.Provider, HardwareType: req.HardwareType, ImageType: req.ImageType, Wanted: req.Services,
		Comparator: req.Comparator, Exclude: req.Exclude, Budget: int(req.Budget),
	}
	var faults model.Faults
	switch {
	case req.Template == nil && req.ClusterTemplate == "":
		faults.Add("clusterTemplate", "is missing: give the name of a template, or a template as \"template\"")
	case req.Template != nil && req.ClusterTemplate != "":
		faults.Add("template", "excludes clusterTemplate: give only one of them")
	case req.Template != nil:
		in.Template = *req.Template
	default:
		d, ok := known.Definition(model.KindClusterTemplate, req.ClusterTemplate)
		if !ok {
			return api.Solved{}, noDefinition(v, c.Who.Tenant, model.KindClusterTemplate, "cluster template", req.ClusterTemplate)
		}
		if err := c.MayNamed(access.Use, access.TypeTemplate, req.ClusterTemplate); err != nil {
			return api.Solved{}, err
		}
		in.Template = *d.Value.(*model.ClusterTemplate)
	}
	if b := req.Budget; b < 0 || b > solver.DefaultBudget {
		faults.Add("budget", fmt.Sprintf("must be from 1 to %d steps, or absent", solver.DefaultBudget))
	}
	if len(faults) > 0 {
		return api.Solved{}, faults
	}
	var err error
	if in.Template, err = model.ResolveTemplate(in.Template, known); err != nil {
		return api.Solved{}, err
	}
	if req.Provider == "" {
		in.Provider = in.Template.Defaults.Provider
	}
	if _, ok := known.Definition(model.KindProvider, in.Provider); !ok && in.Provider != "" {
		hint := ""
		if near := words.Nearest(in.Provider, known.Names(model.KindProvider)); near != "" {
			hint = fmt.Sprintf(": did you mean %q?", near)
		}
		faults.Add("provider", fmt.Sprintf("there is no provider %q%s", in.Provider, hint))
		return api.Solved{}, faults
	}
	if err := in.Define(ctx, model.WithRanker(known, s.Definitions.Rank)); err != nil {
		return api.Solved{}, err
	}
	table, err := solver.Sizes(ctx, in, int(req.From), int(req.To))
	if err != nil {
		return api.Solved{}, err
	}
	return api.Solved{ClusterTemplate: in.Template.Name, Comparator: table.Comparator, Sizes: table.Sizes}, nil
}
