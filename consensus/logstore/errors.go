package logstore

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
)

// Faults of a store. All errors of this package wrap one of these
// or the file system's own error.
var (
	// ErrStuck: a write was abandoned at its deadline, or refused because an
	// earlier one has not returned yet.
	ErrStuck = errors.New("the disk does not answer")
	// ErrSick: writes failed repeatedly or one hung for too long. The store refuses all
	// further writes. The owner shuts the member down and opens the store again once the disk
	// accepts writes.
	ErrSick = errors.New("the log store is sick")
	// ErrDiskFull: the file system has no room left, or the quota is used up.
	ErrDiskFull = errors.New("the disk is full: free space or move the data directory")
	// ErrInUse: another process has the directory open.
	ErrInUse = errors.New("the data directory is in use by another process")
	// ErrOtherKind: the directory holds another kind of log than the requested one.
	ErrOtherKind = errors.New("unexpected kind of log store")
	// ErrDamaged: the data that was read differs from the data that was written. The error names
	// the log entry.
	ErrDamaged = errors.New("the log store is damaged")
	// ErrAbstains: the member does not vote; see Guard.Abstains.
	ErrAbstains = errors.New("the log has lost entries, and this member does not vote until it has them again")
	// ErrClosed: the store has been closed.
	ErrClosed = errors.New("the log store is closed")
)

// explain adds a hint for the operator to an error of the file system.
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
