// Package server is the HTTP API that every agent serves under /v1.
//
// A handler is a plain function from typed input to typed output. The OpenAPI
// document is generated from those types (openapi.go). A request passes, from
// the outside in: the access log, metrics and panic guard (observe.go), the
// limits on its size and duration (limits.go), the choice of the agent that
// answers it (forward.go), and authentication (auth.go). The types on the wire
// are those of rpc/api.
package server
