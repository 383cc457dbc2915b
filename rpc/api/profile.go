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
}

// Found is a program or schedule whose runs would use a certain profile.
type Found struct {
	Type string `json:"type" enum:"program,schedule"`
	Name string `json:"name"`
	// Profile is the reference of that profile.
	Profile string `json:"profile"`
}
