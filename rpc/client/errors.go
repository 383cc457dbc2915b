package client

import (
	"errors"
	"fmt"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
)

// Error is a problem that the mesh answered with.
type Error struct {
	// Type is one of the problem types of rpc/api, or "" where the answer was
	// no problem document.
	Type   string
	Title  string
	Status int
	Detail string
	Faults model.Faults
	// Hints say what would help where no layout exists.
	Hints []string
}

// Error gives what happened, with every fault and hint on a line of its own.
func (e *Error) Error() string {
	text := e.what()
	for _, h := range e.Hints {
		if !strings.Contains(text, h) { // the detail may have told it
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

// ErrUnreachable says that no agent could be reached, or none that knows a
// leader, for as long as the client tried.
var ErrUnreachable = errors.New("the mesh cannot be reached")

// ErrUnauthorized and the others stand for their sort of Error with errors.Is.
var (
	ErrUnauthorized = errors.New("unauthorized")
	ErrForbidden    = errors.New("forbidden")
	ErrNotFound     = errors.New("not found")
	ErrConflict     = errors.New("conflict")
	ErrInvalid      = errors.New("invalid")
)

// Is tells the sort of the problem.
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
		return e.Type == api.ProblemNoLeader
	}
	return false
}

// passing says whether the same request may succeed a moment later.
func (e *Error) passing() bool {
	return e.Type == api.ProblemNoLeader || e.Type == api.ProblemUnknownOutcome || e.Type == api.ProblemBusy || e.Type == "" && (e.Status == 502 || e.Status == 503 || e.Status == 504)
}
