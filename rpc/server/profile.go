package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/rpc/api"
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

// profile returns a profile by its name in a path.
func (c *call) profile(v View, name string) (profile.Profile, profile.Ref, error) {
	ref, err := refOf(name)
	if err != nil {
		return profile.Profile{}, ref, err
	}
	p, ok := v.Profile(c.who.Tenant, ref)
	if !ok {
		return p, ref, notFound("there is no profile %s", ref)
	}
	return p, ref, nil
}

// ownProfile parses the name of a profile that the caller is going to change. The native
// profile cannot be changed, and only superadmins may change the profiles of the system.
func (c *call) ownProfile(name string) (profile.Ref, error) {
	ref, err := refOf(name)
	switch {
	case err != nil:
		return ref, err
	case ref == profile.NativeRef:
		return ref, newProblem(problem.Method, fmt.Sprintf("profile %s is always there and cannot be changed", ref))
	case ref.Scope == profile.System && c.who.Role != model.RoleSuperadmin:
		return ref, forbidden("profiles of the system are a superadmin's to change")
	}
	return ref, nil
}

// bad sets the status of faults of a profile to 400, as in the original.
func bad(err error) error {
	var faults model.Faults
	if errors.As(err, &faults) {
		p := invalid(faults)
		p.Status = http.StatusBadRequest
		return p
	}
	var p *api.Problem
	if errors.As(err, &p) && p.Type == api.ProblemInvalid {
		p.Status = http.StatusBadRequest
	}
	return err
}

func (s *server) profileRoutes() {
	const tag, path, one = "profiles", "/v1/profiles", "/v1/profiles/{profile}"
	reads, writes := rule{need: model.RoleRead}, rule{need: model.RoleAdmin}

	read(s, route{id: "listProfiles", path: path, tag: tag, rule: reads, summary: "List the profiles of the tenant and those of the system"},
		func(_ context.Context, c *call, v View, in *struct {
			System bool `query:"includeSystem" default:"true" doc:"Include the profiles of the system"`
		}) ([]profile.Profile, error) {
			return append([]profile.Profile{}, v.Profiles(c.who.Tenant, in.System)...), nil
		})
	read(s, route{id: "getProfile", path: one, tag: tag, rule: reads, summary: "Get a profile, with what uses it and what its runs have used"},
		func(_ context.Context, c *call, v View, in *ByProfile) (api.ProfileDetails, error) {
			p, ref, err := c.profile(v, in.Name)
			if err != nil {
				return api.ProfileDetails{}, err
			}
			assigned := append([]string{}, v.Assignments(c.who.Tenant, ref)...)
			return api.ProfileDetails{Profile: p, Assigned: assigned, Usage: v.ProfileUsage(c.who.Tenant, ref, s.clock().UnixMilli())}, nil
		})
	read(s, route{id: "getProfileStatus", path: one + "/status", tag: tag, rule: reads, summary: "Get the status of a profile: enabled or disabled"},
		func(_ context.Context, c *call, v View, in *ByProfile) (api.StatusBody, error) {
			p, _, err := c.profile(v, in.Name)
			return api.StatusBody{Status: p.Status}, err
		})
	write(s, route{id: "putProfile", method: http.MethodPut, path: one, tag: tag, rule: writes, summary: "Create or change a profile; present runs keep their settings"},
		func(ctx context.Context, c *call, in *struct {
			ByProfile
			Body raw[profile.Profile]
		}) (profile.Profile, api.Written, error) {
			p, w, err := s.putProfile(ctx, c, in.Name, in.Body)
			return p, w, bad(err)
		})
	write(s, route{id: "deleteProfile", method: http.MethodDelete, path: one, tag: tag, rule: writes, summary: "Delete a disabled profile that nothing uses"},
		func(ctx context.Context, c *call, in *ByProfile) (api.Deleted, api.Written, error) {
			ref, err := c.ownProfile(in.Name)
			if err != nil {
				return api.Deleted{}, api.Written{}, err
			}
			w, err := s.Runs.ChangeSetting(ctx, c.who, api.Setting{Kind: "profile", Name: ref.Name, System: ref.Scope == profile.System, Order: "delete"})
			return api.Deleted{Name: ref.String()}, w, err
		})
	for order, words := range map[string]string{"enable": "Enable a profile", "disable": "Disable a profile: no further runs start with it; present runs continue"} {
		write(s, route{id: order + "Profile", method: http.MethodPost, path: one + "/" + order, tag: tag, rule: writes, summary: words},
			func(ctx context.Context, c *call, in *ByProfile) (api.StatusBody, api.Written, error) {
				ref, err := c.ownProfile(in.Name)
				if err != nil {
					return api.StatusBody{}, api.Written{}, err
				}
				w, err := s.Runs.ChangeSetting(ctx, c.who, api.Setting{Kind: "profile", Name: ref.Name, System: ref.Scope == profile.System, Order: order})
				return api.StatusBody{Status: strings.ToUpper(order) + "D"}, w, err
			})
	}
	s.provisionerRoutes()
	s.preferenceRoutes()
	s.secretRoutes()
}

