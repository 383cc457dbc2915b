package server

import (
	"encoding/json"
	"net/http"
	"reflect"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
)

//go:generate go run ./writedocument ../../docs/openapi.json

// Document returns the OpenAPI 3.1 document of the API as indented JSON, generated from the
// handlers' types. docs/openapi.json has a copy.
func Document() ([]byte, error) {
	b, err := json.MarshalIndent(newServer().api.OpenAPI(), "", "  ")
	if err != nil {
		return nil, err
	}
	return append(b, '\n'), nil
}

func humaConfig() huma.Config {
	registry := huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
	aliases(registry)
	json := huma.Format{Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: readBody}
	yaml := huma.Format{Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: readBody}
	return huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title:   "Coopr",
				Version: "1",
				Description: "Every agent of a mesh serves this API. An agent that cannot answer a request forwards it to the leader.\n\n" +
					"Send a token as `Authorization: Bearer TOKEN`. A write with a `" + api.HeaderRequest + "` is carried out once, however often it is sent. " +
					"Answers to reads have the index of the state in `" + api.HeaderIndex + "`; with `index=N` a read waits until the state is newer. " +
					"Errors are problem documents (RFC 9457) whose `type` is stable.",
			},
			Components: &huma.Components{
				Schemas: registry,
				SecuritySchemes: map[string]*huma.SecurityScheme{
					"token": {Type: "http", Scheme: "bearer", Description: "A token of a tenant's user, admin or superadmin."},
				},
			},
			Security: []map[string][]string{{"token": {}}},
		},
		Formats: map[string]huma.Format{
			"application/json": json, "json": json,
			"application/yaml": yaml, "yaml": yaml, "application/x-yaml": yaml, "text/yaml": yaml, "x-yaml": yaml,
			api.ProblemContentType: json,
		},
		DefaultFormat: "application/json",
		Transformers:  []huma.Transformer{transformProblem},
	}
}

// settleDocument removes the schemas that the library adds, and adds the schema of the event stream,
// which no handler's type has.
func (s *server) settleDocument() {
	schemas := s.api.OpenAPI().Components.Schemas
	delete(schemas.Map(), "ErrorModel")
	delete(schemas.Map(), "ErrorDetail")
	event := schemas.Schema(reflect.TypeFor[model.Event](), true, "Event")
	stream := s.api.OpenAPI().Paths["/v1/events"].Get.Responses["200"].Content["text/event-stream"]
	stream.Schema = &huma.Schema{Type: huma.TypeArray, Items: &huma.Schema{
		Type: huma.TypeObject, Description: "One server-sent event",
		Properties: map[string]*huma.Schema{
			"id":    {Type: huma.TypeInteger, Format: "int64", Description: "The index to go on from"},
			"event": {Type: huma.TypeString, Description: "The event's type"},
			"data":  event,
		},
		Required: []string{"event", "data"},
	}}
}

// serveDocument serves the document. The document is created for the first request, so that an
// agent starts faster.
func (s *server) serveDocument() {
	serve := func(route, contentType string, encode func() ([]byte, error)) {
		body := sync.OnceValues(encode)
		s.mux.HandleFunc("GET "+route, func(w http.ResponseWriter, r *http.Request) {
			noteOf(r.Context()).route = "openapi"
			b, err := body()
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			w.Header().Set("Content-Type", contentType)
			_, _ = w.Write(b)
		})
	}
	doc := s.api.OpenAPI()
	serve("/v1/openapi.json", "application/openapi+json", func() ([]byte, error) { return json.Marshal(doc) })
	serve("/v1/openapi.yaml", "application/openapi+yaml", doc.YAML)
}
