// Package objects runs the change objects of one agent: their cores decide
// (engine/change/host), this package carries what they say to other homes, does what
// they want done, keeps within the agent's lease, and reports to the leader
// (docs/spec/changes.md rules 18 to 25).
//
// There is one cell a site: a goroutine that owns the site's objects here. Acts
// run beside it, one at a time for each object, and come back as mail.
package objects
