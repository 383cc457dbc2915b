package api

import (
	"context"
	"errors"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/profile"
)

// ErrTooMany says that a run was refused for want of room; it is kept as rejected.
var ErrTooMany = errors.New("too many runs")

// Setting is what is done to a profile, a program, a schedule, preferences or a secret.
type Setting struct {
	// Kind is "profile", "program", "schedule", "preferences" or "secret".
	Kind, Name string
	// System: it is of the system, not of the caller's tenant.
	System bool
	// Order is "put", "delete", "enable" or "disable".
	Order string
	// Value is written as JSON; a secret is a model.Secret.
	Value any
}

// RunBackend is what the API of profiles and runs stands on.
type RunBackend interface {
	ChangeSetting(ctx context.Context, who model.Caller, s Setting) (Written, error)
	// StartRun begins a run. With ErrTooMany the id is that of the run that was rejected.
	StartRun(ctx context.Context, who model.Caller, req StartRun) (id string, w Written, err error)
	// OrderRun gives an order about a run.
	OrderRun(ctx context.Context, who model.Caller, run string, e profile.Event) (Written, error)
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

// StartRun asks for a run.
type StartRun struct {
	Program string           `json:"program,omitempty" doc:"The program's name; or give inline"`
	Version int              `json:"version,omitempty" doc:"The program's version; 0 or absent: the latest"`
	Inline  *profile.Program `json:"inline,omitempty" doc:"A program that is not kept"`
	Profile string           `json:"profile,omitempty" doc:"SYSTEM:name or name; else what the preferences choose"`
	Nodes   int              `json:"nodes,omitempty" doc:"How many nodes, where the profile lets one choose"`
	// Runtime are the runtime arguments.
	Runtime   map[string]string `json:"runtime,omitempty" doc:"Runtime arguments: system.profile.name, system.profile.properties.NAME"`
	Arguments []string          `json:"arguments,omitempty" doc:"Arguments of the program's command line"`
}
