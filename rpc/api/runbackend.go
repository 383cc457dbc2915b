package api

import (
	"github.com/coopr/coopr/engine/profile"
)

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
