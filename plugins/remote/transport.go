// Package remote defines how automators use a node: run a command there, send it files. Local is
// for nodes that are folders of this machine; other nodes are reached over SSH
// (plugins/remote/ssh).
package remote

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"time"
)

// ErrLost means that the connection to a node was lost while a command ran there: it is unknown how
// far the command got.
var ErrLost = errors.New("the connection to the node was lost while a command ran there")

// Node is a machine on which commands run. It is safe for concurrent use.
type Node interface {
	// Dir returns the folder on the node that scripts work in, an absolute path.
	Dir() string
	// Path returns the node's PATH, or "" if it is that of this machine.
	Path() string
	// Run runs a command until it ends. Once the context is done, the command's process group gets
	// TERM, and KILL after the command's grace; the error is then the context's cause. With ErrLost
	// it is unknown what was done; with any other error nothing ran.
	Run(ctx context.Context, c Command) (Exit, error)
	// Put writes a file within Dir, completely or not at all.
	Put(ctx context.Context, name string, mode fs.FileMode, content []byte) error
	// Append appends to a file within Dir in one piece and returns its new size.
	Append(ctx context.Context, name string, content []byte) (int64, error)
	// Read returns the content of a file within Dir, or fs.ErrNotExist.
	Read(ctx context.Context, name string) ([]byte, error)
	// Rename renames a file within Dir.
	Rename(ctx context.Context, from, to string) error
	// Secret returns a path for the content that only the node's user can read and that is gone
	// after remove.
	Secret(ctx context.Context, content []byte) (path string, remove func(), err error)
	// Script makes a file of the agent's machine available on the node and returns its path there.
	Script(ctx context.Context, path string) (string, error)
}

// Command is a command with its environment and streams.
type Command struct {
	Args           []string
	Dir            string   // default: the node's
	Env            []string // the complete environment
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Grace          time.Duration // between TERM and KILL; default 5 s
	// Done is a line that the node appends to its Record by itself when the command ends with exit
	// status 0, even if the connection is lost before.
	Done string
}

const (
	// Record is the name of a node's own record of finished tasks.
	Record = ".coopr/done.log"
	// ExitNotRecorded is the exit status of a command whose line Done could not be written.
	ExitNotRecorded = 119
)

// Exit is how a command ended.
type Exit struct {
	Code   int    // -1: by a signal
	Signal string // "killed"; "" if by itself
}
