package view

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/go-memdb"

	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/internal/words"
)

// RunView reads profiles, programs, schedules, preferences, secrets and runs.
type RunView struct{ txn *memdb.Txn }

func profileOf(txn *memdb.Txn, ref profile.Ref, tenant string) *profile.Profile {
	if ref == profile.NativeRef {
		p := profile.NativeProfile()
		return &p
	}
	row := table.Get[table.ProfileRow](txn, table.Profiles, "id", ref.Tenant(tenant), ref.Name)
	if row == nil {
		return nil
	}
	p := row.Profile
	p.Scope = ref.Scope
	return &p
}

// SecretNames returns the names of a tenant's secrets.
func (v RunView) SecretNames(tenant string) []string {
	var out []string
	table.Each(v.txn, table.Secrets, "id_prefix", func(r *table.SecretRow) bool { out = append(out, r.Name); return true }, tenant)
	return slices.Sorted(maps.Keys(setOf(out)))
}

func setOf(in []string) map[string]bool {
	out := map[string]bool{}
	for _, s := range in {
		out[s] = true
	}
	return out
}

// Profiles returns a tenant's profiles by name, and with system also those of the system after
// them. Tenant "" means only those of the system.
func (v RunView) Profiles(tenant string, system bool) []profile.Profile {
	var out []profile.Profile
	add := func(owner string) {
		if owner == "" {
			out = append(out, profile.NativeProfile())
		}
		table.Each(v.txn, table.Profiles, "id_prefix", func(r *table.ProfileRow) bool {
			p := r.Profile
			p.Scope = profile.RefOf(owner, p.Name).Scope
			out = append(out, p)
			return true
		}, owner)
	}
	if tenant != "" {
		add(tenant)
	}
	if system || tenant == "" {
		add("")
	}
	return out
}

// Profile finds a profile that a tenant can refer to.
func (v RunView) Profile(tenant string, ref profile.Ref) (profile.Profile, bool) {
	if p := profileOf(v.txn, ref, tenant); p != nil {
		return *p, true
	}
	return profile.Profile{}, false
}

// Assignments returns descriptions of the preferences and schedules that name a profile.
func (v RunView) Assignments(tenant string, ref profile.Ref) []string {
	owner, name := ref.Tenant(tenant), ref.Name
	var out []string
	of := func(tenant, text string) string {
		if owner == "" && tenant != "" {
			return text + " of tenant " + tenant
		}
		return text
	}
	table.Each(v.txn, table.Preferences, "profile", func(p *profile.Settings) bool {
		switch {
		case p.Program != "":
			out = append(out, of(p.Tenant, "program "+p.Program))
		case p.Tenant != "":
			out = append(out, "tenant "+p.Tenant)
		default:
			out = append(out, "the system")
		}
		return true
	}, owner, name)
	table.Each(v.txn, table.Schedules, "profile", func(s *profile.Schedule) bool {
		out = append(out, of(s.Tenant, "schedule "+s.Name))
		return true
	}, owner, name)
	slices.Sort(out)
	return out
}

