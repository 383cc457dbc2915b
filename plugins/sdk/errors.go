package sdk

import (
	"errors"

	"github.com/coopr/coopr/rpc/proto"
)

// ErrNotFound is what Observe returns when the thing does not exist.
var ErrNotFound = errors.New("not found")

// failure is an error with the outcome it stands for.
type failure struct {
	outcome proto.Outcome
	err     error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// Retryable marks a failure that another attempt may not meet. Errors without
// a mark are retryable.
func Retryable(err error) error { return mark(proto.Outcome_OUTCOME_RETRYABLE, err) }

// Fatal marks a failure that every attempt will meet: wrong fields, refused
// credentials, a script that says so.
func Fatal(err error) error { return mark(proto.Outcome_OUTCOME_FATAL, err) }

// NothingDone marks a failure before anything was changed: the next attempt
// need not look for remains.
func NothingDone(err error) error { return mark(proto.Outcome_OUTCOME_NOTHING_DONE, err) }

// Unknown marks a failure after which nobody knows what was done: the next
// attempt looks first (Observer, Automator.Check).
func Unknown(err error) error { return mark(proto.Outcome_OUTCOME_UNKNOWN, err) }

func mark(o proto.Outcome, err error) error {
	if err == nil {
		return nil
	}
	return &failure{outcome: o, err: err}
}

// OutcomeOf gives the outcome an error stands for; the outermost mark counts.
func OutcomeOf(err error) proto.Outcome { return outcomeOf(err) }

func outcomeOf(err error) proto.Outcome {
	var f *failure
	switch {
	case err == nil:
		return proto.Outcome_OUTCOME_SUCCEEDED
	case errors.As(err, &f):
		return f.outcome
	default:
		return proto.Outcome_OUTCOME_RETRYABLE
	}
}
