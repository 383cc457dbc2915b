package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

var (
	// ErrInterrupted is the cause of a context that Ctrl-C ended.
	ErrInterrupted = errors.New("interrupted")
	// ErrDeclined is the error of a command whose question was answered with no.
	ErrDeclined = errors.New("not done")
	// ErrReported is a failure that has been shown already.
	ErrReported = errors.New("failed")
	// ErrLeft is the error of a command that was left with Ctrl-C while its work continues. How to
	// return to the work has been shown already.
	ErrLeft = errors.New("left")
)

// ExitUnwell is the exit code of "coopr status" if something is wrong.
const ExitUnwell = 6

// ExitError ends the command with this exit code and shows nothing.
type ExitError struct{ Code int }

func (e *ExitError) Error() string { return fmt.Sprintf("exit status %d", e.Code) }

// UsageError is the error of a command line that is not written correctly.
type UsageError struct {
	Command *cobra.Command
	text    string
}

func (u *UsageError) Error() string { return u.text }

// Usage returns an error about how a command is used.
func Usage(cmd *cobra.Command, format string, args ...any) error {
	return &UsageError{cmd, fmt.Sprintf(format, args...)}
}

// HintedError is an error with advice on what to do about it.
type HintedError struct {
	error
	Hint string // "" if there is none
}

// Hinted adds advice to an error.
func Hinted(err error, hint string) error { return &HintedError{err, hint} }

func (h *HintedError) Unwrap() error { return h.error }
