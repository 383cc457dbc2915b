// Package ssh reaches nodes over SSH: it is the transport.Node of machines that
// are not this one.
//
// A Pool keeps one connection per node and lets tasks share it. A Node is the
// view that one task has of it. Nothing of ours is installed on a node: all that
// is done there is told to its own /bin/sh, on standard input, where nothing
// that a value contains can become a command (program.go). A shell on the node
// stands watch over what runs: when the connection ends, because we are told to
// stop or because we are gone, the script's process group is ended, and no
// file with a task's configuration is left.
//
// A node proves who it is by the host key that was learned when it was
// confirmed. Another key is ErrHostKey, and nothing is done.
package ssh
