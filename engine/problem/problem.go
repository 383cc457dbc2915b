// Package problem has the errors that all parts of this project share: an error has a code,
// by which programs decide, and a message, which people read. The code travels from the
// replicated state through the HTTP API to the client. No text of an error of ours is ever
// parsed; testing/house lists the few libraries whose errors have to be read as text.
//
// A code is an error itself, so that errors.Is(err, problem.NotFound) reports whether err,
// or an error that it wraps, has that code.
package problem

import (
	"errors"
	"fmt"
)

// Code is the kind of a problem. Its text is stable: it is a part of the HTTP API.
type Code string

// The codes.
const (
	// Malformed is a request that cannot be read.
	Malformed Code = "malformed"
	// Invalid is input with faults; model.Faults has this code.
	Invalid Code = "invalid"
	// Unauthorized is a request without a valid token.
	Unauthorized Code = "unauthorized"
	// Forbidden is a request that the caller's role does not allow.
	Forbidden Code = "forbidden"
	// NotFound is a request about something that does not exist.
	NotFound Code = "not-found"
	// Method is an HTTP method that the resource does not support.
	Method Code = "method-not-allowed"
	// Conflict is a request that the present state does not allow.
	Conflict Code = "conflict"
	// Stale is a change that was prepared from a state that has changed since. The
	// caller prepares it again. To users it is a conflict.
	Stale Code = "stale"
	// Refused is an order about a plan that changes nothing. Only the routes of the
	// DC/OS SDK answer with it; elsewhere it is a conflict.
	Refused Code = "refused"
	// Quota is a request that exceeds a limit of the tenant.
	Quota Code = "quota"
	// Throttled is a request of somebody who makes too many at a time. It may succeed later.
	Throttled Code = "throttled"
	// TooMany is a run that was rejected because a limit on runs is reached. The run is
	// kept, with the status rejected.
	TooMany Code = "too-many-runs"
	// Unsolvable is a cluster without a layout; solver.Unsolvable has this code.
	Unsolvable Code = "unsolvable"
	// TooLarge is content or a request that exceeds a size limit.
	TooLarge Code = "too-large"
	// Timeout is a request that ended before there was an answer.
	Timeout Code = "timeout"
	// NoLeader is a request that needs the leader when none can be reached. Nothing was done.
	NoLeader Code = "no-leader"
	// UnknownOutcome is a write that may or may not have been carried out. Repeating it
	// with the same request id is safe.
	UnknownOutcome Code = "unknown-outcome"
	// NoMajority is content that could not be stored on a majority of the voters. Nothing
	// was changed.
	NoMajority Code = "no-majority"
	// Busy is a request that was turned away because too many are waiting.
	Busy Code = "busy"
	// Unsupported is a command or a record that this build does not understand. To users
	// it is an internal error.
	Unsupported Code = "unsupported"
	// Internal is every other error.
	Internal Code = "internal"
)

// Error returns the code's text, so that a code can be returned and matched as an error.
func (c Code) Error() string { return string(c) }

// ProblemCode returns the code itself.
func (c Code) ProblemCode() Code { return c }

// Coded is an error that has a code.
type Coded interface {
	error
	ProblemCode() Code
}

// CodeOf returns the code of the first error in err's tree that has one, Internal where
// none has, and "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	var c Coded
	if errors.As(err, &c) {
		return c.ProblemCode()
	}
	return Internal
}

// Error is an error with a code.
type Error struct {
	Code Code
	// Message describes what failed, on what, why, and what to do about it.
	Message string
	// Cause is the error that Message is about; may be nil. Message includes its text.
	Cause error
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// ProblemCode returns the code.
func (e *Error) ProblemCode() Code { return e.Code }

// Is reports whether target is the error's code.
func (e *Error) Is(target error) bool {
	c, ok := target.(Code)
	return ok && c == e.Code
}

// New returns an error with a code. The format may wrap errors with %w, as in fmt.Errorf.
func New(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	e := &Error{Code: code, Message: err.Error()}
	switch err.(type) { //nolint:errorlint // the question is whether fmt.Errorf itself wrapped an error
	case interface{ Unwrap() error }, interface{ Unwrap() []error }:
		e.Cause = err
	}
	return e
}

// Wrap returns err with a code in place of its own, and nil for nil. The text stays.
func Wrap(code Code, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Code: code, Message: err.Error(), Cause: err}
}
