// Package objects is the host runtime of change objects: it runs the objects of the hosts
// that the leader assigned to this agent (docs/spec/changes.md rules 18 to 25). The
// objects decide (engine/change); this package carries their messages to other agents,
// carries out their acts, keeps within the agent's lease, and reports to the leader.
//
// A site runner owns the objects of one site. Its calls come from one work queue whose
// keys are sites. Acts run in goroutines of their own, one at a time for each object, and
// come back as messages to the site runner.
//
// A link to another agent is no work queue: its send blocks while that agent does not keep up, and
// packets have an order, which keys would lose.
package objects
