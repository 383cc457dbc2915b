package api

import (
	"github.com/coopr/coopr/engine/profile"
)

// ProfileDetails is a profile and what it is used for.
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
}

// Found is one result of a search.
type Found struct {
	Type string `json:"type" enum:"program,schedule"`
	Name string `json:"name"`
	// Profile is the profile that a run would use now.
	Profile string `json:"profile"`
}
