package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/api"
)

// callbackPath is where a browser comes back to after a login on the pages of an identity provider. The page itself is served
// there. It finishes the login with a request of its own, so that the browser sends cookies which are for the same site only.
const callbackPath = pagePath + "callback"

// pendingTime is how long a browser keeps a login that has begun. The leader finishes none that is older.
const pendingTime = 10 * time.Minute

// providerRoutes registers the console's login on the pages of an identity provider (decision 093). They are those of the API: what
// finishes a login is in a cookie of the browser that has begun it.
func providerRoutes(s *Server) {
	s.mux.HandleFunc("POST "+pagePath+"begin", s.bounded(func(w http.ResponseWriter, r *http.Request) {
		var req api.BeginLogin
		if err := bodyOf(w, r, &req); err != nil {
			refuse(w, r, err)
			return
		}
		req.Redirect = callbackOf(r)
		if here, ok := strings.CutPrefix(req.Redirect, "http://localhost"); ok {
			refuse(w, r, problem.New(problem.Conflict, "identity providers send a browser back to the address of its own machine, and not to "+
				"the name localhost: open the console at http://127.0.0.1%s", strings.TrimSuffix(here, callbackPath[1:])))
			return
		}
		var p api.LoginPrompt
		if a := askWith(s, w, r, beginPath, req); !a.into(w, r, http.StatusCreated, &p) {
			return
		}
		if p.Login == "" {
			refuse(w, r, problem.New(problem.Conflict, "%s has no pages to log in on: log in with a name and a password", req.Method))
			return
		}
		setPending(w, r, p.Login)
		answer(w, http.StatusCreated, api.LoginPrompt{URL: p.URL})
	}))
	s.mux.HandleFunc("POST "+pagePath+"finish", s.bounded(func(w http.ResponseWriter, r *http.Request) {
		var req api.FinishLogin
		if err := bodyOf(w, r, &req); err != nil {
			refuse(w, r, err)
			return
		}
		pending, err := r.Cookie(pendingOf(r))
		if err != nil || pending.Value == "" {
			refuse(w, r, problem.New(problem.Unauthorized, "this browser has begun no login, or took longer than ten minutes: log in again"))
			return
		}
		setPending(w, r, "")
		req.Login = pending.Value
		var f api.FinishedLogin
		if a := askWith(s, w, r, finishPath, req); !a.into(w, r, http.StatusCreated, &f) {
			return
		}
		setCookie(w, r, f.Token.Secret)
		answer(w, http.StatusCreated, f.Token.Token)
	}))
}

// callbackOf returns the URL of the page at the host that a request names. The leader compares it with the configured one.
func callbackOf(r *http.Request) string {
	scheme := "https://"
	if r.TLS == nil && namesLoopback(r) {
		scheme = "http://"
	}
	return scheme + r.Host + callbackPath
}

// pendingOf returns the name of the cookie with a login that has begun.
func pendingOf(r *http.Request) string { return cookieOf(r) + "-login" }

// setPending puts a login that has begun into a cookie; "" removes it.
func setPending(w http.ResponseWriter, r *http.Request, login string) {
	c := &http.Cookie{Name: pendingOf(r), Path: "/", HttpOnly: true, Secure: true, SameSite: http.SameSiteStrictMode, Value: login,
		MaxAge: int(pendingTime.Seconds())}
	if login == "" {
		c.MaxAge = -1
	}
	http.SetCookie(w, c)
}

// bodyOf reads the JSON body of a request without a token, within the bounds of such bodies.
func bodyOf(w http.ResponseWriter, r *http.Request, out any) error {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(BodyTime)) // fails if the connection has ended
	defer func() { _ = control.SetReadDeadline(time.Time{}) }()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, openBody))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return problem.New(problem.TooLarge, "the login has more than %d bytes: log in again", openBody)
	}
	if err != nil {
		return bodyProblem(err)
	}
	if err := json.Unmarshal(body, out); err != nil {
		return problem.New(problem.Invalid, "the body of the login is no JSON: %v", err)
	}
	return nil
}

// askWith has a route of the API answer a request with a body.
func askWith(s *Server, w http.ResponseWriter, r *http.Request, path string, body any) *asked {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err) // the types of the API have texts and numbers only
	}
	in := r.Clone(r.Context())
	in.Header.Del("Cookie")
	in.Body, in.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	return ask(s, w, in, http.MethodPost, path, "")
}

// refuse writes an error.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	noteOf(r.Context()).err = err
	writeProblem(w, ProblemOf(err))
}
