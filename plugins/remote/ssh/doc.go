// Package ssh reaches nodes over SSH: it implements remote.Node for machines other than this one.
//
// A Pool keeps one connection per node, which tasks share. A Node is one task's view of it. Nothing
// is installed on a node: everything is done by its own /bin/sh, which reads programs from standard
// input, so that no value can be taken for a command (program.go). A guard process on the node
// watches the running script: when the connection ends, because the task is cancelled or the agent
// is gone, the guard ends the script's process group and removes the files of the task's
// configuration.
//
// A node is identified by the host key that was recorded when it was confirmed. With any other key
// the error is ErrHostKey, and nothing is done.
package ssh
