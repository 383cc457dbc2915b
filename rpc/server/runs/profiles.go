package runs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/access"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/rest"
)

// ByProfile names a profile in the path.
type ByProfile struct {
	Name string `path:"profile" doc:"The profile's name; SYSTEM:name for a profile of the system"`
}

// refOf parses a profile's name.
func refOf(name string) (profile.Ref, error) {
	ref, err := profile.ParseRef(name)
	if err != nil {
		return ref, bad(model.Faults{{Path: "profile", Message: err.Error()}})
	}
	return ref, nil
}

// findProfile returns a profile by its name in a path.
func findProfile(c *rest.Call, v rest.View, name string) (profile.Profile, profile.Ref, error) {
	ref, err := refOf(name)
	if err != nil {
		return profile.Profile{}, ref, err
	}
	p, ok := v.Profile(c.Who.Tenant, ref)
	if !ok {
		return p, ref, rest.NotFound("there is no profile %s", ref)
	}
	return p, ref, nil
}

// ownProfile parses the name of a profile that the caller is going to change. The native
// profile cannot be changed, and only superadmins may change the profiles of the system.
func ownProfile(c *rest.Call, name string) (profile.Ref, error) {
	ref, err := refOf(name)
	switch {
	case err != nil:
		return ref, err
	case ref == profile.NativeRef:
		return ref, rest.NewProblem(problem.Method, fmt.Sprintf("profile %s is always there and cannot be changed", ref))
	}
	return ref, nil
}

// bad sets the status of faults of a profile to 400, as in the original.
func bad(err error) error {
	var faults model.Faults
	if errors.As(err, &faults) {
		p := rest.Invalid(faults)
		p.Status = http.StatusBadRequest
		return p
	}
	var p *api.Problem
	if errors.As(err, &p) && p.Type == api.ProblemInvalid {
		p.Status = http.StatusBadRequest
	}
	return err
}

func profileRoutes(s *rest.Server) {
	const tag, path, one = "profiles", "/v1/profiles", "/v1/profiles/{profile}"

	rest.List(
		s,
		rest.Route{ID: "listProfiles", Order: "scope,name", Path: path, Tag: tag,
			Summary: "List the profiles of the tenant and those of the system"},
		func(_ context.Context, c *rest.Call, v rest.View, in *struct {
			System bool `query:"includeSystem" default:"true" doc:"Include the profiles of the system"`
		}) ([]profile.Profile, error) {
			all := v.Profiles(c.Who.Tenant, in.System)
			return rest.Listed(c, access.TypeProfile, all, func(p profile.Profile) string { return p.Ref().String() })
		},
	)
	rest.Read(
		s,
		rest.Route{ID: "getProfile", Path: one, Tag: tag, Summary: "Get a profile, with what uses it and what its runs have used"},
		func(_ context.Context, c *rest.Call, v rest.View, in *ByProfile) (api.ProfileDetails, error) {
			p, ref, err := findProfile(c, v, in.Name)
			if err != nil {
				return api.ProfileDetails{}, err
			}
			assigned := append([]string{}, v.Assignments(c.Who.Tenant, ref)...)
			return api.ProfileDetails{Profile: p, Assigned: assigned, Usage: v.ProfileUsage(c.Who.Tenant, ref, s.Millis())}, nil
		},
	)
	rest.Read(
		s,
		rest.Route{
			ID:      "getProfileStatus",
			Path:    one + "/status",
			Tag:     tag,
			Summary: "Get the status of a profile: enabled or disabled",
		},
		func(_ context.Context, c *rest.Call, v rest.View, in *ByProfile) (api.StatusBody, error) {
			p, _, err := findProfile(c, v, in.Name)
			return api.StatusBody{Status: p.Status}, err
		},
	)
	rest.Write(
		s,
		rest.Route{
			ID:      "putProfile",
			Method:  http.MethodPut,
			Path:    one,
			Tag:     tag,
			Summary: "Create or change a profile; present runs keep their settings",
		},
		func(ctx context.Context, c *rest.Call, in *struct {
			ByProfile
			Body rest.Raw[profile.Profile]
		}) (profile.Profile, api.Written, error) {
			p, w, err := putProfile(ctx, s, c, in.Name, in.Body)
			return p, w, bad(err)
		},
	)
	rest.Write(
		s,
		rest.Route{
			ID:      "deleteProfile",
			Method:  http.MethodDelete,
			Path:    one,
			Tag:     tag,
			Summary: "Delete a disabled profile that nothing uses",
		},
		func(ctx context.Context, c *rest.Call, in *ByProfile) (api.Deleted, api.Written, error) {
			ref, err := ownProfile(c, in.Name)
			if err != nil {
				return api.Deleted{}, api.Written{}, err
			}
			w, err := s.Runs.ChangeSetting(
				ctx,
				c.Who,
				api.Setting{Kind: "profile", Name: ref.Name, System: ref.Scope == profile.System, Order: "delete"},
			)
			return api.Deleted{Name: ref.String()}, w, err
		},
	)
	for order, words := range map[string]string{
		"enable":  "Enable a profile",
		"disable": "Disable a profile: no further runs start with it; present runs continue",
	} {
		rest.Write(s, rest.Route{ID: order + "Profile", Method: http.MethodPost, Path: one + "/" + order, Tag: tag, Summary: words},
			func(ctx context.Context, c *rest.Call, in *ByProfile) (api.StatusBody, api.Written, error) {
				ref, err := ownProfile(c, in.Name)
				if err != nil {
					return api.StatusBody{}, api.Written{}, err
				}
				w, err := s.Runs.ChangeSetting(
					ctx,
					c.Who,
					api.Setting{Kind: "profile", Name: ref.Name, System: ref.Scope == profile.System, Order: order},
				)
				return api.StatusBody{Status: strings.ToUpper(order) + "D"}, w, err
			})
	}
	provisionerRoutes(s)
	preferenceRoutes(s)
	secretRoutes(s)
}

