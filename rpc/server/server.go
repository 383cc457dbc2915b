package server

import (
	"encoding/json"
	"errors"
	"net/http"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/coopr/coopr/rpc/console"
	"github.com/coopr/coopr/rpc/server/access"
	"github.com/coopr/coopr/rpc/server/clusters"
	"github.com/coopr/coopr/rpc/server/definitions"
	"github.com/coopr/coopr/rpc/server/events"
	"github.com/coopr/coopr/rpc/server/mesh"
	"github.com/coopr/coopr/rpc/server/plans"
	"github.com/coopr/coopr/rpc/server/resources"
	"github.com/coopr/coopr/rpc/server/rest"
	"github.com/coopr/coopr/rpc/server/runs"
	"github.com/coopr/coopr/rpc/server/search"
	"github.com/coopr/coopr/rpc/server/sites"
)

// Config configures the API. Services is required.
type Config = rest.Config

// New returns the handler of the API. Serve it with NewServer, which adds limits. The routes are registered for the first
// request, as they cost more than the rest of an agent's start.
func New(cfg Config) (http.Handler, error) {
	if cfg.Services.State == nil {
		return nil, errors.New("HTTP API: Config.Services is required")
	}
	s, err := rest.New(cfg)
	if err != nil {
		return nil, err
	}
	handler := sync.OnceValue(func() http.Handler {
		registerRoutes(s)
		return s.Handler()
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler().ServeHTTP(w, r) }), nil
}

// withRoutes returns a server with the routes of all nouns.
func withRoutes(cfg Config) (*rest.Server, error) {
	s, err := rest.New(cfg)
	if err != nil {
		return nil, err
	}
	registerRoutes(s)
	return s, nil
}

// registerRoutes registers the routes of all nouns.
func registerRoutes(s *rest.Server) {
	for _, register := range []func(*rest.Server){
		access.Register,
		clusters.Register,
		definitions.Register,
		events.Register,
		mesh.Register,
		plans.Register,
		resources.Register,
		runs.Register,
		search.Register,
		sites.Register,
	} {
		register(s)
	}
	rest.Console(s, console.Files())
}

//go:generate go run ./writedocument ../../docs/openapi.json ../../docs/permissions.md

// Document returns the OpenAPI 3.1 document of the API as indented JSON, generated from the
// handlers' types. docs/openapi.json has a copy.
func Document() ([]byte, error) {
	s, err := withRoutes(Config{})
	if err != nil {
		return nil, err
	}
	b, err := json.MarshalIndent(s.OpenAPI(), "", "  ")
	if err != nil {
		return nil, err
	}
	return append(b, '\n'), nil
}

// operations returns the names of the routes of a path.
func operations(item *huma.PathItem) []string {
	var out []string
	for _, op := range []*huma.Operation{item.Get, item.Put, item.Post, item.Delete} {
		if op != nil {
			out = append(out, op.OperationID)
		}
	}
	return out
}
