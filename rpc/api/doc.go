// Package api is the HTTP API that every agent answers under /v1.
package api
