package sdk

import (
	"errors"

	"github.com/coopr/coopr/rpc/proto"
)

// ErrNotFound is returned by Observe when the node's machine does not exist.
var ErrNotFound = errors.New("not found")

// failure is an error with its outcome.
type failure struct {
	outcome proto.Outcome
	err     error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// Retryable marks a failure that may not happen again. Errors without a mark are retryable.
func Retryable(err error) error { return mark(proto.Outcome_OUTCOME_RETRYABLE, err) }

// Fatal marks a failure that every further attempt would meet: wrong fields, refused credentials, a
// script that reports it.
func Fatal(err error) error { return mark(proto.Outcome_OUTCOME_FATAL, err) }

// NothingDone marks a failure that happened before anything was changed, so that the next attempt
// need not observe first.
func NothingDone(err error) error { return mark(proto.Outcome_OUTCOME_NOTHING_DONE, err) }

// Unknown marks a failure after which it is unknown what was done, so that the next attempt
// observes first (Observer, Automator.Check).
func Unknown(err error) error { return mark(proto.Outcome_OUTCOME_UNKNOWN, err) }

func mark(o proto.Outcome, err error) error {
	if err == nil {
		return nil
	}
	return &failure{outcome: o, err: err}
}

// OutcomeOf returns the outcome of an error: that of its outermost mark.
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
