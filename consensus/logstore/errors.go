package logstore

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
)

// What can be wrong with a store. All errors of this package wrap one of these
// or the file system's own error.
var (
	// ErrStuck: a write was given up at its deadline, or refused because an
	// earlier one has not come back yet.
	ErrStuck = errors.New("the disk does not answer")
	// ErrSick: writes failed again and again. The store refuses all further
	// ones; shut the member down, and open the store again once the disk accepts
	// writes.
	ErrSick = errors.New("the log store is sick")
	// ErrDiskFull: the file system has no room left, or the quota is used up.
	ErrDiskFull = errors.New("the disk is full: free space or move the data directory")
	// ErrInUse: another process has the directory open.
	ErrInUse = errors.New("the data directory is in use by another process")
	// ErrOtherKind: the directory holds another kind of log than asked for.
	ErrOtherKind = errors.New("another kind of log store")
	// ErrClosed: the store has been closed.
	ErrClosed = errors.New("the log store is closed")
)

// explain adds what the operator should know to an error of the file system.
func explain(err error) error {
	switch {
	case err == nil, errors.Is(err, ErrDiskFull):
		return err
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w (%w)", ErrDiskFull, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: the agent's user must own the data directory", err)
	}
	return err
}
