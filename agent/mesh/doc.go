// Package mesh finds the other agents and keeps a view of them: serf's gossip discovers agents and detects failures
// quickly, and the agent registry completes the view.
//
// Gossip alone is quick but leaves gaps: the last of a thousand agents hears some news only in a push/pull, twice a
// minute. The registry is complete, but it has a new or a dead agent only after the leader has written it. So the view is
// the union of both, entry by entry (see Merge).
//
//	m, err := mesh.New(mesh.Config{ID: id, Bind: "10.0.0.5:55056", GossipKeys: keys, Join: seeds, Self: self, Logger: log})
//	go m.Run(ctx)
//	changed, stop := m.Subscribe()
//	for range changed { ... m.Members() ... }
//	m.Repair(records, removed) // whenever the agent registry has changed
//
// Gossip never carries work: a lost message would be a lost task.
package mesh
