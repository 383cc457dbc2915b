// Package machine is the inside of a node that is a folder: named processes
// that are kept running, as an init would, and the command coopr-node by which
// scripts start, stop and look at them.
//
// One small supervisor process per node does it. The first "coopr-node start"
// starts it; it ends when nothing is left to look after. It belongs to no
// agent: plugins and agents come and go, the node's processes stay. It adopts
// whatever its processes leave behind, so that Shutdown ends all of it.
package machine
