// Package profile decides about clusters that live as long as one job: profiles,
// programs, schedules and runs (docs/spec/profiles.md; docs/profiles.md).
//
// A Run is a record with two machines in it: that of its program and that of its
// cluster, the latter moved on by the steps of a Task (section 3). Apply takes one
// event and gives the record after it, Next says what is to be done about a
// record. There is no I/O and no clock: times are Unix milliseconds that come in.
package profile