func (s *server) putProfile(ctx context.Context, c *call, name string, body raw[profile.Profile]) (profile.Profile, api.Written, error) {
	ref, err := c.ownProfile(name)
	if err != nil {
		return profile.Profile{}, api.Written{}, err
	}
	p, err := raw[profile.Profile]{withoutNulls(body.data)}.value()
	if err != nil {
		return p, api.Written{}, err
	}
	v, err := s.now(ctx)
	if err != nil {
		return p, api.Written{}, err
	}
	p.Clean()
	p.Name, p.Scope, p.Status, p.Created, p.Version = ref.Name, "", "", 0, 0
	var spec *profile.Spec
	var known []string
	for _, x := range v.Provisioners(c.who.Tenant) {
		known = append(known, x.Name)
		if x.Name == p.Provisioner.Name {
			spec = &x
		}
	}
	if fs := p.Check(spec, known); len(fs) > 0 {
		return p, api.Written{}, fs
	}
	w, err := s.Runs.ChangeSetting(ctx, c.who, api.Setting{Kind: "profile", Name: ref.Name, System: ref.Scope == profile.System, Order: "put", Value: p})
	if err != nil {
		return p, w, err
	}
	if v, err := s.now(ctx); err == nil {
		p, _ = v.Profile(c.who.Tenant, ref)
	}
	return p, w, nil
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

func (s *server) provisionerRoutes() {
	const tag, path = "profiles", "/v1/provisioners"
	reads := rule{need: model.RoleRead}
	read(s, route{id: "listProvisioners", path: path, tag: tag, rule: reads, summary: "List the provisioners, which create the clusters of runs, with their properties"},
		func(_ context.Context, c *call, v View, _ *none) ([]profile.Spec, error) {
			return v.Provisioners(c.who.Tenant), nil
		})
	read(s, route{id: "getProvisioner", path: path + "/{name}", tag: tag, rule: reads, summary: "Get a provisioner"},
		func(_ context.Context, c *call, v View, in *ByName) (profile.Spec, error) {
			for _, x := range v.Provisioners(c.who.Tenant) {
				if x.Name == in.Name {
					return x, nil
				}
			}
			return profile.Spec{}, notFound("there is no provisioner %q", in.Name)
		})
	read(s, route{id: "search", path: "/v1/search", tag: tag, rule: reads, summary: "Find programs and schedules whose runs would use a profile: query=profile:SYSTEM:small"},
		func(_ context.Context, c *call, v View, in *struct {
			Query string `query:"query" required:"true" doc:"profile:NAME, with its scope"`
		}) ([]api.Found, error) {
			name, ok := strings.CutPrefix(in.Query, "profile:")
			if !ok {
				return nil, bad(model.Faults{{Path: "query.query", Message: "must be profile:NAME, such as profile:SYSTEM:small"}})
			}
			ref, err := refOf(name)
			if err != nil {
				return nil, err
			}
			return c.usersOf(v, ref), nil
		})
}

// usersOf returns the programs and schedules whose runs would use a profile.
func (c *call) usersOf(v View, ref profile.Ref) []api.Found {
	out := []api.Found{}
	add := func(kind, name string, l profile.Levels) {
		if got, err := l.Choose(); err == nil && got == ref {
			out = append(out, api.Found{Type: kind, Name: name, Profile: got.String()})
		}
	}
	for _, p := range v.Programs(c.who.Tenant) {
		add("program", p.Name, v.Levels(c.who.Tenant, p.Name))
	}
	for _, x := range v.Schedules(c.who.Tenant) {
		l := v.Levels(c.who.Tenant, x.Program)
		l[3] = x.Properties
		add("schedule", x.Name, l)
	}
	return out
}

// preferencesAt describes one of the three levels of preferences.
type preferencesAt struct {
	id, path string
	system   bool
}

func (s *server) preferenceRoutes() {
	const tag = "profiles"
	for _, at := range []preferencesAt{{"Preferences", "/v1/preferences", false}, {"SystemPreferences", "/v1/system/preferences", true}} {
		preferences(s, tag, at, func(*none) string { return "" })
	}
	preferences(s, tag, preferencesAt{"ProgramPreferences", "/v1/programs/{program}/preferences", false}, func(in *ByProgram) string { return in.Name })
}

func preferences[I any](s *server, tag string, at preferencesAt, program func(*I) string) {
	writes := rule{need: model.RoleAdmin}
	if at.system {
		writes.need = model.RoleSuperadmin
	}
	tenant := func(c *call) string {
		if at.system {
			return ""
		}
		return c.who.Tenant
	}
	read(s, route{id: "get" + at.id, path: at.path, tag: tag, rule: rule{need: model.RoleRead}, summary: "Get the settings that runs start with"},
		func(_ context.Context, c *call, v View, in *I) (profile.Settings, error) {
			p, _ := v.Preferences(tenant(c), program(in))
			if p.Properties == nil {
				p.Properties = map[string]string{}
			}
			return p, nil
		})
	put := func(ctx context.Context, c *call, name string, b raw[api.SettingsBody]) (api.SettingsBody, api.Written, error) {
		set, err := b.value()
		if err != nil {
			return set, api.Written{}, err
		}
		if fs := profile.CheckSettings(set.Properties, at.system); len(fs) > 0 {
			return set, api.Written{}, bad(fs)
		}
		w, err := s.Runs.ChangeSetting(ctx, c.who, api.Setting{Kind: "preferences", Name: name, System: at.system, Order: "put", Value: set.Properties})
		return set, w, err
	}
	r := route{id: "put" + at.id, method: http.MethodPut, path: at.path, tag: tag, rule: writes, summary: "Set the settings that runs start with, such as system.profile.name"}
	if strings.Contains(at.path, "{program}") {
		write(s, r, func(ctx context.Context, c *call, in *struct {
			ByProgram
			Body raw[api.SettingsBody]
		}) (api.SettingsBody, api.Written, error) {
			return put(ctx, c, in.Name, in.Body)
		})
	} else {
		write(s, r, func(ctx context.Context, c *call, in *struct {
			Body raw[api.SettingsBody]
		}) (api.SettingsBody, api.Written, error) {
			return put(ctx, c, "", in.Body)
		})
	}
	write(s, route{id: "delete" + at.id, method: http.MethodDelete, path: at.path, tag: tag, rule: writes, summary: "Delete the settings, so that those of the next higher level apply"},
		func(ctx context.Context, c *call, in *I) (api.Deleted, api.Written, error) {
			w, err := s.Runs.ChangeSetting(ctx, c.who, api.Setting{Kind: "preferences", Name: program(in), System: at.system, Order: "delete"})
			return api.Deleted{Name: program(in)}, w, err
		})
}

func (s *server) secretRoutes() {
	const tag, path, one = "profiles", "/v1/secrets", "/v1/secrets/{name}"
	writes := rule{need: model.RoleAdmin}
	read(s, route{id: "listSecrets", path: path, tag: tag, rule: rule{need: model.RoleRead}, summary: "List the names of the secrets that properties may refer to, as ${secure(NAME)}"},
		func(_ context.Context, c *call, v View, _ *none) ([]string, error) {
			return slices.Concat([]string{}, v.SecretNames(c.who.Tenant)), nil
		})
	write(s, route{id: "putSecret", method: http.MethodPut, path: one, tag: tag, rule: writes, summary: "Store a secret"},
		func(ctx context.Context, c *call, in *struct {
			ByName
			Body raw[api.SecretBody]
		}) (api.Done, api.Written, error) {
			b, err := in.Body.value()
			if err != nil {
				return api.Done{}, api.Written{}, err
			}
			if why := model.CheckName(in.Name); why != "" {
				return api.Done{}, api.Written{}, bad(model.Faults{{Path: "name", Message: why}})
			}
			w, err := s.Runs.ChangeSetting(ctx, c.who, api.Setting{Kind: "secret", Name: in.Name, Order: "put", Value: model.NewSecret(b.Value)})
			return api.Done{Done: true}, w, err
		})
	write(s, route{id: "deleteSecret", method: http.MethodDelete, path: one, tag: tag, rule: writes, summary: "Delete a secret"},
		func(ctx context.Context, c *call, in *ByName) (api.Deleted, api.Written, error) {
			w, err := s.Runs.ChangeSetting(ctx, c.who, api.Setting{Kind: "secret", Name: in.Name, Order: "delete"})
			return api.Deleted{Name: in.Name}, w, err
		})
}