func putProfile(
	ctx context.Context,
	s *rest.Server,
	c *rest.Call,
	name string,
	body rest.Raw[profile.Profile],
) (profile.Profile, api.Written, error) {
	ref, err := ownProfile(c, name)
	if err != nil {
		return profile.Profile{}, api.Written{}, err
	}
	p, err := rest.Raw[profile.Profile]{Data: withoutNulls(body.Data)}.Value()
	if err != nil {
		return p, api.Written{}, err
	}
	v, done, err := s.Before(ctx, c)
	if err != nil {
		return p, api.Written{}, err
	}
	if done != nil {
		p, err = rest.Wrote(*done, done.Effect.Profile)
		return p, *done, err
	}
	_, there := v.Profile(c.Who.Tenant, ref)
	if err := c.MayWrite(access.TypeProfile, ref.String(), there); err != nil {
		return p, api.Written{}, err
	}
	p.Clean()
	p.Name, p.Scope, p.Status, p.Created, p.Version = ref.Name, "", "", 0, 0
	var spec *profile.Spec
	var known []string
	for _, x := range v.Provisioners(c.Who.Tenant) {
		known = append(known, x.Name)
		if x.Name == p.Provisioner.Name {
			spec = &x
		}
	}
	if fs := p.Check(spec, known); len(fs) > 0 {
		return p, api.Written{}, fs
	}
	w, err := s.Runs.ChangeSetting(
		ctx,
		c.Who,
		api.Setting{Kind: "profile", Name: ref.Name, System: ref.Scope == profile.System, Order: "put", Value: p},
	)
	if err != nil {
		return p, w, err
	}
	p, err = rest.Wrote(w, w.Effect.Profile)
	return p, w, err
}

// withoutNulls removes null entries from a profile's properties (docs/spec/profiles.md §5).
func withoutNulls(data []byte) []byte {
	var body map[string]any
	if json.Unmarshal(data, &body) != nil {
		return data
	}
	p, _ := body["provisioner"].(map[string]any)
	list, _ := p["properties"].([]any)
	if !slices.ContainsFunc(list, func(x any) bool { return x == nil }) {
		return data // the faults refer to lines of the original text
	}
	p["properties"] = slices.DeleteFunc(list, func(x any) bool { return x == nil })
	if b, err := json.Marshal(body); err == nil {
		return b
	}
	return data
}

