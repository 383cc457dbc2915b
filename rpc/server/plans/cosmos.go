package plans

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/solver"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/redact"
	"github.com/coopr/coopr/rpc/server/rest"
)

// cosmosFault is a refusal in the words of the package service of DC/OS, of which the SDK's client knows some types.
type cosmosFault struct {
	Type    string         `json:"type"`
	Message string         `json:"message"`
	Data    map[string]any `json:"data"`
}

// Error returns the message.
func (f *cosmosFault) Error() string { return f.Message }

// media returns a media type of the package service.
func media(name string) string {
	return "application/vnd.dcos." + name + "+json;charset=utf-8;version=v1"
}

// cosmos registers a route that answers like the package service of DC/OS.
func cosmos(
	s *rest.Server,
	r rest.Route,
	name string,
	body reflect.Type,
	h func(context.Context, *rest.Call, api.CosmosRequest) (any, error),
) {
	r.Method, r.Path, r.Tag = http.MethodPost, "/cosmos/service/"+name, "plans"
	r.Description = "Served for the DC/OS SDK's client. A refusal has the status 400 and a type."
	rest.Stream(s, r, "application/json", "As asked for", func(ctx context.Context, c *rest.Call, in *struct {
		Body rest.Raw[api.CosmosRequest]
	}, w http.ResponseWriter, _ *http.Request) error {
		var req api.CosmosRequest
		var out any
		dec := json.NewDecoder(bytes.NewReader(in.Body.Data))
		err := dec.Decode(&req)
		if err != nil {
			err = &cosmosFault{Type: "JsonParsingError", Message: "the body cannot be read: " + err.Error(), Data: map[string]any{}}
		} else {
			req.AppID = strings.Trim(req.AppID, "/")
			out, err = h(ctx, c, req)
		}
		status, kind := http.StatusOK, "service."+name+"-response"
		if err != nil {
			fault := faultOf(err, req)
			if fault == nil {
				return err
			}
			status, kind, out = http.StatusBadRequest, "package.error", fault
		}
		text, err := json.Marshal(out)
		if err != nil {
			return err
		}
		text = model.HideSealedRefs(text)
		w.Header().Set("Content-Type", media(kind))
		w.Header().Set("Content-Length", strconv.Itoa(len(text)))
		w.WriteHeader(status)
		_, err = w.Write(text)
		return err
	})
	op := s.OpenAPI().Paths[r.Path].Post
	op.Responses["200"].Content["application/json"].Schema = s.OpenAPI().Components.Schemas.Schema(body, true, "")
}

// faultOf returns the refusal for an error, or nil if the caller gets the problem itself: its token is not good enough, or the mesh cannot
// answer now.
func faultOf(err error, req api.CosmosRequest) *cosmosFault {
	var known *cosmosFault
	var faults model.Faults
	var fault *model.Fault
	var unsolvable *solver.Unsolvable
	p := rest.ProblemOf(err)
	switch {
	case errors.As(err, &known):
		return known
	case p.Status == http.StatusUnauthorized, p.Status == http.StatusForbidden, p.Status >= 500:
		return nil
	case errors.As(err, &faults), errors.As(err, &fault):
		if fault != nil {
			faults = model.Faults{fault}
		}
		return mismatch(faults)
	case errors.As(err, &unsolvable):
		return &cosmosFault{Type: "Unsolvable", Message: err.Error(), Data: map[string]any{}}
	}
	kind := map[problem.Code]string{
		problem.NotFound: "MarathonAppNotFound", problem.Quota: "Quota", problem.Throttled: "Throttled", problem.Invalid: "Invalid",
	}[problem.CodeOf(err)]
	if kind == "" && p.Status == http.StatusNotFound {
		kind = "MarathonAppNotFound"
	}
	if kind == "" {
		kind = "Conflict"
	}
	return &cosmosFault{Type: kind, Message: p.Detail, Data: map[string]any{"appId": "/" + req.AppID}}
}

// mismatch returns the refusal of options that have faults.
func mismatch(faults model.Faults) *cosmosFault {
	rows := []map[string]any{}
	for _, f := range faults {
		at := strings.TrimPrefix(strings.TrimPrefix(f.Path, "config"), ".")
		pointer := "/" + strings.ReplaceAll(at, ".", "/")
		rows = append(rows, map[string]any{"instance": map[string]any{"pointer": pointer},
			"message": strings.ReplaceAll(f.Message, "%", " percent")})
	}
	return &cosmosFault{Type: "JsonSchemaMismatch", Message: "the options do not fit the cluster", Data: map[string]any{"errors": rows}}
}

