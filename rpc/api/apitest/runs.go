package apitest

import (
	"context"
	"fmt"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/rpc/api"
)

// noRuns is what a test mesh has of profiles and runs: nothing but the profile that is always
// there. What they do is tested on real agents.
type noRuns struct{}

var errNoRuns = fmt.Errorf("%w: a test mesh keeps no profiles and no runs", api.ErrConflict)

// ChangeSetting refuses.
func (*Agent) ChangeSetting(context.Context, model.Caller, api.Setting) (api.Written, error) {
	return api.Written{}, errNoRuns
}

// StartRun refuses.
func (*Agent) StartRun(context.Context, model.Caller, api.StartRun) (string, api.Written, error) {
	return "", api.Written{}, errNoRuns
}

// OrderRun refuses.
func (*Agent) OrderRun(context.Context, model.Caller, string, profile.Event) (api.Written, error) {
	return api.Written{}, errNoRuns
}

func (noRuns) Profiles(string, bool) []profile.Profile {
	return []profile.Profile{profile.NativeProfile()}
}
func (noRuns) Profile(_ string, r profile.Ref) (profile.Profile, bool) {
	return profile.NativeProfile(), r == profile.NativeRef
}
func (noRuns) Assignments(string, profile.Ref) []string { return nil }
func (noRuns) ProfileUsage(string, profile.Ref, int64) profile.Usage {
	return profile.Usage{}
}
func (noRuns) Provisioners(string) []profile.Spec { return []profile.Spec{profile.NativeSpec()} }
func (noRuns) Programs(string) []profile.Program  { return nil }
func (noRuns) Program(string, string, int) (profile.Program, bool) {
	return profile.Program{}, false
}
func (noRuns) ProgramUsage(string, string, int64) profile.Usage { return profile.Usage{} }
func (noRuns) Schedules(string) []profile.Schedule              { return nil }
func (noRuns) Schedule(string, string) (profile.Schedule, bool) { return profile.Schedule{}, false }
func (noRuns) Preferences(string, string) (profile.Settings, bool) {
	return profile.Settings{}, false
}
func (noRuns) Levels(string, string) profile.Levels    { return profile.Levels{} }
func (noRuns) SecretNames(string) []string             { return nil }
func (noRuns) Runs(string) []*profile.Run              { return nil }
func (noRuns) Run(string, string) (*profile.Run, bool) { return nil, false }