func provisionerRoutes(s *rest.Server) {
	const tag, path = "profiles", "/v1/provisioners"
	rest.List(
		s,
		rest.Route{
			ID: "listProvisioners", Order: "name",
			Path:    path,
			Tag:     tag,
			Summary: "List the provisioners, which create the clusters of runs, with their properties",
		},
		func(_ context.Context, c *rest.Call, v rest.View, _ *rest.None) ([]profile.Spec, error) {
			return v.Provisioners(c.Who.Tenant), c.MayList()
		},
	)
	rest.Read(s, rest.Route{ID: "getProvisioner", Path: path + "/{name}", Tag: tag, Summary: "Get a provisioner"},
		func(_ context.Context, c *rest.Call, v rest.View, in *rest.ByName) (profile.Spec, error) {
			for _, x := range v.Provisioners(c.Who.Tenant) {
				if x.Name == in.Name {
					return x, nil
				}
			}
			return profile.Spec{}, rest.NotFound("there is no provisioner %q", in.Name)
		})
}

// Using returns the programs and schedules that the caller may list and whose runs would use a profile. The query is profile:NAME.
func Using(c *rest.Call, v rest.View, query string) ([]api.Found, error) {
	name, ok := strings.CutPrefix(query, "profile:")
	if !ok {
		return nil, bad(model.Faults{{Path: "query.query", Message: "must be profile:NAME, such as profile:SYSTEM:small"}})
	}
	ref, err := refOf(name)
	if err != nil {
		return nil, err
	}
	if err := c.MayNamed(access.List, access.TypeProfile, ""); err != nil {
		return nil, err
	}
	return usersOf(c, v, ref), nil
}

// usersOf returns the programs and schedules whose runs would use a profile.
func usersOf(c *rest.Call, v rest.View, ref profile.Ref) []api.Found {
	out := []api.Found{}
	add := func(kind, name string, l profile.Levels) {
		on := access.TypeProgram
		if kind == "schedule" {
			on = access.TypeSchedule
		}
		if got, err := l.Choose(); err == nil && got == ref && c.MayNamed(access.List, on, name) == nil {
			out = append(out, api.Found{Type: kind, Name: name, Profile: got.String()})
		}
	}
	for _, p := range v.Programs(c.Who.Tenant) {
		add("program", p.Name, v.Levels(c.Who.Tenant, p.Name))
	}
	for _, x := range v.Schedules(c.Who.Tenant) {
		l := v.Levels(c.Who.Tenant, x.Program)
		l[3] = x.Properties
		add("schedule", x.Name, l)
	}
	return out
}

// preferencesAt describes one of the three levels of preferences.
type preferencesAt struct {
	ID, path string
	of       profile.Level
}

func preferenceRoutes(s *rest.Server) {
	const tag = "profiles"
	for _, at := range []preferencesAt{
		{"Preferences", "/v1/preferences", profile.OfTenant}, {"SystemPreferences", "/v1/system/preferences", profile.OfSystem},
	} {
		preferences(s, tag, at, func(*rest.None) string { return "" })
	}
	preferences(
		s,
		tag,
		preferencesAt{"ProgramPreferences", "/v1/programs/{program}/preferences", profile.OfProgram},
		func(in *ByProgram) string { return in.Name },
	)
}

func preferences[I any](s *rest.Server, tag string, at preferencesAt, program func(*I) string) {
	tenant := func(c *rest.Call) string {
		if at.of == profile.OfSystem {
			return ""
		}
		return c.Who.Tenant
	}
	rest.Read(
		s,
		rest.Route{
			ID:      "get" + at.ID,
			Path:    at.path,
			Tag:     tag,
			Summary: "Get the settings that runs start with",
		},
		func(_ context.Context, c *rest.Call, v rest.View, in *I) (profile.Settings, error) {
			p, _ := v.Preferences(tenant(c), program(in))
			if p.Properties == nil {
				p.Properties = map[string]string{}
			}
			return p, nil
		},
	)
	put := func(ctx context.Context, c *rest.Call, name string, b rest.Raw[api.SettingsBody]) (api.SettingsBody, api.Written, error) {
		set, err := b.Value()
		if err != nil {
			return set, api.Written{}, err
		}
		v, err := s.Latest(ctx)
		if err != nil {
			return set, api.Written{}, err
		}
		fs := append(profile.CheckSettings(set.Properties, at.of), profile.UnreadKeys(set.Properties, at.of, v.Provisioners(c.Who.Tenant))...)
		if len(fs) > 0 {
			return set, api.Written{}, bad(fs)
		}
		w, err := s.Runs.ChangeSetting(
			ctx,
			c.Who,
			api.Setting{Kind: "preferences", Name: name, System: at.of == profile.OfSystem, Order: "put", Value: set.Properties},
		)
		return set, w, err
	}
	r := rest.Route{
		ID:      "put" + at.ID,
		Method:  http.MethodPut,
		Path:    at.path,
		Tag:     tag,
		Summary: "Set the settings that runs start with, such as system.profile.name",
	}
	if strings.Contains(at.path, "{program}") {
		rest.Write(s, r, func(ctx context.Context, c *rest.Call, in *struct {
			ByProgram
			Body rest.Raw[api.SettingsBody]
		}) (api.SettingsBody, api.Written, error) {
			return put(ctx, c, in.Name, in.Body)
		})
	} else {
		rest.Write(s, r, func(ctx context.Context, c *rest.Call, in *struct {
			Body rest.Raw[api.SettingsBody]
		}) (api.SettingsBody, api.Written, error) {
			return put(ctx, c, "", in.Body)
		})
	}
	rest.Write(
		s,
		rest.Route{
			ID:      "delete" + at.ID,
			Method:  http.MethodDelete,
			Path:    at.path,
			Tag:     tag,
			Summary: "Delete the settings, so that those of the next higher level apply",
		},
		func(ctx context.Context, c *rest.Call, in *I) (api.Deleted, api.Written, error) {
			w, err := s.Runs.ChangeSetting(ctx, c.Who,
				api.Setting{Kind: "preferences", Name: program(in), System: at.of == profile.OfSystem, Order: "delete"})
			return api.Deleted{Name: program(in)}, w, err
		},
	)
}