// resolved returns the configuration of a cluster as the options of a package. They have the name of the service, unless the template
// has an option of that name.
func resolved(cl *model.Cluster) map[string]any {
	if ownsName(cl) {
		return model.MergeConfig(map[string]any{}, cl.Config)
	}
	return model.MergeConfig(cl.Config, map[string]any{"service": map[string]any{"name": cl.Name}})
}

// ownsName reports whether the template of a cluster has an option of its own where the package service has the name of the service.
func ownsName(cl *model.Cluster) bool {
	service, _ := model.EffectiveDefaults(cl.Template.Defaults)["service"].(map[string]any)
	_, ok := service["name"]
	return ok
}

// withoutName returns options without the name of the service. They are refused if it is another name than that of the cluster.
func withoutName(cl *model.Cluster, options map[string]any) (map[string]any, error) {
	service, _ := options["service"].(map[string]any)
	name, has := service["name"]
	if !has || ownsName(cl) {
		return options, nil
	}
	if s, ok := name.(string); !ok || strings.Trim(s, "/") != cl.Name {
		return nil, &cosmosFault{Type: "AppIdChanged", Message: "a cluster keeps its name", Data: map[string]any{
			"oldAppId": "/" + cl.Name, "newAppId": "/" + strings.Trim(fmt.Sprint(name), "/"),
		}}
	}
	out := model.MergeConfig(options, map[string]any{"service": map[string]any{"name": nil}})
	if left, _ := out["service"].(map[string]any); len(left) == 0 {
		out = model.MergeConfig(out, map[string]any{"service": nil})
	}
	return out, nil
}

// named returns those values that differ from the defaults.
func named(defaults, config map[string]any) map[string]any {
	out := map[string]any{}
	for k, v := range config {
		under, ok1 := defaults[k].(map[string]any)
		over, ok2 := v.(map[string]any)
		switch {
		case ok1 && ok2:
			if inner := named(under, over); len(inner) > 0 {
				out[k] = inner
			}
		case !reflect.DeepEqual(defaults[k], v):
			out[k] = v
		}
	}
	return out
}

// schema returns a JSON schema made of the types of default values.
func schema(v any) map[string]any {
	switch v := v.(type) {
	case map[string]any:
		properties := map[string]any{}
		for k, inner := range v {
			properties[k] = schema(inner)
		}
		return map[string]any{"type": "object", "properties": properties}
	case []any:
		return map[string]any{"type": "array", "default": v}
	case bool:
		return map[string]any{"type": "boolean", "default": v}
	case string:
		return map[string]any{"type": "string", "default": v}
	case nil:
		return map[string]any{}
	}
	return map[string]any{"type": "number", "default": v}
}

// otherVersions returns the versions of a cluster's template that exist, above and below the cluster's own, the newest first.
func otherVersions(c *rest.Call, v rest.View, cl *model.Cluster) (above, below []string) {
	all := v.Versions(c.Who.Tenant, model.KindClusterTemplate, cl.Template.Name)
	slices.SortFunc(all, func(a, b model.StoredDefinition) int { return b.Version - a.Version })
	above, below = []string{}, []string{}
	for _, d := range all {
		switch number := strconv.Itoa(d.Version); {
		case d.Version > cl.Template.Version:
			above = append(above, number)
		case d.Version < cl.Template.Version:
			below = append(below, number)
		}
	}
	return above, below
}

// packageOf describes the template of a cluster as a package.
func packageOf(cl *model.Cluster) api.CosmosPackage {
	t := cl.Template
	return api.CosmosPackage{
		Name: t.Name, Version: strconv.Itoa(t.Version), Description: t.Description, Maintainer: t.Author, PackagingVersion: "4.0",
		ReleaseVersion: t.Version, Config: schema(model.EffectiveDefaults(t.Defaults)),
	}
}

func cosmosRoutes(s *rest.Server) {
	cosmos(s, rest.Route{ID: "describeService", Summary: "Describe a cluster as a package of DC/OS"}, "describe",
		reflect.TypeFor[api.CosmosDescription](),
		func(ctx context.Context, c *rest.Call, req api.CosmosRequest) (any, error) {
			v, err := s.View(ctx, c)
			if err != nil {
				return nil, err
			}
			cl, err := c.Cluster(v, req.AppID)
			if err != nil {
				return nil, err
			}
			above, below := otherVersions(c, v, cl)
			return api.CosmosDescription{
				Package: packageOf(cl), ResolvedOptions: resolved(cl), UpgradesTo: above, DowngradesTo: below,
				UserProvidedOptions: named(model.EffectiveDefaults(cl.Template.Defaults), cl.Config),
			}, nil
		})
	cosmos(s, rest.Route{ID: "updateService", Summary: "Change the version and the configuration of a cluster as those of a package of DC/OS",
		Rule: rest.Rule{Once: true, Planned: true}}, "update",
		reflect.TypeFor[api.CosmosUpdate](),
		func(ctx context.Context, c *rest.Call, req api.CosmosRequest) (any, error) {
			return update(ctx, s, c, req)
		})
}

