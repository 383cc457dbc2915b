package state

import (
	"github.com/coopr/coopr/engine/audit"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/profile"
)

// setting makes the record of a row of profiles and runs that is about to be written, or
// with there false to be removed.
func (u *auditor) setting(row any, there bool) (c *audit.Change, before, after audit.Document) {
	txn := u.a.txn
	switch r := row.(type) {
	case *profileRow:
		c = &audit.Change{Type: "profile", Tenant: r.Tenant, Subject: r.Name}
		before = docOf(u, get[profileRow](txn, tProfiles, "id", r.Tenant, r.Name))
	case *programRow:
		c = &audit.Change{Type: "program", Tenant: r.Tenant, Subject: r.Name}
		if there {
			before = docOf(u, u.a.program(r.Tenant, r.Name))
		} else {
			before = u.document(r)
		}
	case *profile.Schedule:
		c = &audit.Change{Type: "schedule", Tenant: r.Tenant, Subject: r.Name, Message: r.Message}
		before = docOf(u, get[profile.Schedule](txn, tSchedules, "id", r.Tenant, r.Name))
	case *profile.Settings:
		c = &audit.Change{Type: "preferences", Tenant: r.Tenant, Subject: r.Program}
		before = docOf(u, get[profile.Settings](txn, tPreferences, "id", r.Tenant, r.Program))
	case *profile.Run:
		c = &audit.Change{Type: "run", Tenant: r.Tenant, Cluster: r.Cluster.ID, Operation: r.Operation, Subject: r.ID, Message: r.Message}
		before = docOf(u, get[profile.Run](txn, tRuns, "id", r.Tenant, r.ID))
	case *secretRow:
		// That there is one, and nothing of it.
		name := func(s *secretRow) *secretRow {
			if s == nil {
				return nil
			}
			return &secretRow{Tenant: s.Tenant, Name: s.Name, Value: model.Redacted}
		}
		c = &audit.Change{Type: "secret", Tenant: r.Tenant, Subject: r.Name}
		before = docOf(u, name(get[secretRow](txn, tSecrets, "id", r.Tenant, r.Name)))
		row = name(r)
	}
	if there {
		after = u.document(row)
	}
	return c, before, after
}
