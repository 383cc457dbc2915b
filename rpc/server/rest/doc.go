// Package rest is what the routes of the HTTP API share: how they are registered, how a request
// reaches its handler, and the services that the handlers call.
//
// A handler is a plain function from typed input to typed output. The OpenAPI
// document is generated from those types (openapi.go). A request passes, from
// the outside in: the access log, metrics and panic guard (observe.go), the
// limits on its size and duration (limits.go), the choice of the agent that
// answers it (forward.go), authentication (auth.go), and the decision whether
// the caller may do it (decide.go). Each route's right is in rights.go.
package rest
