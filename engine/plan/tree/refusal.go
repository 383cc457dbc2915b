package tree

import "github.com/coopr/coopr/engine/problem"

// Refusal is the error for an operator's order that changes nothing in a plan: the plan has no
// such part, the order was given already, or the plan does not allow it.
type Refusal struct {
	// Code is the HTTP status that the DC/OS SDK answers with, such as CodeAlready.
	Code int
	// Message is the answer's text.
	Message string
}

// Error returns the message.
func (r *Refusal) Error() string { return r.Message }

// ProblemCode returns problem.Refused.
func (r *Refusal) ProblemCode() problem.Code { return problem.Refused }
