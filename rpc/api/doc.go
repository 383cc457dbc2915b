// Package api is the HTTP API that every agent answers under /v1.
//
// A handler is a plain function from typed input to typed output; the OpenAPI
// document is generated from those types (openapi.go). Around the handlers
// stand, from the outside in: the log, metrics and panic guard (observe.go),
// limits (limits.go), the question which agent answers (forward.go) and who is
// asking (auth.go). Everything an agent knows or does is behind Backend.
package api
