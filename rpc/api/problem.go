package api

import (
	"github.com/coopr/coopr/engine/model"
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

// ProblemContentType is the media type of problem documents.
const ProblemContentType = "application/problem+json"

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
func (p *Problem) ContentType(string) string { return ProblemContentType }
