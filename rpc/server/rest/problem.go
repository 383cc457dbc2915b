package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/solver"
	"github.com/coopr/coopr/internal/words"
	"github.com/coopr/coopr/rpc/api"
)

const (
	retryAfterSeconds    = "1"
	unknownOutcomeAdvice = "the request may or may not have been carried out: repeat it with the same Coopr-Request-Id, it is done once"
	noLeaderAdvice       = "the mesh has no leader at the moment: try again shortly, or ask another agent"
	noLeaderFound        = "agent %s reaches no leader of the mesh: try again shortly, or ask another agent; " +
		"a request with the header Coopr-Hold, such as 5s, waits longer"
	tooFewAnswer = "agent %s reaches no leader, and too few voters answer to have one: ask another agent"
	tooFewVoters = "agent %s reaches no leader: %d of %d voters are missing (%s), and %d more must be back before there can be one: " +
		"start them, or ask another agent; reads work with consistency=stale"
	maxFaultsInOneDocument = 1000
)

// kind holds the fields that are the same in all problem documents with the same code.
type kind struct {
	status int
	typ    string
	title  string
}

// kinds has the HTTP status and the problem type of every code. Users see stale and refused
// requests as conflicts, and Unsupported as an internal error.
var kinds = map[problem.Code]kind{
	problem.Malformed:      {http.StatusBadRequest, api.ProblemMalformed, "The body cannot be read"},
	problem.Invalid:        {http.StatusUnprocessableEntity, api.ProblemInvalid, "The input has faults"},
	problem.Unauthorized:   {http.StatusUnauthorized, api.ProblemUnauthorized, "No valid token"},
	problem.Forbidden:      {http.StatusForbidden, api.ProblemForbidden, "Not allowed"},
	problem.NotFound:       {http.StatusNotFound, api.ProblemNotFound, "Not found"},
	problem.Method:         {http.StatusMethodNotAllowed, api.ProblemMethod, "Method not allowed"},
	problem.Conflict:       {http.StatusConflict, api.ProblemConflict, "Conflict with the present state"},
	problem.Stale:          {http.StatusConflict, api.ProblemConflict, "Conflict with the present state"},
	problem.Refused:        {http.StatusConflict, api.ProblemConflict, "Conflict with the present state"},
	problem.Throttled:      {http.StatusTooManyRequests, api.ProblemThrottled, "Too much at a time"},
	problem.Quota:          {http.StatusTooManyRequests, api.ProblemQuota, "The tenant has no room for it"},
	problem.TooMany:        {http.StatusTooManyRequests, api.ProblemTooMany, "Too many runs"},
	problem.Unsolvable:     {http.StatusUnprocessableEntity, api.ProblemUnsolvable, "No layout exists"},
	problem.TooLarge:       {http.StatusRequestEntityTooLarge, api.ProblemTooLarge, "The body is too large"},
	problem.Timeout:        {http.StatusServiceUnavailable, api.ProblemTimeout, "It took too long"},
	problem.NoLeader:       {http.StatusServiceUnavailable, api.ProblemNoLeader, "The mesh has no leader"},
	problem.UnknownOutcome: {http.StatusServiceUnavailable, api.ProblemUnknownOutcome, "The outcome is unknown"},
	problem.NoMajority:     {http.StatusServiceUnavailable, api.ProblemNoMajority, "Too few voters have it"},
	problem.Busy:           {http.StatusServiceUnavailable, api.ProblemBusy, "Too many wait already"},
	problem.Unsupported:    {http.StatusInternalServerError, api.ProblemInternal, "Internal error"},
	problem.Internal:       {http.StatusInternalServerError, api.ProblemInternal, "Internal error"},
}

// NewProblem returns the problem document of a code.
func NewProblem(code problem.Code, detail string) *api.Problem {
	k := kinds[code]
	return &api.Problem{Type: k.typ, Title: k.title, Status: k.status, Detail: detail}
}

// noLeader returns the problem document of a request for which no leader was found. If too few voters are there, it says
// so, because trying again does not help then. Callers who are known are told which voters are missing.
func (s *Server) noLeader(ctx context.Context, known bool) *api.Problem {
	q := s.Mesh.Quorum(ctx)
	if !q.Lost {
		return NewProblem(problem.NoLeader, fmt.Sprintf(noLeaderFound, s.name))
	}
	if !known {
		p := NewProblem(problem.NoLeader, fmt.Sprintf(tooFewAnswer, s.name))
		p.Quorum = &api.Quorum{Lost: true}
		return p
	}
	p := NewProblem(problem.NoLeader, fmt.Sprintf(tooFewVoters, s.name, len(q.Missing), q.Voters,
		words.And(q.MissingNames(s.clock())), q.Needed-q.Alive))
	p.Quorum = &q
	return p
}

