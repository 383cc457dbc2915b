package logformat

// FeatureLevel is the highest feature level of log entries that this build understands. Format is
// the format of a log entry's envelope.
//
// An entry has the feature level of the mesh, which is raised when all members of the group understand the new
// one.
const (
	FeatureLevel = 3
	Format       = 1
	// SealedLevel is the level from which on the state has data keys and encrypted values.
	SealedLevel = 2
	// AuditLevel is the level from which on entries have incidents, cursors of sinks, prunings of the audit log by tenant, and the
	// source and agent of commands.
	AuditLevel = 2
	// RotationLevel is the level from which on keys are rotated, and audit heads and snapshots are signed.
	RotationLevel = 3
	// HoldLevel is the level from which on the state of a mesh that was restored says that it is held.
	HoldLevel = 3
	// OrdersLevel is the level from which on a plan that is held back goes on with the steps that have begun, and orders about a plan
	// open an operation again that has failed.
	OrdersLevel = 3
	// OwnActionLevel is the level from which on plans have actions of services' own.
	OwnActionLevel = 3
	// SupersedeLevel is the level from which on a queued operation takes the place of the one that is under way.
	SupersedeLevel = 3
	// ProtectLevel is the level from which on agents encrypt their identity and the contents of plugin resources on their disks. Builds that
	// cannot read that may run in a mesh below it.
	ProtectLevel = 3
	// SuspendLevel is the level from which on schedules are suspended when their user loses the right to their runs.
	SuspendLevel = 3
	// LeaseLevel is the level from which on leases of clusters change, and warnings of their end are on record.
	LeaseLevel = 3
	// TaskKeyLevel is the level from which on the state has keys for tokens of tasks.
	TaskKeyLevel = 3
	// ProgramLimitLevel is the level from which on a program's preferences limit its runs.
	ProgramLimitLevel = 3
	// DivergenceLevel is the level from which on the state has the agents whose copies of it differ, so that they do not lead.
	DivergenceLevel = 3
	// RefuseLevel is the level from which on the state remembers requests that were refused while copies of them may have been under way.
	RefuseLevel = 3
	// RangeLevel is the level from which on properties of profiles have ranges.
	RangeLevel = 3
)