// update starts the operation that a request to change a service stands for, unless it would change nothing.
func update(ctx context.Context, s *rest.Server, c *rest.Call, req api.CosmosRequest) (any, error) {
	v, done, err := s.Before(ctx, c)
	if err != nil {
		return nil, err
	}
	cl, err := c.Cluster(v, req.AppID)
	if err != nil {
		return nil, err
	}
	options, err := withoutName(cl, req.Options)
	if err != nil {
		return nil, err
	}
	if done == nil {
		if faults := model.CheckSealedRefs("config", options); len(faults) > 0 {
			return nil, faults
		}
		if options, err = redact.RestoreConfig(options, cl.Config); err != nil {
			return nil, err
		}
	}
	template, version := cl.Template, 0
	if req.PackageVersion != "" {
		above, below := otherVersions(c, v, cl)
		valid := append(above, below...)
		if !slices.Contains(append(valid, strconv.Itoa(cl.Template.Version)), req.PackageVersion) {
			return nil, &cosmosFault{Type: "BadVersionUpdate", Message: "there is no version " + req.PackageVersion, Data: map[string]any{
				"updateVersion": req.PackageVersion, "validVersions": valid,
			}}
		}
		version, _ = strconv.Atoi(req.PackageVersion) // it is one of the versions
		if template, err = templateAt(c, v, cl, version); err != nil {
			return nil, err
		}
	}
	config := options
	if req.Replace {
		config = model.MergeConfig(model.EffectiveDefaults(template.Defaults), options)
		if config == nil {
			config = map[string]any{}
		}
	}
	out := api.CosmosUpdate{Package: packageOf(cl), ResolvedOptions: resolved(cl)}
	op := api.Operate{Type: model.OpConfigure, Config: config, ConfigMode: model.ConfigMerge, Rollout: model.Rollout{Supersede: true}}
	if req.Replace {
		op.ConfigMode = model.ConfigReplace
	}
	same := config == nil || equalJSON(model.CombineConfig(cl.Config, config, op.ConfigMode), cl.Config)
	switch {
	case done != nil: // Operate answers a request that was carried out before
	case version == 0 && same, version == cl.Template.Version && same && !newer(c, v, cl):
		return out, nil
	}
	if version > 0 {
		op.Type, op.Change.To = model.OpSyncTemplate, model.Int(version)
	}
	started, err := s.Clusters.Operate(ctx, c.Who, cl.ID, op)
	if errors.Is(err, problem.Conflict) || errors.Is(err, problem.Refused) {
		if last, ok := v.Operation(c.Who.Tenant, cl.Operation); ok && !last.Status.Ended() {
			return nil, &cosmosFault{Type: "OperationInProgress", Message: err.Error(), Data: map[string]any{"operation": last.ID}}
		}
	}
	if err != nil {
		return nil, err
	}
	out.Package, out.ResolvedOptions, out.DeploymentID = packageOf(&started.Cluster), resolved(&started.Cluster), &started.Operation.ID
	return out, nil
}

// templateAt returns a version of a cluster's template with everything that it includes.
func templateAt(c *rest.Call, v rest.View, cl *model.Cluster, version int) (model.ClusterTemplate, error) {
	row, _ := v.Definition(c.Who.Tenant, model.KindClusterTemplate, cl.Template.Name, version)
	d, err := model.Restore(model.KindClusterTemplate, row.Body)
	if err != nil {
		return model.ClusterTemplate{}, err
	}
	return model.ResolveTemplate(*d.Value.(*model.ClusterTemplate), rest.Known(v, c.Who.Tenant))
}

// newer reports whether a service of a cluster has a newer definition than the cluster.
func newer(c *rest.Call, v rest.View, cl *model.Cluster) bool {
	return slices.ContainsFunc(cl.Services, func(s string) bool {
		d, ok := v.Definition(c.Who.Tenant, model.KindService, s, 0)
		return ok && d.Version != cl.Definitions[s].Version
	})
}

// equalJSON reports whether two configurations are the same document.
func equalJSON(a, b map[string]any) bool {
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && bytes.Equal(x, y)
}
