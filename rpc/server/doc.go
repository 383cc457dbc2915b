// Package server is the HTTP API that every agent serves under /v1.
//
// The routes are in a package for each noun. Its function Register adds them to a
// rest.Server, which carries requests to the handlers and describes the routes in the OpenAPI
// document. The types on the wire are those of rpc/api.
package server
