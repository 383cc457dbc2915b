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

// Found is something that a search has found.
type Found struct {
	Type string `json:"type" enum:"cluster,node,operation,task,template,partialtemplate,service,provider,hardwaretype,imagetype,providertype,automatortype,policy,program,profile,schedule,run,site,secret,pluginresource,user,token,tenant,agent"`
	// Name is the name, or the id of something without a name.
	Name    string `json:"name"`
	ID      string `json:"id,omitempty" doc:"Absent: the name is the id"`
	Cluster string `json:"cluster,omitempty" doc:"The id of the cluster that it belongs to"`
	Status  string `json:"status,omitempty"`
	// Profile is the reference of the profile that was searched for.
	Profile string `json:"profile,omitempty"`
}
