// Package search explores every reachable state of a small site (docs/spec/changes.md):
// every order in which messages arrive and acts end, from given states of the world,
// with a bounded number of losses, duplicates, failures and crashes of hosts at any
// moment. It runs object.Object itself, not a model of it.
//
// It shows three properties. No transition begins without its locks, and none while
// another object relies on the state that the transition leaves (S1 and S2, also
// through the lock dependencies of that state). From every state the site can reach
// one where all objects rest in their preferred states, so there is no deadlock. The
// site cannot make transitions for ever, so there is no livelock. Each object counts as
// a host of its own and messages are unordered, so the result covers every placement on
// hosts. Epochs and incarnations are relabelled, which keeps the states of a site that
// never rests finite.
//
// It does not cover changes of generation, removals, drift, time (a backoff ends at
// once) and the packing of messages. The simulation in package sim does.
package search