// Programs returns the latest version of each of a tenant's programs, by name.
func (v RunView) Programs(tenant string) []profile.Program {
	var out []profile.Program
	table.Each(v.txn, table.Programs, "id_prefix", func(r *table.ProgramRow) bool {
		if n := len(out); n > 0 && out[n-1].Name == r.Name {
			out[n-1] = r.Program
		} else {
			out = append(out, r.Program)
		}
		return true
	}, tenant)
	slices.SortFunc(out, func(a, b profile.Program) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Program finds a program; version 0 means the latest.
func (v RunView) Program(tenant, name string, version int) (profile.Program, bool) {
	var out profile.Program
	found := false
	table.Each(v.txn, table.Programs, "id_prefix", func(r *table.ProgramRow) bool {
		if version == 0 || r.Version == version {
			out, found = r.Program, true
		}
		return true
	}, tenant, name)
	return out, found
}

// Schedules returns a tenant's schedules by name, or those of all tenants if tenant is "".
func (v RunView) Schedules(tenant string) []profile.Schedule {
	if tenant == "" {
		return values(table.List[profile.Schedule](v.txn, table.Schedules, "id"))
	}
	return values(table.List[profile.Schedule](v.txn, table.Schedules, "id_prefix", tenant))
}

// Schedule finds a schedule.
func (v RunView) Schedule(tenant, name string) (profile.Schedule, bool) {
	return table.Found[profile.Schedule](v.txn, table.Schedules, tenant, name)
}

// Preferences finds the settings of a program. It finds those of the tenant if program is "", and
// those of the system if tenant is "" too.
func (v RunView) Preferences(tenant, program string) (profile.Settings, bool) {
	return table.Found[profile.Settings](v.txn, table.Preferences, tenant, program)
}

// Levels returns the settings of a program's runs, without those of schedules and arguments.
func (v RunView) Levels(tenant, program string) profile.Levels {
	var out profile.Levels
	for i, k := range [][2]string{{"", ""}, {tenant, ""}, {tenant, program}} {
		if p := table.Get[profile.Settings](v.txn, table.Preferences, "id", k[0], k[1]); p != nil && (i < 2 || program != "") {
			out[i] = p.Properties
		}
	}
	return out
}

// SecretUsers returns the users whose documents may refer to a secret, besides administrators.
func (v RunView) SecretUsers(tenant, name string) (users []string, ok bool) {
	if r := table.Get[table.SecretRow](v.txn, table.Secrets, "id", tenant, name); r != nil {
		return r.UsableBy, true
	}
	return nil, false
}

// secret returns a secret of a tenant for a document of an author, who needs to be allowed to use it now. It
// fails with problem.NotFound or problem.Forbidden.
func (v RunView) secret(o Opener, author model.Caller, name string) (string, error) {
	r := table.Get[table.SecretRow](v.txn, table.Secrets, "id", author.Tenant, name)
	if r == nil {
		return "", problem.New(problem.NotFound, "there is no secret %q in tenant %s", name, author.Tenant)
	}
	if err := profile.MayUse(author, name, r.UsableBy); err != nil {
		return "", err
	}
	return SealedView(v).reveal(o, r)
}

// vouched is the author of settings that only administrators write.
func vouched(tenant string) model.Caller {
	return model.Caller{Tenant: tenant, Actor: model.Self, Role: model.RoleAdmin}
}

// StepEnv returns the variables of a step of a run's program, and the secrets in them. Both the program's
// author, who says what is done with the secrets, and the run's user, who says where, need to be allowed to
// use these.
func (v RunView) StepEnv(o Opener, r *profile.Run, s *profile.Step) (env map[string]string, secrets []string, err error) {
	author, user := TenantView(v).Acting(r.Tenant, r.Program.Author), TenantView(v).Acting(r.Tenant, r.Actor)
	env, err = profile.Reveal(s.Env, func(_, name string) (string, error) {
		if _, err := v.secret(o, user, name); err != nil {
			return "", err
		}
		value, err := v.secret(o, author, name)
		secrets = append(secrets, value)
		return value, err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("step %s: variable %w", s.Name, err)
	}
	return env, secrets, nil
}

// Resolve returns fields of a document that a user writes with the secrets that they refer to, as model.Hidden. The user has to be allowed
// to use these; see profile.Resolve.
func (v RunView) Resolve(o Opener, who model.Caller, fields map[string]any) (map[string]any, error) {
	return profile.Resolve(fields, func(name string) (string, error) { return v.secret(o, who, name) })
}

// RunProperties returns the properties of a run with the secrets that they refer to, but for the configuration of its cluster, which
// RunConfig returns. Only administrators write profiles and preferences. The run's user needs the right to use the secrets in the
// properties that the user determines (profile.Run.UserSets).
func (v RunView) RunProperties(o Opener, r *profile.Run) (map[string]string, error) {
	values := profile.Values(r.Properties)
	config := values[profile.PropConfig]
	delete(values, profile.PropConfig)
	out, err := profile.Reveal(values, func(key, name string) (string, error) { return v.runSecret(o, r, key, name) })
	if err == nil && config != "" {
		out[profile.PropConfig] = config
	}
	return out, err
}

// runSecret returns a secret that a property of a run refers to.
func (v RunView) runSecret(o Opener, r *profile.Run, property, name string) (string, error) {
	by := vouched(r.Tenant)
	if r.UserSets(property) {
		by = TenantView(v).Acting(r.Tenant, r.Actor)
	}
	return v.secret(o, by, name)
}

// RunConfig returns the configuration of a run's cluster, nil if it has none. Values that come from secrets are model.Hidden. In a text
// that is a JSON object only with the secrets in it, these are all values.
func (v RunView) RunConfig(o Opener, r *profile.Run) (out map[string]any, err error) {
	text := profile.Values(r.Properties)[profile.PropConfig]
	if text == "" {
		return nil, nil
	}
	lookup := func(name string) (string, error) { return v.runSecret(o, r, profile.PropConfig, name) }
	err = json.Unmarshal([]byte(text), &out)
	switch {
	case err == nil:
		out, err = profile.Resolve(out, lookup)
	case profile.Secure(text):
		out, err = revealedConfig(text, lookup)
	default:
		err = fmt.Errorf("it is not a JSON object: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("property %s: %w", profile.PropConfig, err)
	}
	return out, nil
}

// revealedConfig returns a configuration whose text is a JSON object only with the secrets in it.
func revealedConfig(text string, lookup func(name string) (string, error)) (out map[string]any, err error) {
	with, err := profile.Reveal(map[string]string{"": text}, func(_, name string) (string, error) { return lookup(name) })
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	if json.Unmarshal([]byte(with[""]), &out) != nil {
		return nil, errors.New("with the secrets in it, it is not a JSON object") // the error of JSON may quote a secret
	}
	return model.MapFields(out, func(v any) (any, error) { return model.Hidden{Value: v}, nil })
}

// ProvisionedProperties returns the properties of a run whose cluster is to be deprovisioned. That is done
// whether or not the user may still use the secrets; those that were deleted are empty.
func (v RunView) ProvisionedProperties(o Opener, r *profile.Run) (map[string]string, error) {
	return profile.Reveal(profile.Values(r.Properties), func(_, name string) (string, error) {
		value, err := v.secret(o, vouched(r.Tenant), name)
		if errors.Is(err, problem.NotFound) {
			return "", nil
		}
		return value, err
	})
}

// MayStart returns problem.Forbidden if a run refers to secrets that its user or the author of its program may
// not use, so that nothing is made for it. StepEnv and RunProperties check this again.
func (v RunView) MayStart(who model.Caller, r *profile.Run) error {
	values := profile.Values(r.Properties)
	maps.DeleteFunc(values, func(name, _ string) bool { return !r.UserSets(name) })
	if err := v.MayUseSecrets(who, values); err != nil {
		return err
	}
	author := who
	if r.Program.Author != who.Actor {
		author = TenantView(v).Acting(r.Tenant, r.Program.Author)
	}
	for i := range r.Program.Steps {
		for _, by := range []model.Caller{who, author} {
			if err := v.MayUseSecrets(by, r.Program.Steps[i].Env); err != nil {
				return err
			}
		}
	}
	return nil
}

// MayUseSecrets returns problem.Forbidden if values that a user writes refer to a secret that the user's
// documents may not refer to. Nobody but an administrator may refer to a secret that does not exist yet.
func (v RunView) MayUseSecrets(who model.Caller, values map[string]string) error {
	for _, name := range profile.References(values) {
		users, _ := v.SecretUsers(who.Tenant, name)
		if err := profile.MayUse(who, name, users); err != nil {
			return err
		}
	}
	return nil
}

// Run finds a run.
func (v RunView) Run(tenant, id string) (*profile.Run, bool) {
	r := table.Get[profile.Run](v.txn, table.Runs, "id", tenant, id)
	return r, r != nil
}

// Runs returns a tenant's runs, newest first, or those of all tenants if tenant is "".
func (v RunView) Runs(tenant string) []*profile.Run {
	var out []*profile.Run
	if tenant == "" {
		out = table.List[profile.Run](v.txn, table.Runs, "id")
	} else {
		out = table.List[profile.Run](v.txn, table.Runs, "id_prefix", tenant)
	}
	slices.SortFunc(out, func(a, b *profile.Run) int {
		return cmp.Or(cmp.Compare(b.Created, a.Created), words.Natural(b.ID, a.ID))
	})
	return out
}

// LiveRuns returns the runs of all tenants that are not over.
func (v RunView) LiveRuns() []*profile.Run {
	return table.List[profile.Run](v.txn, table.Runs, "live", "live")
}

// RunOf finds the run to which a cluster belongs.
func (v RunView) RunOf(tenant, cluster string) (*profile.Run, bool) {
	var out *profile.Run
	table.Each(v.txn, table.Runs, "cluster", func(r *profile.Run) bool {
		if r.Tenant == tenant {
			out = r
		}
		return out == nil
	}, cluster)
	return out, out != nil
}

// ScheduledRuns returns the runs of a schedule whose programs are not over.
func (v RunView) ScheduledRuns(tenant, schedule string) []*profile.Run {
	return table.List[profile.Run](v.txn, table.Runs, "schedule", tenant, schedule)
}

// ProfileUsage adds up the usage of a profile's runs at the time now (Unix milliseconds). The usage
// includes runs whose records were removed.
func (v RunView) ProfileUsage(tenant string, ref profile.Ref, now int64) profile.Usage {
	var out profile.Usage
	owner := ref.Tenant(tenant)
	since := int64(0)
	if p := profileOf(v.txn, ref, tenant); p != nil {
		since = p.Created * 1000
	}
	if u := table.Get[table.UsageRow](v.txn, table.Usages, "id", owner, table.UsedByProfile, ref.Name); u != nil {
		out.Plus(u.Usage)
	}
	table.Each(v.txn, table.Runs, "profile", func(r *profile.Run) bool {
		if r.Created >= since {
			out.Add(r, now)
		}
		return true
	}, owner, ref.Name)
	return out
}

// ProgramUsage adds up the usage of a program's runs at the time now (Unix milliseconds), including
// runs whose records were removed.
func (v RunView) ProgramUsage(tenant, program string, now int64) profile.Usage {
	var out profile.Usage
	if u := table.Get[table.UsageRow](v.txn, table.Usages, "id", tenant, table.UsedByProgram, program); u != nil {
		out.Plus(u.Usage)
	}
	table.Each(v.txn, table.Runs, "id_prefix", func(r *profile.Run) bool {
		if r.Program.Name == program {
			out.Add(r, now)
		}
		return true
	}, tenant)
	return out
}

// Provisioners returns the provisioners that can make clusters for a tenant's runs.
func (v RunView) Provisioners(tenant string) []profile.Spec {
	var templates []string
	for _, d := range DefinitionView(v).Definitions(tenant, model.KindClusterTemplate) {
		templates = append(templates, d.Name)
	}
	out := []profile.Spec{profile.NativeSpec(), profile.ClusterSpec(templates)}
	for _, t := range AgentView(v).PluginTypes() {
		if t.Class == "provider" {
			out = append(out, profile.PluginSpec(t))
		}
	}
	slices.SortFunc(out, func(a, b profile.Spec) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// ProfileUse is the usage of a profile's runs.
type ProfileUse struct {
	// Tenant is the owner of the profile, or "" for a profile of the system.
	Tenant  string
	Profile profile.Ref
	profile.Usage
}

// Usages adds up the usage of the runs of every existing profile at the time now (Unix
// milliseconds).
func (v RunView) Usages(now int64) []ProfileUse {
	var out []ProfileUse
	at := map[[2]string]int{}
	add := func(tenant string, p *profile.Profile) {
		u := ProfileUse{Tenant: tenant, Profile: profile.RefOf(tenant, p.Name)}
		if old := table.Get[table.UsageRow](v.txn, table.Usages, "id", tenant, table.UsedByProfile, p.Name); old != nil {
			u.Usage = old.Usage
		}
		at[[2]string{tenant, p.Name}] = len(out)
		out = append(out, u)
	}
	native := profile.NativeProfile()
	add("", &native)
	since := map[[2]string]int64{}
	table.Each(v.txn, table.Profiles, "id", func(r *table.ProfileRow) bool {
		add(r.Tenant, &r.Profile)
		since[[2]string{r.Tenant, r.Name}] = r.Created * 1000
		return true
	})
	table.Each(v.txn, table.Runs, "id", func(r *profile.Run) bool {
		if k := table.RunProfile(r); k != nil {
			key := [2]string{k[0], k[1]}
			if i, ok := at[key]; ok && r.Created >= since[key] {
				out[i].Add(r, now)
			}
		}
		return true
	})
	return out
}

// RunProviders returns the providers of plain nodes for a tenant's runs, which have no definitions:
// those of the kept runs, and those that the existing profiles would use. A provider may appear
// more than once. Profiles whose provider no agent offers are skipped, and so are providers with references to encrypted values.
func (v RunView) RunProviders(o Opener, tenant string) []model.Provider {
	var out []model.Provider
	add := func(r *profile.Run) {
		values, err := v.RunProperties(o, r)
		// The mesh writes no references into properties: one would send a value of another provider where its author wants it.
		if p, ok := profile.Plain(r.Provisioner, values); ok && err == nil && !model.HasSealedRef(p.Provisioner) {
			out = append(out, p)
		}
	}
	for _, r := range v.Runs(tenant) {
		add(r)
	}
	offered := map[string]bool{}
	for _, t := range AgentView(v).PluginTypes() {
		offered[t.Name] = offered[t.Name] || t.Class == "provider"
	}
	would := func(p *profile.Profile, l profile.Levels, user string) {
		if made, ok := profile.Plain(p.Provisioner.Name, nil); ok && offered[made.ProviderType] {
			r := &profile.Run{Tenant: tenant, Actor: user, Runtime: l[3]}
			r.Of(p, l)
			add(r)
		}
	}
	for _, p := range v.Profiles(tenant, true) {
		would(&p, v.Levels(tenant, ""), "")
	}
	// Programs and schedules may override properties of the profile that they choose.
	chosen := func(l profile.Levels, user string) {
		if ref, err := l.Choose(); err == nil {
			if p, ok := v.Profile(tenant, ref); ok {
				would(&p, l, user)
			}
		}
	}
	table.Each(v.txn, table.Preferences, "id_prefix", func(s *profile.Settings) bool {
		if s.Program != "" {
			chosen(v.Levels(tenant, s.Program), "")
		}
		return true
	}, tenant)
	for _, s := range v.Schedules(tenant) {
		l := v.Levels(tenant, s.Program)
		l[3] = s.Properties
		chosen(l, s.Actor)
	}
	return out
}
