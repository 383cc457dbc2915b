// Package host runs the change objects of one agent: it delivers messages among them
// and packs messages for the objects of other agents (docs/spec/changes.md, "Between
// runtimes"). Like the objects it is pure: the caller passes the time, and takes
// packets and acts.
package host
