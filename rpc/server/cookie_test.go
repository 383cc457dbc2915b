package server_test

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server"
	"github.com/coopr/coopr/rpc/server/apitest"
	"github.com/coopr/coopr/rpc/server/rest"
)

// The headers of a write by the page itself, and the name of its cookie without TLS.
const (
	samePage = "Sec-Fetch-Site: same-origin"
	csrf     = "Coopr-Csrf: 1"
	session  = "coopr-session"
)

// cookie returns the header of a request with a token in the console's cookie.
func cookie(token string) string {
	return "Cookie: " + session + "=" + base64.RawURLEncoding.EncodeToString([]byte(token))
}

// given returns the cookie that an answer sets.
func (a answer) given(t testing.TB) *http.Cookie {
	t.Helper()
	for _, c := range (&http.Response{Header: a.header}).Cookies() {
		if c.Name == session {
			return c
		}
	}
	t.Fatalf("no cookie: %v", a.header)
	return nil
}

// tokenIn returns the token that a cookie carries.
func tokenIn(t testing.TB, c *http.Cookie) string {
	t.Helper()
	b, err := base64.RawURLEncoding.DecodeString(c.Value)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The console logs in with the API's own route, by whichever agent, and sees no token.
func TestConsoleLogin(t *testing.T) {
	leader, follower := pair(t)
	worker := stateless(t, leader)
	leader.user(apitest.Admin, `{"name":"ann","role":"user","password":"`+password+`"}`)
	body := `{"tenant":"acme","user":"ann","password":"` + password + `"}`
	for name, w := range map[string]*world{"leader": leader, "follower": follower, "worker": worker} {
		a := w.must(201, "", "POST", "/console/login", body, samePage, csrf)
		c := a.given(t)
		if !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Domain != "" || c.MaxAge != 0 {
			t.Errorf("%s: %v", name, c)
		}
		token := tokenIn(t, c)
		if !strings.HasPrefix(token, "coopr-") || strings.Contains(a.body, token) || strings.Contains(a.body, c.Value) {
			t.Errorf("%s: %s", name, a.body)
		}
		var self api.Self
		a = w.must(200, "", "GET", "/v1/self", "", cookie(token), samePage)
		a.into(t, &self)
		if self.Actor != "ann" || !self.Session {
			t.Errorf("%s: %+v", name, self)
		}
		if a.header.Get("Cache-Control") != "no-store" || !strings.Contains(a.header.Get("Content-Security-Policy"), "sandbox") {
			t.Errorf("%s: %v", name, a.header)
		}
		var s api.ConsoleSession
		w.must(200, "", "GET", "/console/session", "", cookie(token), samePage).into(t, &s)
		if !s.Open || s.Dev {
			t.Errorf("%s: %+v", name, s)
		}
		// The same table of rights: ann may read, but not administer.
		w.must(403, "", "GET", "/v1/users", "", cookie(token), samePage)
		if c := w.must(200, "", "POST", "/console/logout", "", cookie(token), samePage, csrf).given(t); c.MaxAge >= 0 {
			t.Errorf("%s: %v", name, c)
		}
		w.must(401, token, "GET", "/v1/self", "")
		w.must(200, "", "POST", "/console/logout", "", cookie(token), samePage, csrf) // once more
		a = w.must(401, "", "POST", "/console/login", strings.Replace(body, password, "wrong", 1), samePage, csrf)
		a.problem(t)
		if len(a.header.Values("Set-Cookie")) > 0 {
			t.Errorf("%s: %v", name, a.header)
		}
		w.must(http.StatusRequestEntityTooLarge, "", "POST", "/console/login", `{"user":"`+strings.Repeat("a", 5000)+`"}`, samePage, csrf)
	}
	if strings.Contains(leader.log.String()+follower.log.String()+worker.log.String(), password) {
		t.Error("a password is in a log")
	}
}

// A token that somebody brings goes into the cookie if the mesh knows it, and stays valid after a logout.
func TestConsoleToken(t *testing.T) {
	w := newWorld(t)
	a := w.must(200, apitest.User, "POST", "/console/token", "", samePage, csrf)
	if token := tokenIn(t, a.given(t)); token != apitest.User {
		t.Errorf("cookie with %q", token)
	}
	if strings.Contains(a.body, apitest.User) {
		t.Error(a.body)
	}
	for _, wrong := range []string{"guess", ""} {
		a = w.must(401, wrong, "POST", "/console/token", "", samePage, csrf)
		if len(a.header.Values("Set-Cookie")) > 0 {
			t.Errorf("%v", a.header)
		}
	}
	w.must(200, "", "POST", "/console/logout", "", cookie(apitest.User), samePage, csrf)
	w.must(200, apitest.User, "GET", "/v1/self", "")
}

// Requests of other pages are refused although they have the cookie.
func TestConsoleForeign(t *testing.T) {
	w := newWorld(t)
	w.template()
	mine := cookie(apitest.User)
	host := strings.TrimPrefix(w.url, "http://")
	write := `{"name":"c","clusterTemplate":"shop","numMachines":2}`
	for _, c := range []struct {
		what    string
		status  int // of a read
		write   int
		headers []string
	}{
		{"the page", 200, 202, []string{samePage, csrf, "Origin: " + w.url}},
		{"the page in an old browser", 200, 202, []string{csrf, "Origin: " + w.url}},
		{"a program with the cookie", 200, 202, []string{csrf}},
		{"the page behind a proxy with another name", 200, 202, []string{samePage, csrf, "Origin: https://coopr.example"}},
		{"typed into the address bar", 200, 403, []string{"Sec-Fetch-Site: none", csrf}},
		{"a form of the page without the header", 200, 403, []string{samePage}},
		{"an empty header", 200, 403, []string{samePage, "Coopr-Csrf: "}},
		{"another site", 403, 403, []string{"Sec-Fetch-Site: cross-site", csrf}},
		{"another port of the same host", 403, 403, []string{"Sec-Fetch-Site: same-site", csrf}},
		{"an unknown relation", 403, 403, []string{"Sec-Fetch-Site: same-origin, cross-site", csrf}},
		{"another site in an old browser", 403, 403, []string{"Origin: https://evil.example", csrf}},
		{"another port in an old browser", 403, 403, []string{"Origin: http://127.0.0.1:1", csrf}},
		{"a name that begins alike", 403, 403, []string{"Origin: " + w.url + ".evil.example", csrf}},
		{"the host as a user", 403, 403, []string{"Origin: http://" + host + "@evil.example", csrf}},
		{"a sandboxed frame", 403, 403, []string{"Origin: null", csrf}},
		{"no address", 403, 403, []string{"Origin: http://[", csrf}},
	} {
		if a := w.ask("", "GET", "/v1/clusters", "", append(c.headers, mine)...); a.status != c.status {
			t.Errorf("%s reads: %d\n%s", c.what, a.status, a.body)
		}
		if a := w.ask("", "POST", "/v1/clusters?dryRun=true", write, append(c.headers, mine)...); a.status != max(c.write, 200) &&
			(c.write != 202 || a.status != 200) {
			t.Errorf("%s writes: %d\n%s", c.what, a.status, a.body)
		}
		// Nor can another page log a browser in or out, with a cookie or without one.
		if a := w.ask("", "POST", "/console/logout", "", c.headers...); (a.status == 200) != (c.write == 202) {
			t.Errorf("%s logs out: %d\n%s", c.what, a.status, a.body)
		}
	}
	// A token in the headers is not weaker for a cookie, nor stronger.
	w.must(200, apitest.User, "GET", "/v1/clusters", "", "Sec-Fetch-Site: cross-site", mine)
	w.must(401, "guess", "GET", "/v1/clusters", "", mine, samePage)
	for _, broken := range []string{session + "=%%%", session + "=", session + "=Z3Vlc3M", "other=1"} {
		w.must(401, "", "GET", "/v1/clusters", "", "Cookie: "+broken, samePage)
	}
	w.must(401, "", "GET", "/v1/clusters", "", "Cookie: __Host-coopr-session="+strings.TrimPrefix(mine, "Cookie: coopr-session="), samePage)
	// A token in a URL is refused here, too.
	w.must(422, "", "GET", "/v1/clusters?token="+apitest.User, "", mine, samePage)
}

// A request that an agent passes on has no cookie, and the leader believes none.
func TestConsoleForwards(t *testing.T) {
	store := apitest.NewStore()
	t.Cleanup(store.Close)
	leads := apitest.NewAgent(store, "a")
	seen := make(chan http.Header, 10)
	h, err := server.New(server.Config{Services: leads.Services(), Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header.Clone()
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	follows := apitest.NewAgent(store, "b")
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	follows.Follow(s.URL, true, transport)
	w := serve(t, follows, nil)
	w.must(200, "", "GET", "/v1/clusters", "", cookie(apitest.User)+"; other=secret", samePage)
	if got := <-seen; got.Get("Cookie") != "" || got.Get("Authorization") != "Bearer "+apitest.User {
		t.Errorf("the leader got %v", got)
	}
	forwarded := httptest.NewUnstartedServer(nil)
	forwarded.Config = server.NewAgentServer(h, func(net.Conn) bool { return true })
	forwarded.Start()
	t.Cleanup(forwarded.Close)
	w.url = forwarded.URL
	w.must(401, "", "GET", "/v1/clusters", "", cookie(apitest.User), samePage)
}

// A dev agent gives its token to browsers on its own machine, and to no page of a foreign name.
func TestConsoleDev(t *testing.T) {
	handler := func(dev bool) http.Handler {
		h, err := server.New(server.Config{Services: newAgent(t).Services(), Name: "a", Dev: dev, Root: apitest.Root})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	dev, other := handler(true), handler(false)
	elsewhere := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.RemoteAddr = "192.0.2.1:40000"
		dev.ServeHTTP(w, r)
	})
	for _, c := range []struct {
		what      string
		h         http.Handler
		host      string
		fetchSite string
		relay     string // a header that a proxy adds
		offered   bool
		status    int
	}{
		{"loopback", dev, "127.0.0.1:55054", "same-origin", "", true, 200},
		{"localhost", dev, "localhost:55054", "same-origin", "", true, 200},
		{"IPv6", dev, "[::1]:55054", "same-origin", "", true, 200},
		{"a foreign name that leads to loopback", dev, "evil.example:55054", "same-origin", "", false, 403},
		{"a name with an address in it", dev, "127.0.0.1.evil.example", "same-origin", "", false, 403},
		{"another machine", elsewhere, "127.0.0.1:55054", "same-origin", "", false, 403},
		{"a proxy on this machine", dev, "127.0.0.1:55054", "same-origin", "X-Forwarded-For", false, 403},
		{"another proxy", dev, "127.0.0.1:55054", "same-origin", "Via", false, 403},
		{"another page", dev, "127.0.0.1:55054", "same-site", "", true, 403},
		{"no dev mode", other, "127.0.0.1:55054", "same-origin", "", false, 403},
	} {
		s := httptest.NewServer(c.h)
		ask := func(method, path string) (*http.Response, string) {
			r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = c.host
			r.Header.Set(api.HeaderCSRF, "1")
			if method == http.MethodPost {
				r.Header.Set("Sec-Fetch-Site", c.fetchSite)
			}
			if c.relay != "" {
				r.Header.Set(c.relay, "192.0.2.1")
			}
			answer, err := s.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			body, err := io.ReadAll(answer.Body)
			if err != nil {
				t.Fatal(err)
			}
			return answer, string(body)
		}
		a, body := ask(http.MethodPost, "/console/dev")
		if a.StatusCode != c.status || (a.Header.Get("Set-Cookie") != "") != (c.status == 200) || strings.Contains(body, apitest.Root) {
			t.Errorf("%s: %d %v\n%s", c.what, a.StatusCode, a.Header, body)
		}
		_, body = ask(http.MethodGet, "/console/session")
		var session api.ConsoleSession
		if err := json.Unmarshal([]byte(body), &session); err != nil {
			t.Fatal(err)
		}
		if session.Dev != c.offered {
			t.Errorf("%s: %+v", c.what, session)
		}
		s.Close()
	}
}

// Behind TLS, also that of a proxy, the cookie has the prefix with which it belongs to this host alone, and no other cookie counts.
func TestConsoleTLS(t *testing.T) {
	h, err := server.New(server.Config{Services: newAgent(t).Services(), Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	for _, by := range []struct {
		what, host string
		tls        *tls.ConnectionState
	}{{"the agent", "127.0.0.1:55054", &tls.ConnectionState{}}, {"the agent", "coopr.example", &tls.ConnectionState{}}, {"a proxy", "coopr.example", nil}} {
		ask := func(method, path, cookie string) *httptest.ResponseRecorder {
			r := httptest.NewRequestWithContext(context.Background(), method, path, nil)
			r.Host, r.TLS = by.host, by.tls
			if r.Header.Set(api.HeaderCSRF, "1"); cookie == "" {
				r.Header.Set("Authorization", "Bearer "+apitest.User)
			} else {
				r.Header.Set("Cookie", cookie)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w
		}
		w := ask("POST", "/console/token", "")
		set := w.Header().Get("Set-Cookie")
		if w.Code != 200 || !strings.HasPrefix(set, "__Host-coopr-session=") || !strings.HasSuffix(set, "; Path=/; HttpOnly; Secure; SameSite=Strict") {
			t.Errorf("TLS of %s: %d %q", by.what, w.Code, set)
		}
		mine, _, _ := strings.Cut(set, ";")
		if w := ask("GET", "/v1/self", mine); w.Code != 200 {
			t.Errorf("TLS of %s: %d %s", by.what, w.Code, w.Body)
		}
		if w := ask("GET", "/v1/self", strings.TrimPrefix(mine, "__Host-")); w.Code != 401 {
			t.Errorf("TLS of %s: a cookie that another host of the domain can set: %d %s", by.what, w.Code, w.Body)
		}
	}
}

// Wrong passwords by the console slow down the next ones, and its files are bounded as all that needs no token.
func TestConsoleBounds(t *testing.T) {
	w := serveWithin(t, newAgent(t), rest.Bounds{Strangers: 1}, nil)
	throttled := func(method, path, body string) bool {
		for range 200 {
			if w.ask("", method, path, body, samePage, csrf).status == http.StatusTooManyRequests {
				return true
			}
		}
		return false
	}
	for _, path := range []string{"/", "/console/session", "/console/nothing"} {
		if !throttled("GET", path, "") {
			t.Errorf("%s is not bounded", path)
		}
	}
	for _, path := range []string{"/console/dev", "/console/token", "/console/logout"} {
		if !throttled("POST", path, "") {
			t.Errorf("%s is not bounded", path)
		}
	}
	if !throttled("POST", "/console/login", `{"tenant":"acme","user":"ann","password":"wrong"}`) {
		t.Error("guesses are not bounded")
	}
}

// A login on the pages of a provider counts once for its source, before its body is read.
func TestConsoleProviderBounds(t *testing.T) {
	for _, path := range []string{"/console/begin", "/console/finish"} {
		h, err := server.New(server.Config{Services: newAgent(t).Services(), Name: "a", Bounds: rest.Bounds{Strangers: 1}})
		if err != nil {
			t.Fatal(err)
		}
		ask := func(text string) (status int, read bool) {
			body := strings.NewReader(text)
			r := httptest.NewRequestWithContext(t.Context(), "POST", path, body)
			r.Header.Set(api.HeaderCSRF, "1")
			r.Header.Set("Cookie", session+"-login=junk")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w.Code, body.Len() < len(text)
		}
		for range 2 {
			if got, _ := ask(`{"tenant":"acme","method":"sso","code":"a"}`); got != 401 {
				t.Errorf("%s within the bound: status %d", path, got)
			}
		}
		got, read := 0, false
		for i := 0; i < 200 && got != 429; i++ {
			got, read = ask(`{`)
		}
		if got != 429 || read {
			t.Errorf("%s over the bound: status %d, the body is read: %v", path, got, read)
		}
	}
}

// deadlines is a connection that keeps the deadlines of what is read.
type deadlines struct {
	*httptest.ResponseRecorder
	set []bool // whether there was one
}

func (d *deadlines) SetReadDeadline(at time.Time) error {
	d.set = append(d.set, !at.IsZero())
	return nil
}

// A password that arrives slowly takes no longer by the console than by the API.
func TestConsoleSlowLogin(t *testing.T) {
	h, err := server.New(server.Config{Services: newAgent(t).Services(), Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/v1/login", "/console/login"} {
		r := httptest.NewRequestWithContext(context.Background(), "POST", path, strings.NewReader(`{"tenant":"acme","user":"ann","password":"wrong"}`))
		r.Header.Set(api.HeaderCSRF, "1")
		w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		h.ServeHTTP(w, r)
		if w.Code != 401 || !slices.Contains(w.set, true) || w.set[len(w.set)-1] {
			t.Errorf("%s: status %d, deadlines %v", path, w.Code, w.set)
		}
	}
}

// The page is at the root, for everybody; nothing else is there.
func TestConsolePage(t *testing.T) {
	w := newWorld(t)
	a := w.must(200, "", "GET", "/", "")
	if !strings.Contains(a.body, "/console/app.js") || !strings.HasPrefix(a.header.Get("Content-Type"), "text/html") {
		t.Errorf("%v\n%s", a.header, a.body)
	}
	w.must(200, "", "HEAD", "/", "")
	w.must(404, "", "GET", "/console/../../etc/passwd", "")
	w.must(404, "", "GET", "/console/nothing", "")
	w.must(404, "", "GET", "/index.html", "").problem(t)
	w.must(405, "", "POST", "/", "").problem(t)
	w.must(405, "", "POST", "/console/nothing", "", samePage, csrf).problem(t)
}
