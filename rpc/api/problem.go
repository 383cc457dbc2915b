package api

import (
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
)

// The types of problem documents. They are stable, so that programs can decide by them.
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
	ProblemThrottled      = "urn:coopr:problem:throttled"
	ProblemBusy           = "urn:coopr:problem:busy"
	ProblemTooMany        = "urn:coopr:problem:too-many-runs"
	ProblemNoMajority     = "urn:coopr:problem:no-majority"
	ProblemInternal       = "urn:coopr:problem:internal"
)

// typePrefix comes before the code in the type of a problem document.
const typePrefix = "urn:coopr:problem:"

// CodeOf returns the code in the type of a problem document. ok is false if the type is not one of
// this API.
func CodeOf(typ string) (problem.Code, bool) {
	code, ok := strings.CutPrefix(typ, typePrefix)
	return problem.Code(code), ok
}

// ProblemContentType is the media type of problem documents.
const ProblemContentType = "application/problem+json"

// Problem is the body of every answer that is not a success (RFC 9457).
type Problem struct {
	Type   string       `json:"type" example:"urn:coopr:problem:invalid" doc:"The kind of the problem; stable"`
	Title  string       `json:"title" doc:"The kind of the problem in words"`
	Status int          `json:"status" doc:"The HTTP status"`
	Detail string       `json:"detail,omitempty" doc:"What happened, to what, and what to do about it"`
	Errors model.Faults `json:"errors,omitempty" doc:"All faults of the input, each with its path"`
	// Quorum is set if no leader was found because too few voters are there. Callers without a token do not see who is missing.
	Quorum *Quorum `json:"quorum,omitempty" doc:"If too few voters are there to have a leader: how many, and which are missing"`
	// RetryAfter is the number of seconds in the header Retry-After; 0: the status decides.
	RetryAfter int `json:"-"`

	Hints []string `json:"hints,omitempty" doc:"If no layout exists: changes of the request that allow one, as far as they were cheap to find"`
}

// Error returns the detail, or the title where there is none.
func (p *Problem) Error() string {
	if p.Detail == "" {
		return p.Title
	}
	return p.Detail
}

// ProblemCode returns the code in the document's type.
func (p *Problem) ProblemCode() problem.Code {
	if code, ok := CodeOf(p.Type); ok {
		return code
	}
	return problem.Internal
}

// Is reports whether target is the document's code.
func (p *Problem) Is(target error) bool { return target == p.ProblemCode() }

// GetStatus returns the HTTP status.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType returns the media type of problem documents.
func (p *Problem) ContentType(string) string { return ProblemContentType }
