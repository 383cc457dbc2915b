package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/solver"
)

// The types of problems, stable for programs to decide by.
const (
	ProblemMalformed      = "urn:coopr:problem:malformed"
	ProblemInvalid        = "urn:coopr:problem:invalid"
	ProblemUnauthorized   = "urn:coopr:problem:unauthorized"
	ProblemForbidden      = "urn:coopr:problem:forbidden"
	ProblemNotFound       = "urn:coopr:problem:not-found"
	ProblemMethod         = "urn:coopr:problem:method-not-allowed"
	ProblemConflict       = "urn:coopr:problem:conflict"
	ProblemQuota          = "urn:coopr:problem:quota"
	ProblemUnsolvable     = "urn:coopr:problem:unsolvable"
	ProblemTooLarge       = "urn:coopr:problem:too-large"
	ProblemTimeout        = "urn:coopr:problem:timeout"
	ProblemNoLeader       = "urn:coopr:problem:no-leader"
	ProblemUnknownOutcome = "urn:coopr:problem:unknown-outcome"
	ProblemBusy           = "urn:coopr:problem:busy"
	ProblemTooMany        = "urn:coopr:problem:too-many-runs"
	ProblemNoMajority     = "urn:coopr:problem:no-majority"
	ProblemInternal       = "urn:coopr:problem:internal"
)

const (
	problemContentType     = "application/problem+json"
	retryAfterSeconds      = "1"
	unknownOutcomeAdvice   = "the request may or may not have been carried out: repeat it with the same Coopr-Request-Id, it is done once"
	noLeaderAdvice         = "the mesh has no leader at the moment: try again shortly"
	maxFaultsInOneDocument = 1000
)

// Problem is the body of every answer that is not a success (RFC 9457).
type Problem struct {
	Type   string       `json:"type" example:"urn:coopr:problem:invalid" doc:"What sort of problem this is; stable"`
	Title  string       `json:"title" doc:"The sort of problem in words"`
	Status int          `json:"status" doc:"The HTTP status"`
	Detail string       `json:"detail,omitempty" doc:"What happened, to what, and what to do next"`
	Errors model.Faults `json:"errors,omitempty" doc:"All faults of the input, each with its path"`
	Hints  []string     `json:"hints,omitempty" doc:"Where no layout exists: what would help, as far as that was cheap to find"`
}

// Error gives the detail.
func (p *Problem) Error() string {
	if p.Detail == "" {
		return p.Title
	}
	return p.Detail
}

// GetStatus gives the HTTP status.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType gives the media type of problem documents.
func (p *Problem) ContentType(string) string { return problemContentType }

var problemTitles = map[string]string{
	ProblemMalformed:      "The body cannot be read",
	ProblemInvalid:        "The input has faults",
	ProblemUnauthorized:   "No valid token",
	ProblemForbidden:      "Not allowed",
	ProblemNotFound:       "Not found",
	ProblemMethod:         "Method not allowed",
	ProblemConflict:       "Conflict with the present state",
	ProblemQuota:          "The tenant has no room for it",
	ProblemUnsolvable:     "No layout exists",
	ProblemTooLarge:       "The body is too large",
	ProblemTimeout:        "It took too long",
	ProblemNoLeader:       "The mesh has no leader",
	ProblemUnknownOutcome: "The outcome is unknown",
	ProblemBusy:           "Too many wait already",
	ProblemTooMany:        "Too many runs",
	ProblemNoMajority:     "Too few voters have it",
	ProblemInternal:       "Something went wrong inside",
}

func problem(status int, typ, detail string) *Problem {
	return &Problem{Type: typ, Title: problemTitles[typ], Status: status, Detail: detail}
}

func notFound(format string, args ...any) *Problem {
	return problem(http.StatusNotFound, ProblemNotFound, fmt.Sprintf(format, args...))
}

func forbidden(format string, args ...any) *Problem {
	return problem(http.StatusForbidden, ProblemForbidden, fmt.Sprintf(format, args...))
}

func invalid(faults model.Faults) *Problem {
	p := problem(http.StatusUnprocessableEntity, ProblemInvalid, "")
	if len(faults) > maxFaultsInOneDocument {
		faults = faults[:maxFaultsInOneDocument:maxFaultsInOneDocument]
	}
	p.Errors = faults
	switch len(faults) {
	case 0:
	case 1:
		p.Detail = faults[0].Error()
	default:
		p.Detail = fmt.Sprintf("%d faults; the first: %s", len(faults), faults[0])
	}
	return p
}

func malformed(faults model.Faults) *Problem {
	p := invalid(faults)
	p.Type, p.Title, p.Status = ProblemMalformed, problemTitles[ProblemMalformed], http.StatusBadRequest
	return p
}

