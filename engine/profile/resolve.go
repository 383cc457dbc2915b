package profile

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
)

// The keys with which preferences, schedules and arguments choose a profile and override its
// properties (docs/spec/profiles.md §7).
const (
	ProfileKey     = "system.profile.name"
	PropertyPrefix = "system.profile.properties."
	// RunsKey limits the runs of a tenant. In the system's preferences it limits those of each
	// tenant.
	RunsKey      = "system.runs.max"
	LaunchingKey = "system.runs.launching"
)

// Levels are the settings for a run. Later ones take precedence: those of the system, the
// tenant, the program, and the schedule or the arguments of the start.
type Levels [4]map[string]string

// Choose returns the profile that the settings name, or native.
func (l Levels) Choose() (Ref, error) {
	for i := len(l) - 1; i >= 0; i-- {
		if s := l[i][ProfileKey]; s != "" {
			return ParseRef(s)
		}
	}
	return NativeRef, nil
}

// Get returns a setting from the last level that has it.
func (l Levels) Get(key string) string {
	for i := len(l) - 1; i >= 0; i-- {
		if s, ok := l[i][key]; ok {
			return s
		}
	}
	return ""
}

// Final returns the properties of a run: those of the profile, overridden by the settings in l.
// Properties that the profile lacks are added. A locked property keeps its value; ignored lists the
// locked properties that l would have changed.
func (p *Profile) Final(l Levels) (final []Property, ignored []string) {
	final = slices.Clone(p.Provisioner.Properties)
	for _, level := range l {
		for _, key := range slices.Sorted(maps.Keys(level)) {
			name, ok := strings.CutPrefix(key, PropertyPrefix)
			if !ok || name == "" {
				continue
			}
			i := slices.IndexFunc(final, func(q Property) bool { return q.Name == name })
			switch {
			case i < 0:
				final = append(final, Property{Name: name, Value: level[key]})
			case !final[i].Locked():
				final[i].Value = level[key]
			case final[i].Value != level[key] && !slices.Contains(ignored, name):
				ignored = append(ignored, name)
			}
		}
	}
	return final, ignored
}

// Values returns properties as a map.
func Values(properties []Property) map[string]string {
	out := make(map[string]string, len(properties))
	for _, p := range properties {
		out[p.Name] = p.Value
	}
	return out
}

// Settings are the settings of one level. They are a program's, or the tenant's if Program is
// "", or the system's if Tenant is "" too.
type Settings struct {
	Tenant     string            `json:"tenant,omitempty"`
	Program    string            `json:"program,omitempty"`
	Properties map[string]string `json:"properties"`
	Version    uint64            `json:"version,omitempty"`
}

// Assigned returns the tenant and name of the profile that settings of a tenant name, and
// false if they name none.
func Assigned(tenant string, properties map[string]string) (owner, name string, ok bool) {
	s := properties[ProfileKey]
	if s == "" {
		return "", "", false
	}
	r, err := ParseRef(s)
	if err != nil {
		return "", "", false
	}
	return r.Tenant(tenant), r.Name, true
}

// CheckSettings returns the faults that can be found in settings without the state: it does not
// check that the profile exists. If system is true, the settings are the system's and can name
// only system profiles.
func CheckSettings(properties map[string]string, system bool) model.Faults {
	fs := checkRefs(properties)
	if s := properties[ProfileKey]; s != "" {
		switch r, err := ParseRef(s); {
		case err != nil:
			fs.Add("properties."+ProfileKey, err.Error())
		case system && r.Scope != System:
			fs.Add(
				"properties."+ProfileKey,
				fmt.Sprintf("%s is a tenant's profile: the system's preferences name those of the system, %s:%s", r, System, r.Name),
			)
		}
	}
	for _, key := range []string{RunsKey, LaunchingKey} {
		if s, ok := properties[key]; ok {
			if _, err := bound(s); err != nil {
				fs.Add("properties."+key, err.Error())
			}
		}
	}
	return fs
}

// checkRefs returns the faults of properties that look like names of encrypted values, which the mesh alone writes.
func checkRefs(properties map[string]string) (fs model.Faults) {
	for name, v := range properties {
		if why := model.RefusedRef(v); why != "" {
			fs.Add("properties."+name, why)
		}
	}
	sortFaults(fs)
	return fs
}

func sortFaults(fs model.Faults) {
	slices.SortStableFunc(fs, func(a, b *model.Fault) int { return strings.Compare(a.Path, b.Path) })
}
