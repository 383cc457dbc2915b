// Package profile decides about clusters that live as long as one job: profiles, programs,
// schedules and runs (docs/spec/profiles.md; docs/profiles.md).
//
// A Run is a record with two state machines: that of its program and that of its cluster. The
// steps of a Task advance the latter (section 3). Apply returns the record after an event, and
// Next returns what to do about a record. There is no I/O and no clock: callers pass times in
// Unix milliseconds.
package profile
