// Package mesh is how an agent finds the others and keeps a list of them: serf gossip for discovery and quick failure
// detection, completed by the list of record that the owner hands in.
//
// Gossip alone is quick but leaves gaps: the last of a thousand views waits for a push/pull that comes every half
// minute. The replicated agents table is complete but knows a newcomer or a death only after the leader wrote it. So
// the view is the union of both, entry by entry (Merge has the rule), and either source fills in for the other.
//
//	m, err := mesh.New(mesh.Config{ID: id, Bind: "10.0.0.5:55056", GossipKey: key, Join: seeds, Self: self, Logger: log})
//	go m.Run(ctx)
//	changed, stop := m.Subscribe()
//	for range changed { ... m.Members() ... }
//	m.Repair(records) // whenever the agents table changed
//
// No work is ever dispatched by gossip: a lost message would be a lost task.
package mesh
