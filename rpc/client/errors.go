package client

import (
	"errors"
	"fmt"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/api"
)

// Error is an answer of the mesh that is not a success.
type Error struct {
	// Type is one of the problem types of rpc/api, or "" if the answer was not a problem document.
	Type   string
	Title  string
	Status int
	Detail string
	Faults model.Faults
	// Hints say what would help if no layout exists.
	Hints []string
	// Quorum is set if there is no leader because too few voters are there.
	Quorum *api.Quorum
}

// Error returns what happened, with every fault and hint on a line of its own.
func (e *Error) Error() string {
	text := e.what()
	for _, h := range e.Hints {
		if !strings.Contains(text, h) { // the detail may have it already
			text += "\n  what would help: " + h
		}
	}
	return text
}

func (e *Error) what() string {
	text := e.Detail
	if text == "" {
		text = e.Title
	}
	if text == "" {
		text = fmt.Sprintf("the mesh answered with status %d", e.Status)
	}
	if len(e.Faults) < 2 {
		return text
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s:", strings.ToLower(e.Title[:1])+e.Title[1:])
	for _, f := range e.Faults {
		b.WriteString("\n  " + f.Error())
	}
	return b.String()
}

// ErrUnreachable is returned if no agent could be reached, or none that knows a leader, for as
// long as the client tried.
var ErrUnreachable = errors.New("the mesh cannot be reached")

// The codes that callers need most often, for errors.Is. An Error also matches the other codes of
// engine/problem. ErrConflict matches every answer with status 409, and ErrInvalid every answer
// that rejects the input.
const (
	ErrUnauthorized = problem.Unauthorized
	ErrForbidden    = problem.Forbidden
	ErrNotFound     = problem.NotFound
	ErrConflict     = problem.Conflict
	ErrInvalid      = problem.Invalid
	ErrQuota        = problem.Quota
)

// ProblemCode returns the code in the problem document, and Internal where there was none.
func (e *Error) ProblemCode() problem.Code {
	if code, ok := api.CodeOf(e.Type); ok {
		return code
	}
	return problem.Internal
}

// Is reports whether target is the error's code, or a group of codes that it belongs to.
func (e *Error) Is(target error) bool {
	switch target {
	case ErrUnauthorized:
		return e.Status == 401
	case ErrForbidden:
		return e.Status == 403
	case ErrNotFound:
		return e.Status == 404
	case ErrConflict:
		return e.Status == 409
	case ErrInvalid:
		return e.Status == 400 || e.Status == 413 || e.Status == 415 || e.Status == 422
	case ErrUnreachable:
		return e.ProblemCode() == problem.NoLeader
	}
	return target == e.ProblemCode()
}

// passing reports whether the same request may succeed a moment later.
func (e *Error) passing() bool {
	switch e.ProblemCode() {
	case problem.NoLeader, problem.UnknownOutcome, problem.Busy, problem.Throttled:
		return true
	}
	return e.Type == "" && (e.Status == 502 || e.Status == 503 || e.Status == 504)
}
