package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/coopr/coopr/rpc/api"
)

// The console finishes a login on the pages of an identity provider only in the browser that has begun it, and only as the page
// itself. What a browser keeps of a login is refused if it is not the leader's, and is taken from it.
func TestConsoleProviderRefusals(t *testing.T) {
	leader, follower := pair(t)
	const begin, finish, came = "/console/begin", "/console/finish", `{"state":"a","code":"b"}`
	const kept = "Cookie: " + session + "-login=junk"
	for name, w := range map[string]*world{"leader": leader, "follower": follower} {
		w.must(403, "", "POST", finish, came, kept, csrf, "Sec-Fetch-Site: cross-site")
		w.must(403, "", "POST", finish, came, kept, samePage) // no header
		w.must(403, "", "POST", begin, `{"tenant":"acme","method":"sso"}`, csrf, "Sec-Fetch-Site: cross-site")
		w.must(405, "", "PUT", finish, came, kept, samePage, csrf)
		a := w.must(401, "", "POST", finish, came, samePage, csrf)
		if p := a.problem(t); !strings.Contains(p.Detail, "this browser has begun no login") {
			t.Errorf("%s: %+v", name, p)
		}
		a = w.must(401, "", "POST", finish, came, kept, samePage, csrf)
		if p := a.problem(t); !strings.Contains(p.Detail, "begin again") {
			t.Errorf("%s: %+v", name, p)
		}
		given := (&http.Response{Header: a.header}).Cookies()
		if len(given) != 1 || given[0].Name != session+"-login" || given[0].MaxAge >= 0 {
			t.Errorf("%s: %v", name, given)
		}
		for _, path := range []string{begin, finish} {
			w.must(413, "", "POST", path, `{"code":"`+strings.Repeat("a", 5000)+`"}`, kept, samePage, csrf)
			w.must(422, "", "POST", path, `{`, kept, samePage, csrf)
		}
		w.must(422, "", "POST", begin, `{"tenant":"acme"}`, samePage, csrf)
		w.must(401, "", "POST", begin, `{"tenant":"acme","method":"sso"}`, samePage, csrf)
		a = w.must(401, "", "POST", begin, `{"tenant":"acme","method":"local"}`, samePage, csrf)
		if len(a.header.Values("Set-Cookie")) > 0 {
			t.Errorf("%s: %v", name, a.header)
		}
		a = w.must(409, "", "POST", begin, `{"tenant":"acme","method":"sso"}`, samePage, csrf, "Host: localhost:55054")
		if p := a.problem(t); !strings.Contains(p.Detail, "open the console at http://127.0.0.1:55054/") {
			t.Errorf("%s at localhost: %+v", name, p)
		}
		for _, redirect := range []string{"//evil", "https://evil.example/", "https://evil.example/console/callback?a=b", "javascript:alert(1)"} {
			w.must(422, "", "POST", "/v1/login/begin", `{"tenant":"acme","method":"sso","redirect":"`+redirect+`"}`)
		}
		var s api.ConsoleSession
		w.must(200, "", "GET", "/console/session", "").into(t, &s)
		if s.Pages {
			t.Errorf("%s offers pages of nobody", name)
		}
		page := w.must(200, "", "GET", "/console/callback?state=a&code=b", "", "Sec-Fetch-Site: cross-site")
		if !strings.Contains(page.body, "/console/app.js") {
			t.Errorf("%s: %s", name, page.body)
		}
	}
}
