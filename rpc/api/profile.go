package api

import (
	"github.com/coopr/coopr/engine/profile"
)

// ProfileDetails is a profile and its uses.
type ProfileDetails struct {
	profile.Profile
	Assigned []string      `json:"assigned" doc:"What uses the profile: the system, the tenant, programs, schedules"`
	Usage    profile.Usage `json:"usage"`
}

// StatusBody is the status of a profile.
type StatusBody struct {
	Status string `json:"status"`
}

// SettingsBody is the body of preferences.
type SettingsBody struct {
	Properties map[string]string `json:"properties"`
}

// SecretBody is the value of a secret.
type SecretBody struct {
	Value string `json:"value" doc:"The API never shows it again"`
	// UsableBy are actors, or "*". If it is nil, they stay as they are.
	UsableBy []string `json:"usableBy,omitzero" doc:"The users whose programs and runs may refer to the secret; * means all users of the tenant. Administrators may always. If it is absent, the users stay as they are."`
}

// Secret describes a secret without its value.
type Secret struct {
	Name     string   `json:"name"`
	UsableBy []string `json:"usableBy" doc:"The users whose programs and runs may refer to the secret; * means all users of the tenant. Administrators may always."`
}

// Found is a program or schedule whose runs would use a certain profile.
type Found struct {
	Type string `json:"type" enum:"program,schedule"`
	Name string `json:"name"`
	// Profile is the reference of that profile.
	Profile string `json:"profile"`
}
