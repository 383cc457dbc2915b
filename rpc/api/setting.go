package api

// Setting is a change of a profile, a program, a schedule, preferences or a secret.
type Setting struct {
	// Kind is "profile", "program", "schedule", "preferences" or "secret".
	Kind, Name string
	// System is true for a setting of the system, and false for one of the caller's tenant.
	System bool
	// Order is "put", "delete", "enable" or "disable".
	Order string
	// Value is written as JSON. The value of a secret is a profile.Secret.
	Value any
}
