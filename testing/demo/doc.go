// Demo is the guided tour behind "make demo": three real agents become a mesh,
// the mesh builds the shop of examples/shop, the leader is killed, the shop and
// the mesh go on, and everything is taken away again.
//
// It keeps to one folder (.demo) and to loopback addresses. However it ends, it
// leaves neither a process nor a file: see leftovers.go.
package main
