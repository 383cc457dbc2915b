package auditor

import (
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/audit"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/profile"
)

// setting returns the change of a row of profiles and runs, with the documents before and after it.
// With there the row is about to be written, otherwise removed.
func (u *Auditor) setting(row any, there bool) (c *audit.Change, before, after audit.Document) {
	txn := u.txn
	switch r := row.(type) {
	case *table.ProfileRow:
		c = &audit.Change{Type: "profile", Tenant: r.Tenant, Subject: r.Name}
		before = docOf(u, table.Get[table.ProfileRow](txn, table.Profiles, "id", r.Tenant, r.Name))
	case *table.ProgramRow:
		c = &audit.Change{Type: "program", Tenant: r.Tenant, Subject: r.Name}
		if there {
			before = docOf(u, table.LatestProgram(u.txn, r.Tenant, r.Name))
		} else {
			before = u.document(r)
		}
	case *profile.Schedule:
		c = &audit.Change{Type: "schedule", Tenant: r.Tenant, Subject: r.Name, Message: r.Message}
		before = docOf(u, table.Get[profile.Schedule](txn, table.Schedules, "id", r.Tenant, r.Name))
	case *profile.Settings:
		c = &audit.Change{Type: "preferences", Tenant: r.Tenant, Subject: r.Program}
		before = docOf(u, table.Get[profile.Settings](txn, table.Preferences, "id", r.Tenant, r.Program))
	case *profile.Run:
		c = &audit.Change{Type: "run", Tenant: r.Tenant, Cluster: r.Cluster.ID, Operation: r.Operation, Subject: r.ID, Message: r.Message}
		before = docOf(u, table.Get[profile.Run](txn, table.Runs, "id", r.Tenant, r.ID))
	case *table.SecretRow:
		// The document shows that the secret exists, and nothing of its value.
		name := func(s *table.SecretRow) *table.SecretRow {
			if s == nil {
				return nil
			}
			return &table.SecretRow{Tenant: s.Tenant, Name: s.Name, Value: model.Redacted, UsableBy: s.UsableBy, Version: s.Version}
		}
		c = &audit.Change{Type: "secret", Tenant: r.Tenant, Subject: r.Name}
		before = docOf(u, name(table.Get[table.SecretRow](txn, table.Secrets, "id", r.Tenant, r.Name)))
		row = name(r)
	}
	if there {
		after = u.document(row)
	}
	return c, before, after
}
