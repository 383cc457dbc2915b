package rest

import (
	"bytes"
	"encoding/json"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/coopr/coopr/internal/neighbour"
	"github.com/coopr/coopr/rpc/api"
)

const (
	loginPath  = "/v1/login"
	beginPath  = "/v1/login/begin"
	finishPath = "/v1/login/finish"
	pagePath   = "/console/"
)

// opensSession reports whether a request asks for a cookie, or for its end.
func opensSession(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.HasPrefix(r.URL.Path, pagePath)
}

// Console registers the console's files, and the routes by which it gets its cookie and loses it. They are no part of the API: a
// program sends its token itself.
func Console(s *Server, files http.Handler) {
	for _, pattern := range []string{"GET /{$}", "GET " + pagePath} {
		s.mux.HandleFunc(pattern, s.bounded(func(w http.ResponseWriter, r *http.Request) {
			noteOf(r.Context()).route = "console"
			files.ServeHTTP(w, r)
		}))
	}
	s.mux.HandleFunc("GET "+pagePath+"session", s.bounded(func(w http.ResponseWriter, r *http.Request) {
		noteOf(r.Context()).route = "console"
		answer(w, http.StatusOK, api.ConsoleSession{Dev: offersClick(s, r), Open: tokenOf(r) != "", Pages: s.pages})
	}))
	s.mux.HandleFunc("POST "+pagePath+"login", func(w http.ResponseWriter, r *http.Request) {
		a := ask(s, w, r, http.MethodPost, loginPath, "")
		var issued api.IssuedToken
		if !a.into(w, r, http.StatusCreated, &issued) {
			return
		}
		setCookie(w, r, issued.Secret)
		answer(w, a.status, issued.Token)
	})
	providerRoutes(s)
	s.mux.HandleFunc("POST "+pagePath+"token", func(w http.ResponseWriter, r *http.Request) { openWith(s, w, r, tokenOf(r)) })
	s.mux.HandleFunc("POST "+pagePath+"dev", s.bounded(func(w http.ResponseWriter, r *http.Request) {
		if !offersClick(s, r) {
			err := Forbidden("a session without a token is for dev mode on loopback only, and for the agent's own user: log in")
			noteOf(r.Context()).err = err
			writeProblem(w, ProblemOf(err))
			return
		}
		openWith(s, w, r, s.devToken)
	}))
	s.mux.HandleFunc("POST "+pagePath+"logout", s.bounded(func(w http.ResponseWriter, r *http.Request) {
		setCookie(w, r, "")
		if token := tokenOf(r); token != "" {
			a := ask(s, w, r, http.MethodPost, "/v1/logout", token)
			// A token that is no session stays valid, as its owner has it elsewhere.
			switch a.status {
			case http.StatusOK, http.StatusUnauthorized, http.StatusForbidden:
			default:
				a.pass(w)
				return
			}
		}
		noteOf(r.Context()).err = nil
		answer(w, http.StatusOK, struct{}{})
	}))
}

// openWith puts a token into the cookie if the mesh knows it.
func openWith(s *Server, w http.ResponseWriter, r *http.Request, token string) {
	a := ask(s, w, r, http.MethodGet, SelfPath, token)
	if a.status == http.StatusOK {
		setCookie(w, r, token)
	}
	a.pass(w)
}

// offersClick reports whether a request may get the token of a dev agent. Its host must be a loopback address, too: otherwise a page
// whose name leads to 127.0.0.1 could ask. And no other user of this machine may ask, whose program may be a proxy for everybody.
func offersClick(s *Server, r *http.Request) bool {
	return s.devToken != "" && namesLoopback(r) && !ofAgent(r.Context()) && clientOf(r).IsLoopback() && neighbour.IsOwn(r)
}

// namesLoopback reports whether the host that a request names is this machine for every client.
func namesLoopback(r *http.Request) bool {
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	named, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return host == "localhost" || err == nil && named.IsLoopback()
}

// answer writes JSON that nobody keeps.
func answer(w http.ResponseWriter, status int, body any) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // fails if the client is gone
}

// asked is the answer of a route of the API that the console's routes have asked.
type asked struct {
	to     http.ResponseWriter // of the console's route
	header http.Header
	status int
	body   bytes.Buffer
}

// ask has a route of the API answer a request in the place of the console's, with a token or without one.
func ask(s *Server, w http.ResponseWriter, r *http.Request, method, path, token string) *asked {
	in := r.Clone(r.Context())
	in.Method, in.URL, in.Pattern = method, &url.URL{Path: path}, ""
	in.RequestURI = path
	in.Header.Del("Authorization")
	if token != "" {
		in.Header.Set("Authorization", "Bearer "+token)
	}
	if method != http.MethodPost || !strings.HasPrefix(path, loginPath) {
		in.Body, in.ContentLength = http.NoBody, 0
	}
	a := &asked{to: w, header: http.Header{}}
	s.routed().ServeHTTP(a, in)
	a.WriteHeader(http.StatusOK) // for an answer without a body
	return a
}

func (a *asked) Header() http.Header { return a.header }

// Unwrap returns the writer of the console's route, on which http.ResponseController sets the deadline of the body.
func (a *asked) Unwrap() http.ResponseWriter { return a.to }

// Flush does nothing: the answer is kept.
func (a *asked) Flush() {}

func (a *asked) WriteHeader(status int) {
	if a.status == 0 && status >= http.StatusOK {
		a.status = status
	}
}

func (a *asked) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}

// into reads the answer, if it has a status. Otherwise it sends the answer on, or an error, and returns false. An answer with that
// status may have a token and is never sent on.
func (a *asked) into(w http.ResponseWriter, r *http.Request, status int, out any) bool {
	if a.status != status {
		a.pass(w)
		return false
	}
	err := json.Unmarshal(a.body.Bytes(), out)
	if err != nil {
		refuse(w, r, err)
	}
	return err == nil
}

// pass sends the answer as it is.
func (a *asked) pass(w http.ResponseWriter) {
	maps.Copy(w.Header(), a.header)
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body.Bytes()) // fails if the client is gone
}