// NotFound returns a problem document of the code problem.NotFound.
func NotFound(format string, args ...any) *api.Problem {
	return NewProblem(problem.NotFound, fmt.Sprintf(format, args...))
}

// Forbidden returns a problem document of the code problem.Forbidden.
func Forbidden(format string, args ...any) *api.Problem {
	return NewProblem(problem.Forbidden, fmt.Sprintf(format, args...))
}

// Invalid returns a problem document with faults of the input.
func Invalid(faults model.Faults) *api.Problem {
	p := NewProblem(problem.Invalid, "")
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

// Malformed returns a problem document for a body that cannot be read.
func Malformed(faults model.Faults) *api.Problem {
	return as(problem.Malformed, Invalid(faults))
}

// as sets the type, the title and the status of p to those of a code, and returns p.
func as(code problem.Code, p *api.Problem) *api.Problem {
	k := kinds[code]
	p.Type, p.Title, p.Status = k.typ, k.title, k.status
	return p
}

// ProblemOf returns the problem document for an error. The text of an internal error goes
// to the log only.
func ProblemOf(err error) *api.Problem {
	var p *api.Problem
	var faults model.Faults
	var fault *model.Fault
	var unsolvable *solver.Unsolvable
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &faults):
		return Invalid(faults)
	case errors.As(err, &fault):
		return Invalid(model.Faults{fault})
	case errors.As(err, &unsolvable):
		p := NewProblem(problem.Unsolvable, err.Error())
		for _, c := range unsolvable.Conflict {
			p.Errors.Add(c.Path, c.Words)
		}
		p.Hints = unsolvable.Hints
		return p
	}
	switch code := problem.CodeOf(err); code {
	case problem.UnknownOutcome:
		return NewProblem(code, advise(err, unknownOutcomeAdvice))
	case problem.NoLeader:
		return NewProblem(code, advise(err, noLeaderAdvice))
	case problem.NoMajority:
		return NewProblem(code, err.Error()+": nothing was changed; try again when they are back")
	case problem.Internal, problem.Unsupported:
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			return NewProblem(problem.Timeout, "the request ended before there was an answer: try again")
		}
		return NewProblem(problem.Internal, "an internal error: the agent's log has its cause")
	default:
		return NewProblem(code, advise(err, ""))
	}
}

// advise returns the text of an error with advice. A code alone has no text.
func advise(err error, advice string) string {
	_, bare := err.(problem.Code) //nolint:errorlint // an error around a code has a text of its own
	switch {
	case bare:
		return advice
	case advice == "":
		return err.Error()
	}
	return err.Error() + ": " + advice
}

// writeProblem writes a problem document outside of huma's handlers.
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
	_ = enc.Encode(p) // fails if the client is gone
}

// problemHeaders sets the headers that some statuses need.
func problemHeaders(p *api.Problem, set func(name, value string)) {
	switch {
	case p.RetryAfter > 0:
		set("Retry-After", strconv.Itoa(p.RetryAfter))
	case p.Status == http.StatusServiceUnavailable:
		set("Retry-After", retryAfterSeconds)
	case p.Status == http.StatusUnauthorized:
		set("WWW-Authenticate", `Bearer realm="coopr"`)
	}
}

// transformProblem converts errors that huma detects itself to problem documents. It is a
// huma.Transformer.
func transformProblem(ctx huma.Context, _ string, v any) (any, error) {
	switch e := v.(type) {
	case *api.Problem:
		problemHeaders(e, ctx.SetHeader)
		return e, nil
	case *huma.ErrorModel:
		p := problemOfModel(e)
		if err := noteOf(ctx.Context()).body; err != nil {
			p = bodyProblem(err)
			problemHeaders(p, ctx.SetHeader) // the status ends the headers
			ctx.SetStatus(p.Status)
			return p, nil
		}
		problemHeaders(p, ctx.SetHeader)
		return p, nil
	}
	return v, nil
}

func problemOfModel(e *huma.ErrorModel) *api.Problem {
	code := problem.Invalid
	switch {
	case e.Status == http.StatusBadRequest:
		code = problem.Malformed
	case e.Status >= 500:
		p := NewProblem(problem.Internal, "an internal error: the agent's log has its cause")
		p.Status = e.Status
		return p
	}
	var faults model.Faults
	for _, d := range e.Errors {
		if d != nil {
			faults.Add(strings.TrimPrefix(d.Location, "body."), d.Message)
		}
	}
	p := as(code, Invalid(faults))
	p.Status = e.Status
	if p.Detail == "" {
		p.Detail = e.Detail
	}
	return p
}
