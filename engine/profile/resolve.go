package profile

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/words"
)

// The keys with which preferences, schedules and arguments choose a profile and override its
// properties (docs/spec/profiles.md §7).
const (
	ProfileKey     = "system.profile.name"
	PropertyPrefix = "system.profile.properties."
	// RunsKey limits the runs of a tenant, and in a program's preferences those of the program. In the
	// system's preferences it limits those of each tenant.
	RunsKey      = "system.runs.max"
	LaunchingKey = "system.runs.launching"
)

// Level is an index of Levels: whose settings they are.
type Level int

// The levels of settings. Later ones take precedence.
const (
	OfSystem Level = iota
	OfTenant
	OfProgram
	OfRun // of the schedule, or the arguments of the start
)

// Levels are the settings for a run.
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

// UnreadKeys returns a fault for each key that nothing reads at a level. A property needs to be one of a provisioner in specs; which of
// them makes the cluster depends on the other levels.
func UnreadKeys(properties map[string]string, of Level, specs []Spec) (fs model.Faults) {
	for key := range properties {
		if why := unread(key, of, specs); why != "" {
			fs.Add("properties."+key, why)
		}
	}
	sortFaults(fs)
	return fs
}

// unread returns the fault of a key that nothing reads, or "".
func unread(key string, of Level, specs []Spec) string {
	known := []string{ProfileKey, RunsKey, LaunchingKey, PropertyPrefix + "NAME"}
	name, isProperty := strings.CutPrefix(key, PropertyPrefix)
	switch {
	case isProperty && name != "":
		if slices.ContainsFunc(specs, func(s Spec) bool { return s.Reads(name) }) {
			return ""
		}
		known = nil
		for i := range specs {
			known = append(known, specs[i].names()...)
		}
		return "no provisioner has a property " + strconv.Quote(name) + words.DidYouMean(name, known)
	case key == ProfileKey:
		return ""
	case (key == RunsKey || key == LaunchingKey) && of == OfRun:
		return "is read only from the preferences of a program, of the tenant and of the system"
	case key == RunsKey || key == LaunchingKey:
		return ""
	}
	if of == OfRun {
		known = []string{ProfileKey, PropertyPrefix + "NAME"}
	}
	near := known
	if parts := strings.SplitN(key, ".", 4); len(parts) == 4 { // the prefix may be misspelt
		near = append(slices.Clone(known), PropertyPrefix+parts[3])
	}
	if why := words.DidYouMean(key, near); why != "" {
		return "nothing reads it" + why
	}
	return "nothing reads it: the keys are " + words.And(known)
}

// CheckSettings returns the faults that can be found in settings without the state: it does not
// check that the profile exists. Settings of the system can name only system profiles.
func CheckSettings(properties map[string]string, of Level) model.Faults {
	fs := checkRefs(properties)
	if s := properties[ProfileKey]; s != "" {
		switch r, err := ParseRef(s); {
		case err != nil:
			fs.Add("properties."+ProfileKey, err.Error())
		case of == OfSystem && r.Scope != System:
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
