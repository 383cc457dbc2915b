package sdklike

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/coopr/coopr/rpc/api"
)

// Handler serves requests on the paths of the DC/OS SDK as the SDK does, and passes on all others.
func Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to, ok := asSDK(r)
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		answer := &sdkWriter{ResponseWriter: w, request: r, path: to.URL.EscapedPath()}
		next.ServeHTTP(answer, to)
		answer.end()
	})
}

// sdkWriter changes answers to requests on the paths of the DC/OS SDK so that the SDK's command-line client shows them. It passes
// every error text through a format function, so that a percent sign is written as a word. It shows the text of some errors only
// if the answer has a Content-Length. Refusals are plain text in place of problem documents.
type sdkWriter struct {
	http.ResponseWriter
	request *http.Request // as the client sent it
	path    string        // of this API
	status  int
	kept    bytes.Buffer
	begun   bool // the answer is passed on as it comes
}

// WriteHeader keeps the answer back if it has to be changed.
func (s *sdkWriter) WriteHeader(status int) {
	if s.status != 0 {
		return
	}
	if s.status = status; !s.keeps() {
		s.begun = true
		s.ResponseWriter.WriteHeader(status)
	}
}

// keeps reports whether the whole answer is kept until it ends: errors, and trees, which have names that the client prints.
func (s *sdkWriter) keeps() bool {
	return s.status >= 400 || s.status == http.StatusAlreadyReported || s.isTree()
}

// isTree reports whether the answer is a plan or pods, which the client prints as a tree.
func (s *sdkWriter) isTree() bool {
	_, what, _ := strings.Cut(strings.TrimPrefix(s.path, "/v1/clusters/"), "/")
	what, _, _ = strings.Cut(what, "/")
	return s.request.Method == http.MethodGet && (what == "plans" || what == "pod")
}

// Write keeps the bytes, or passes them on.
func (s *sdkWriter) Write(p []byte) (int, error) {
	s.WriteHeader(http.StatusOK)
	if s.begun {
		return s.ResponseWriter.Write(p)
	}
	return s.kept.Write(p)
}

// Flush does nothing for an answer that is kept.
func (s *sdkWriter) Flush() {
	if s.begun {
		_ = http.NewResponseController(s.ResponseWriter).Flush() // a writer that cannot flush sends the answer at its end
	}
}

// Unwrap returns the wrapped writer, on which http.ResponseController sets deadlines.
func (s *sdkWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// end sends an answer that was kept.
func (s *sdkWriter) end() {
	if s.begun || s.status == 0 {
		return
	}
	h, text := s.Header(), s.kept.Bytes()
	h.Del("Content-Encoding")
	kind := h.Get("Content-Type")
	if strings.HasPrefix(kind, api.ProblemContentType) {
		h.Set("Content-Type", "text/plain; charset=utf-8")
		kind, text = "text/plain", reason(text)
	}
	text = bytes.ReplaceAll(text, []byte("%"), []byte(" percent"))
	escapes := strings.Contains(s.request.URL.RequestURI(), "%")
	if strings.HasPrefix(kind, "text/plain") {
		text = bytes.TrimSpace(text)
		if s.status == http.StatusNotFound && escapes && strings.Contains(s.path, "/plans/") {
			text = []byte("Element not found") // the client has a text of its own for exactly this
		}
	}
	h.Set("Content-Length", strconv.Itoa(len(text)))
	chunked := escapes && s.status >= 400 && !showsWithLength(s.status)
	if chunked {
		h.Del("Content-Length")
	}
	s.ResponseWriter.WriteHeader(s.status)
	if chunked {
		_ = http.NewResponseController(s.ResponseWriter).Flush() // so that no length is added
	}
	_, _ = s.ResponseWriter.Write(text) // fails if the client is gone
}

// showsWithLength reports whether the client shows the text of an error only if the answer has a length. It shows the others in any
// case, and once more with a length.
func showsWithLength(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusNotFound, http.StatusInternalServerError, http.StatusBadGateway:
		return true
	}
	return false
}

// reason returns the text of a problem document, with all its faults.
func reason(document []byte) []byte {
	var p api.Problem
	if json.Unmarshal(document, &p) != nil {
		return document
	}
	text := p.Detail
	if text == "" {
		text = p.Title
	}
	if len(p.Errors) > 1 {
		text = p.Errors.Error()
	}
	return []byte(text)
}
