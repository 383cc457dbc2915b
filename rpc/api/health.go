package api

import "net/http"

// Health is the answer of an agent that works.
type Health struct {
	Status string `json:"status" example:"ok"`
}

// Readiness is the answer of an agent to the question whether it can serve.
type Readiness struct {
	Ready   bool     `json:"ready"`
	Reasons []string `json:"reasons,omitempty" doc:"Why the agent cannot serve, in a few words each"`
}

// HTTPStatus is 200 for an agent that is ready, and 503 otherwise.
func (r Readiness) HTTPStatus() int {
	if r.Ready {
		return http.StatusOK
	}
	return http.StatusServiceUnavailable
}
