// Demo is the guided tour of "make demo": three real agents become a mesh, the mesh builds the shop
// of examples/shop, and the leader is killed while shop and mesh continue (walk.go). The shop
// grows, is upgraded, has a bad upgrade undone and a node repaired (changes.go). At the end
// everything is deleted.
//
// The demo writes to one folder (.demo) and uses loopback addresses. However it ends, it leaves no
// process and no file: see leftovers.go.
package main
