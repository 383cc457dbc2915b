// Package machine implements a node that is a folder: named processes that are kept running, as by
// an init system, and the command coopr-node with which scripts start, stop and inspect them.
//
// Each node has one small supervisor process. The first "coopr-node start" starts it; it ends when
// it has nothing left to supervise. It belongs to no agent: plugins and agents restart, the node's
// processes stay. It adopts orphaned descendants of its processes, so that Shutdown ends all of
// them.
package machine
