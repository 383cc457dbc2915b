package client_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"
)

// TestForwardEnds checks which end of a connection an error names.
func TestForwardEnds(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/nodes/echo/forward", func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		_, _ = io.Copy(w, r.Body)
	})
	mux.HandleFunc("POST /v1/nodes/breaks/forward", func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n"+api.HeaderThrough+": a7\r\nTransfer-Encoding: chunked\r\n\r\n")
		conn.Close()
	})
	s := httptest.NewServer(mux)
	defer s.Close()
	c, err := client.New(client.Config{Addresses: []string{s.URL}, Patience: -1})
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	if err := c.Forward(t.Context(), "echo", 80, strings.NewReader("word"), &got); err != nil || got.String() != "word" {
		t.Errorf("%q comes back: %v", got.String(), err)
	}
	up, silent := io.Pipe() // from which nothing comes before its end
	if err := c.Forward(t.Context(), "breaks", 80, up, io.Discard); !errors.Is(err, client.ErrForwardBroken) ||
		errors.Is(err, client.ErrForwardLeft) || !strings.Contains(err.Error(), "agent a7") {
		t.Errorf("a connection that breaks: %v", err)
	}
	silent.Close()
	failed := errors.New("reset")
	up, writer := io.Pipe()
	writer.CloseWithError(failed)
	if err := c.Forward(t.Context(), "echo", 80, up, io.Discard); !errors.Is(err, client.ErrForwardLeft) || !errors.Is(err, failed) {
		t.Errorf("a reader that fails: %v", err)
	}
	down, writer := io.Pipe()
	down.CloseWithError(failed)
	if err := c.Forward(t.Context(), "echo", 80, strings.NewReader("word"), writer); !errors.Is(err, client.ErrForwardLeft) {
		t.Errorf("a writer that fails: %v", err)
	}
	if err := c.Forward(t.Context(), "of-an-older-build", 80, strings.NewReader(""), io.Discard); err == nil ||
		!strings.Contains(err.Error(), "older build") {
		t.Errorf("an agent without the route: %v", err)
	}
}
