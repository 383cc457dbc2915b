package server

import (
	"net"
	"net/http"
	"time"

	"github.com/coopr/coopr/rpc/server/rest"
)

// The limits on a connection and on the headers of a request.
const (
	// MaxHeader bounds all headers of a request together, in bytes.
	MaxHeader  = 64 << 10
	headerTime = 10 * time.Second
	idleTime   = 2 * time.Minute
)

// NewAgentServer is NewServer for a port that only other agents can reach. They have bounded what their clients ask for.
func NewAgentServer(handler http.Handler, serves func(net.Conn) bool) *http.Server {
	s := NewServer(handler)
	s.ConnContext = rest.OfAgent(serves)
	return s
}

// NewServer returns an http.Server with the limits that the API relies on: it closes connections
// with slow headers and idle connections. The handler limits bodies itself, as an answer may take
// hours.
func NewServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    MaxHeader,
	}
}
