package server

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
	"github.com/coopr/coopr/rpc/api"
)

const (
	retryAfterSeconds      = "1"
	unknownOutcomeAdvice   = "the request may or may not have been carried out: repeat it with the same Coopr-Request-Id, it is done once"
	noLeaderAdvice         = "the mesh has no leader at the moment: try again shortly"
	maxFaultsInOneDocument = 1000
)

var problemTitles = map[string]string{
	api.ProblemMalformed:      "The body cannot be read",
	api.ProblemInvalid:        "The input has faults",
	api.ProblemUnauthorized:   "No valid token",
	api.ProblemForbidden:      "Not allowed",
	api.ProblemNotFound:       "Not found",
	api.ProblemMethod:         "Method not allowed",
	api.ProblemConflict:       "Conflict with the present state",
	api.ProblemQuota:          "The tenant has no room for it",
	api.ProblemUnsolvable:     "No layout exists",
	api.ProblemTooLarge:       "The body is too large",
	api.ProblemTimeout:        "It took too long",
	api.ProblemNoLeader:       "The mesh has no leader",
	api.ProblemUnknownOutcome: "The outcome is unknown",
	api.ProblemBusy:           "Too many wait already",
	api.ProblemTooMany:        "Too many runs",
	api.ProblemNoMajority:     "Too few voters have it",
	api.ProblemInternal:       "Something went wrong inside",
}

func problem(status int, typ, detail string) *api.Problem {
	return &api.Problem{Type: typ, Title: problemTitles[typ], Status: status, Detail: detail}
}

func notFound(format string, args ...any) *api.Problem {
	return problem(http.StatusNotFound, api.ProblemNotFound, fmt.Sprintf(format, args...))
}

func forbidden(format string, args ...any) *api.Problem {
	return problem(http.StatusForbidden, api.ProblemForbidden, fmt.Sprintf(format, args...))
}

func invalid(faults model.Faults) *api.Problem {
	p := problem(http.StatusUnprocessableEntity, api.ProblemInvalid, "")
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

func malformed(faults model.Faults) *api.Problem {
	p := invalid(faults)
	p.Type, p.Title, p.Status = api.ProblemMalformed, problemTitles[api.ProblemMalformed], http.StatusBadRequest
	return p
}

// problemOf says what to answer to an error. Errors that are nobody's fault
// but ours keep their text for the log: the answer does not have it.
func problemOf(err error) *api.Problem {
	var p *api.Problem
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
		p := problem(http.StatusUnprocessableEntity, api.ProblemUnsolvable, err.Error())
		for _, c := range unsolvable.Conflict {
			p.Errors.Add(c.Path, c.Words)
		}
		p.Hints = unsolvable.Hints
		return p
	case errors.Is(err, api.ErrUnknownOutcome):
		return problem(http.StatusServiceUnavailable, api.ProblemUnknownOutcome, join(err, api.ErrUnknownOutcome, unknownOutcomeAdvice))
	case errors.Is(err, api.ErrNoLeader):
		return problem(http.StatusServiceUnavailable, api.ProblemNoLeader, join(err, api.ErrNoLeader, noLeaderAdvice))
	case errors.Is(err, api.ErrNoMajority):
		return problem(http.StatusServiceUnavailable, api.ProblemNoMajority, told(err, api.ErrNoMajority)+": nothing was changed; try again when they are back")
	case errors.Is(err, api.ErrTooLarge):
		return problem(http.StatusRequestEntityTooLarge, api.ProblemTooLarge, told(err, api.ErrTooLarge))
	case errors.Is(err, api.ErrNotFound):
		return problem(http.StatusNotFound, api.ProblemNotFound, told(err, api.ErrNotFound))
	case errors.Is(err, api.ErrQuota):
		return problem(http.StatusConflict, api.ProblemQuota, told(err, api.ErrQuota))
	case errors.Is(err, api.ErrConflict):
		return problem(http.StatusConflict, api.ProblemConflict, told(err, api.ErrConflict))
	case errors.Is(err, api.ErrForbidden):
		return problem(http.StatusForbidden, api.ProblemForbidden, told(err, api.ErrForbidden))
	case errors.Is(err, api.ErrUnauthorized):
		return problem(http.StatusUnauthorized, api.ProblemUnauthorized, told(err, api.ErrUnauthorized))
	case errors.Is(err, solver.ErrBudget):
		return problem(http.StatusUnprocessableEntity, api.ProblemUnsolvable, err.Error())
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return problem(http.StatusServiceUnavailable, api.ProblemTimeout, "the request ended before there was an answer: try again")
	}
	return problem(http.StatusInternalServerError, api.ProblemInternal, "an internal error: the agent's log has its cause")
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
func writeProblem(w http.ResponseWriter, p *api.Problem) {
	h := w.Header()
	for _, name := range []string{"Content-Length", "Content-Encoding", "Etag", "Cache-Control"} {
		h.Del(name)
	}
	h.Set("Content-Type", api.ProblemContentType)
	problemHeaders(p, h.Set)
	w.WriteHeader(p.Status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(p) // the client is gone if this fails
}

// problemHeaders sets the headers that some statuses need.
func problemHeaders(p *api.Problem, set func(name, value string)) {
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
	case *api.Problem:
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

func problemOfModel(e *huma.ErrorModel) *api.Problem {
	typ := api.ProblemInvalid
	switch {
	case e.Status == http.StatusBadRequest:
		typ = api.ProblemMalformed
	case e.Status >= 500:
		return problem(e.Status, api.ProblemInternal, "an internal error: the agent's log has its cause")
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
