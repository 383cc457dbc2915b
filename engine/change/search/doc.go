// Package search looks at every state that a small site can get into: every
// order in which its messages can arrive and its acts end, from given states of
// the world, and with a number of losses, duplicates, failures and deaths of
// homes at any moment. It runs change.Object itself, not a model of it.
//
// What it shows for a site: no transition begins without its locks, and none
// while another relies on the state that it leaves (S1, S2, also through the lock
// dependencies of what is relied on); wherever the site is, it can still come to
// rest with everything in its preferred state (no deadlock); and it cannot make
// transitions for ever (no livelock). Each object is taken for a home of its own
// and messages for unordered, so every placement on hosts is covered. Epochs and
// incarnations are relabelled, so a site that never rests is finite too.
//
// What it does not cover: changes of generation and removals, drift, time
// (backoffs pass at once), and the packing of messages; these are the simulation's.
package search
