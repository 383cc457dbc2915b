package rest

import (
	"encoding/base64"
	"net/http"
	"net/url"

	"github.com/coopr/coopr/rpc/api"
)

// cookieOf returns the name of the cookie with the token of the console. It has a prefix with which browsers accept it over TLS only, and
// from this host only, so that another host of its domain cannot slip in a token of its own. Behind a proxy, it is the proxy that has
// the TLS. Without any, browsers take loopback addresses for secure, but not with this prefix.
func cookieOf(r *http.Request) string {
	if r.TLS == nil && namesLoopback(r) {
		return "coopr-session"
	}
	return "__Host-coopr-session"
}

// setCookie puts a token into the console's cookie; "" removes it. Browsers take a loopback address without TLS for secure.
func setCookie(w http.ResponseWriter, r *http.Request, token string) {
	c := &http.Cookie{Name: cookieOf(r), Path: "/", HttpOnly: true, Secure: true, SameSite: http.SameSiteStrictMode,
		Value: base64.RawURLEncoding.EncodeToString([]byte(token))}
	if token == "" {
		c.MaxAge = -1
	}
	http.SetCookie(w, c)
}

// cookieToken returns the token in a request's cookie, or "".
func cookieToken(r *http.Request) string {
	c, err := r.Cookie(cookieOf(r))
	if err != nil {
		return ""
	}
	token, err := base64.RawURLEncoding.DecodeString(c.Value)
	if err != nil {
		return ""
	}
	return string(token)
}

// carried lets a cookie carry the token of a request that has none in its headers (decision 083). Behind it a request has no cookies
// but that of a login to finish, so that none reaches another agent.
func carried(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := ""
		if r.Header.Get("Authorization") == "" && !ofAgent(r.Context()) {
			token = cookieToken(r)
		}
		pending, _ := r.Cookie(pendingOf(r))
		r.Header.Del("Cookie")
		if pending != nil && r.Method == http.MethodPost && r.URL.Path == pagePath+"finish" {
			r.AddCookie(pending)
		}
		if token == "" && !opensSession(r) {
			next.ServeHTTP(w, r)
			return
		}
		if err := ofPage(r); err != nil {
			noteOf(r.Context()).err = err
			writeProblem(w, ProblemOf(err))
			return
		}
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
			h := w.Header()
			h.Set("Cache-Control", "no-store")
			h.Set("X-Content-Type-Options", "nosniff")
			h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; sandbox")
		}
		next.ServeHTTP(w, r)
	})
}

// ofPage returns an error if a request with a cookie, or for one, may come from another page than the console. Browsers send cookies
// with the requests of other ports of the same host, too.
func ofPage(r *http.Request) error {
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch site := r.Header.Get("Sec-Fetch-Site"); {
	case site == "same-origin", site == "none" && reads: // none: typed by the user
	case site != "":
		return Forbidden("this request comes from another page (Sec-Fetch-Site: %s): only the console may use its cookie", site)
	default:
		origin := r.Header.Get("Origin")
		if u, err := url.Parse(origin); origin != "" && (err != nil || u.Host != r.Host) {
			return Forbidden("this request comes from another page (Origin: %s): only the console of %s may use its cookie", origin, r.Host)
		}
	}
	if !reads && r.Header.Get(api.HeaderCSRF) == "" {
		return Forbidden("a write with the console's cookie needs the header %s: programs send the token as \"Authorization: Bearer TOKEN\"",
			api.HeaderCSRF)
	}
	return nil
}
