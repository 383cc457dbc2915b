package rest

import (
	"encoding/json"
	"io"
	"net/http"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/schema"
)

// writeAnswer encodes an answer. Whatever it is about, it never has the name of an encrypted value.
func writeAnswer(w io.Writer, v any) error { return writeBody(unnamed{w}, v) }

// unnamed writes texts with Redacted in place of the names of encrypted values. A name must not be divided among two calls; the encoder of
// JSON makes one.
type unnamed struct{ w io.Writer }

func (u unnamed) Write(p []byte) (int, error) {
	if _, err := u.w.Write(model.HideSealedRefs(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}

func humaConfig() huma.Config {
	registry := huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
	schema.Register(registry)
	json := huma.Format{Marshal: writeAnswer, Unmarshal: readBody}
	yaml := huma.Format{Marshal: writeAnswer, Unmarshal: readBody}
	return huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title:   "Coopr",
				Version: "1",
				Description: "Every agent of a mesh serves this API. An agent that cannot answer a request forwards it to the leader.\n\n" +
					"Send a token as `Authorization: Bearer TOKEN`. A write with a `" + api.HeaderRequest + "` " +
					"is carried out once, however often it is sent within the day after that (the agents' setting `retention.requests`). " +
					"Answers to reads have the index of the state in `" + api.HeaderIndex + "`; with `index=N` a read waits until the state is newer. " +
					"Lists take `limit`, `cursor`, `sort`, `filter`, `count` and `fields`: an answer that is not the last page has `" + api.HeaderNext +
					"`, the `cursor` of the next one. " +
					"While no leader can be reached, a request waits for 600 ms, or as long as `" + api.HeaderHold + ": 5s` says, at most a minute. " +
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

// OpenAPI returns the document of the routes that are registered, without the schemas that the
// library adds.
func (s *Server) OpenAPI() *huma.OpenAPI {
	doc := s.api.OpenAPI()
	delete(doc.Components.Schemas.Map(), "ErrorModel")
	delete(doc.Components.Schemas.Map(), "ErrorDetail")
	return doc
}

// serveDocument serves the document. The document is created for the first request, so that an
// agent starts faster.
func (s *Server) serveDocument() {
	serve := func(route, contentType string, encode func() ([]byte, error)) {
		body := sync.OnceValues(encode)
		s.mux.HandleFunc("GET "+route, s.bounded(func(w http.ResponseWriter, r *http.Request) {
			noteOf(r.Context()).route = "openapi"
			b, err := body()
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			w.Header().Set("Content-Type", contentType)
			_, _ = w.Write(b)
		}))
	}
	doc := s.OpenAPI()
	serve("/v1/openapi.json", "application/openapi+json", func() ([]byte, error) { return json.Marshal(doc) })
	serve("/v1/openapi.yaml", "application/openapi+yaml", doc.YAML)
}
