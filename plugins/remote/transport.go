// Package remote is how automators reach a node: run a command there, give
// it files. Local is for nodes that are folders of this machine; others are
// reached over SSH (plugins/remote/ssh).
package remote

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"time"
)

// ErrLost says that the way to a node was lost while a command ran there:
// nobody knows how far it got.
var ErrLost = errors.New("the connection to the node was lost while something ran there")

// Node is a machine that can be worked on. It is safe for concurrent use.
type Node interface {
	// Dir is the folder on the node that scripts work in, an absolute path.
	Dir() string
	// Path is where the node's programs are, as PATH has it; "" says that they are
	// this machine's.
	Path() string
	// Run runs a command until it ends. Once the context is done the command and
	// all of its process group are told to end, and killed after its grace; the
	// error is then the context's cause. ErrLost says that nobody knows; other
	// errors say that nothing ran.
	Run(ctx context.Context, c Command) (Exit, error)
	// Put writes a file below Dir, whole or not at all.
	Put(ctx context.Context, name string, mode fs.FileMode, content []byte) error
	// Append adds to a file below Dir in one piece and gives its new size.
	Append(ctx context.Context, name string, content []byte) (int64, error)
	// Read gives a file below Dir; fs.ErrNotExist when there is none.
	Read(ctx context.Context, name string) ([]byte, error)
	// Rename renames a file below Dir.
	Rename(ctx context.Context, from, to string) error
	// Secret gives content a path that only the node's own user can read and
	// that is gone after remove.
	Secret(ctx context.Context, content []byte) (path string, remove func(), err error)
	// Script makes a file of the agent's machine available on the node and
	// gives its path there.
	Script(ctx context.Context, path string) (string, error)
}

// Command is what to run.
type Command struct {
	Args           []string
	Dir            string   // default: the node's
	Env            []string // the whole environment
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Grace          time.Duration // between TERM and KILL; default 5 s
	// Done is a line that the node adds to its Record by itself when the command ends
	// with exit status 0, whether we still hear of that or not.
	Done string
}

const (
	// Record is the name of a node's own record of what was done there.
	Record = ".coopr/done.log"
	// ExitNotRecorded is how a command ends whose line Done could not be written.
	ExitNotRecorded = 119
)

// Exit is how a command ended.
type Exit struct {
	Code   int    // -1: by a signal
	Signal string // "killed"; "" if by itself
}
