// Demo is the guided tour behind "make demo": three real agents become a mesh,
// the mesh builds the shop of examples/shop, the leader is killed, and the shop
// and the mesh go on (walk.go); the shop grows, is upgraded, has a bad upgrade
// undone and a node repaired (changes.go); and everything is taken away again.
//
// It keeps to one folder (.demo) and to loopback addresses. However it ends, it
// leaves neither a process nor a file: see leftovers.go.
package main