func secretRoutes(s *rest.Server) {
	const tag, path, one = "profiles", "/v1/secrets", "/v1/secrets/{name}"
	rest.List(
		s,
		rest.Route{
			ID: "listSecrets", Order: "name",
			Path:    path,
			Tag:     tag,
			Summary: "List the names of the secrets that properties may refer to, as ${secure(NAME)}",
		},
		func(_ context.Context, c *rest.Call, v rest.View, _ *rest.None) ([]string, error) {
			return rest.Listed(c, access.TypeSecret, v.SecretNames(c.Who.Tenant), func(name string) string { return name })
		},
	)
	rest.Read(s, rest.Route{ID: "getSecret", Path: one, Tag: tag,
		Summary: "Show who may refer to a secret; the value is never shown"},
		func(_ context.Context, c *rest.Call, v rest.View, in *rest.ByName) (api.Secret, error) {
			users, ok := v.SecretUsers(c.Who.Tenant, in.Name)
			if !ok {
				return api.Secret{}, rest.NotFound("there is no secret %q", in.Name)
			}
			return api.Secret{Name: in.Name, UsableBy: append([]string{}, users...)}, nil
		})
	rest.Write(s, rest.Route{ID: "putSecret", Method: http.MethodPut, Path: one, Tag: tag, Summary: "Store a secret"},
		func(ctx context.Context, c *rest.Call, in *struct {
			rest.ByName
			Body rest.Raw[api.SecretBody]
		}) (api.Done, api.Written, error) {
			b, err := in.Body.Value()
			if err != nil {
				return api.Done{}, api.Written{}, err
			}
			faults := profile.CheckUsableBy(b.UsableBy)
			if why := model.CheckName(in.Name); why != "" {
				faults.Add("name", why)
			}
			if len(faults) > 0 {
				return api.Done{}, api.Written{}, bad(faults)
			}
			v, err := s.Latest(ctx)
			if err == nil {
				_, there := v.SecretUsers(c.Who.Tenant, in.Name)
				err = c.MayWrite(access.TypeSecret, in.Name, there)
			}
			if err != nil {
				return api.Done{}, api.Written{}, err
			}
			w, err := s.Runs.ChangeSetting(ctx, c.Who, api.Setting{Kind: "secret", Name: in.Name, Order: "put",
				Value: profile.Secret{Value: model.NewSecret(b.Value), UsableBy: b.UsableBy}})
			return api.Done{Done: true}, w, err
		})
	rest.Write(s, rest.Route{ID: "deleteSecret", Method: http.MethodDelete, Path: one, Tag: tag, Summary: "Delete a secret"},
		func(ctx context.Context, c *rest.Call, in *rest.ByName) (api.Deleted, api.Written, error) {
			w, err := s.Runs.ChangeSetting(ctx, c.Who, api.Setting{Kind: "secret", Name: in.Name, Order: "delete"})
			return api.Deleted{Name: in.Name}, w, err
		})
}