// problemOf says what to answer to an error. Errors that are nobody's fault
// but ours keep their text for the log: the answer does not have it.
func problemOf(err error) *Problem {
	var p *Problem
	var faults model.Faults
	var fault *model.Fault
	var unsolvable *solver.Unsolvable
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &faults):
		return invalid(faults)
	case errors.As(err, &fault):
		return invalid(model.Faults{fault})
	case errors.As(err, &unsolvable):
		p := problem(http.StatusUnprocessableEntity, ProblemUnsolvable, err.Error())
		for _, c := range unsolvable.Conflict {
			p.Errors.Add(c.Path, c.Words)
		}
		p.Hints = unsolvable.Hints
		return p
	case errors.Is(err, ErrUnknownOutcome):
		return problem(http.StatusServiceUnavailable, ProblemUnknownOutcome, join(err, ErrUnknownOutcome, unknownOutcomeAdvice))
	case errors.Is(err, ErrNoLeader):
		return problem(http.StatusServiceUnavailable, ProblemNoLeader, join(err, ErrNoLeader, noLeaderAdvice))
	case errors.Is(err, ErrNoMajority):
		return problem(http.StatusServiceUnavailable, ProblemNoMajority, told(err, ErrNoMajority)+": nothing was changed; try again when they are back")
	case errors.Is(err, ErrTooLarge):
		return problem(http.StatusRequestEntityTooLarge, ProblemTooLarge, told(err, ErrTooLarge))
	case errors.Is(err, ErrNotFound):
		return problem(http.StatusNotFound, ProblemNotFound, told(err, ErrNotFound))
	case errors.Is(err, ErrQuota):
		return problem(http.StatusConflict, ProblemQuota, told(err, ErrQuota))
	case errors.Is(err, ErrConflict):
		return problem(http.StatusConflict, ProblemConflict, told(err, ErrConflict))
	case errors.Is(err, ErrForbidden):
		return problem(http.StatusForbidden, ProblemForbidden, told(err, ErrForbidden))
	case errors.Is(err, ErrUnauthorized):
		return problem(http.StatusUnauthorized, ProblemUnauthorized, told(err, ErrUnauthorized))
	case errors.Is(err, solver.ErrBudget):
		return problem(http.StatusUnprocessableEntity, ProblemUnsolvable, err.Error())
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return problem(http.StatusServiceUnavailable, ProblemTimeout, "the request ended before there was an answer: try again")
	}
	return problem(http.StatusInternalServerError, ProblemInternal, "an internal error: the agent's log has its cause")
}

// told gives an error's text without the sentinel before it: the problem's
// type and title say that already.
func told(err, sentinel error) string {
	text, found := err.Error(), true
	for found { // the state's sentinel may say the same word
		text, found = strings.CutPrefix(text, sentinel.Error()+": ")
	}
	return text
}

// join gives what the error says beyond its sentinel, and the advice.
func join(err, sentinel error, advice string) string {
	if err == sentinel {
		return advice
	}
	return told(err, sentinel) + ": " + advice
}

// writeProblem answers outside of huma's handlers.
func writeProblem(w http.ResponseWriter, p *Problem) {
	h := w.Header()
	for _, name := range []string{"Content-Length", "Content-Encoding", "Etag", "Cache-Control"} {
		h.Del(name)
	}
	h.Set("Content-Type", problemContentType)
	problemHeaders(p, h.Set)
	w.WriteHeader(p.Status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(p) // the client is gone if this fails
}

// problemHeaders sets the headers that some statuses need.
func problemHeaders(p *Problem, set func(name, value string)) {
	switch p.Status {
	case http.StatusServiceUnavailable:
		set("Retry-After", retryAfterSeconds)
	case http.StatusUnauthorized:
		set("WWW-Authenticate", `Bearer realm="coopr"`)
	}
}

// transformProblem turns the errors that huma finds itself into problems of
// ours. It is a huma.Transformer.
func transformProblem(ctx huma.Context, _ string, v any) (any, error) {
	switch e := v.(type) {
	case *Problem:
		problemHeaders(e, ctx.SetHeader)
		return e, nil
	case *huma.ErrorModel:
		p := problemOfModel(e)
		if err := noteOf(ctx.Context()).body; err != nil {
			p = bodyProblem(err)
			ctx.SetStatus(p.Status)
		}
		problemHeaders(p, ctx.SetHeader)
		return p, nil
	}
	return v, nil
}

func problemOfModel(e *huma.ErrorModel) *Problem {
	typ := ProblemInvalid
	switch {
	case e.Status == http.StatusBadRequest:
		typ = ProblemMalformed
	case e.Status >= 500:
		return problem(e.Status, ProblemInternal, "an internal error: the agent's log has its cause")
	}
	var faults model.Faults
	for _, d := range e.Errors {
		if d != nil {
			faults.Add(strings.TrimPrefix(d.Location, "body."), d.Message)
		}
	}
	p := invalid(faults)
	p.Type, p.Title, p.Status = typ, problemTitles[typ], e.Status
	if p.Detail == "" {
		p.Detail = e.Detail
	}
	return p
}
