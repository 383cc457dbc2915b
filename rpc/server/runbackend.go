package server

import (
	"context"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/rpc/api"
)

// RunBackend is what the API of profiles and runs stands on.
type RunBackend interface {
	ChangeSetting(ctx context.Context, who model.Caller, s api.Setting) (api.Written, error)
	// StartRun begins a run. With ErrTooMany the id is that of the run that was rejected.
	StartRun(ctx context.Context, who model.Caller, req api.StartRun) (id string, w api.Written, err error)
	// OrderRun gives an order about a run.
	OrderRun(ctx context.Context, who model.Caller, run string, e profile.Event) (api.Written, error)
}

// RunView reads profiles and runs. Tenant "" stands for the system.
type RunView interface {
	Profiles(tenant string, system bool) []profile.Profile
	Profile(tenant string, ref profile.Ref) (profile.Profile, bool)
	// Assignments tells what names a profile.
	Assignments(tenant string, ref profile.Ref) []string
	ProfileUsage(tenant string, ref profile.Ref, now int64) profile.Usage
	Provisioners(tenant string) []profile.Spec
	Programs(tenant string) []profile.Program
	Program(tenant, name string, version int) (profile.Program, bool)
	ProgramUsage(tenant, program string, now int64) profile.Usage
	Schedules(tenant string) []profile.Schedule
	Schedule(tenant, name string) (profile.Schedule, bool)
	Preferences(tenant, program string) (profile.Settings, bool)
	// Levels are the settings that a run of a program begins with.
	Levels(tenant, program string) profile.Levels
	SecretNames(tenant string) []string
	// Runs are a tenant's, the newest first.
	Runs(tenant string) []*profile.Run
	Run(tenant, id string) (*profile.Run, bool)
}
