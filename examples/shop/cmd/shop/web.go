package main

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	texttemplate "text/template"
	"time"
)

//go:embed page.html
var pageHTML string

//go:embed page.txt
var pageText string

// page holds the values of the templates.
type page struct {
	Greeting             string
	Visits               int64
	Items                []item
	Balancer, Web, Store string
}

type item struct{ Name, Price string }

// health is the answer of the web tier and, with Balancer, of the whole shop. Every value comes
// from the tier that it names.
type health struct {
	Balancer string `json:"balancer,omitempty"`
	Web      string `json:"web"`
	Store    string `json:"store"`
	Visits   int64  `json:"visits"`
	// Alive is the number of live web servers, Backends of all; set by the balancer.
	Alive    int `json:"alive,omitempty"`
	Backends int `json:"backends,omitempty"`
}

// balancerHeader names the balancer through which a request came.
const balancerHeader = "X-Shop-Balancer"

// web runs the middle tier, which serves the page and keeps no state.
func (p program) web(ctx context.Context, args []string) error {
	var listen, name, store, greeting string
	var timeout time.Duration
	s := p.newSettings("web")
	s.common(&listen, &name, &timeout)
	s.StringVar(&store, "store", "", "`URL` of the store")
	s.StringVar(&greeting, "greeting", "Welcome to the shop", "`text` at the top of the page")
	if err := s.parse(args); err != nil {
		return err
	}
	base, err := httpURL(store)
	if err != nil {
		return fmt.Errorf("%w: store: %w", errUsage, err)
	}
	client := &http.Client{Timeout: timeout, Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	defer client.CloseIdleConnections()
	h, err := webHandler(name, greeting, storeClient{base, client})
	if err != nil {
		return err
	}
	return serve(ctx, p.logger("web", name), listen, timeout, h)
}

// httpURL parses "http://HOST:PORT", with or without a final slash.
func httpURL(s string) (string, error) {
	u, err := url.Parse(s)
	switch {
	case s == "":
		return "", errors.New("missing: want http://HOST:PORT")
	case err != nil:
		return "", err
	case u.Scheme != "http" || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "":
		return "", fmt.Errorf("%q: want http://HOST:PORT", s)
	}
	return "http://" + u.Host, nil
}

func webHandler(name, greeting string, store storeClient) (http.Handler, error) {
	html, err := template.New("page").Parse(pageHTML)
	if err != nil {
		return nil, err
	}
	text, err := texttemplate.New("page").Parse(pageText)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		var now counted
		var goods struct{ Keys map[string]string }
		err := store.do(r.Context(), http.MethodPost, "/visits", &now)
		if err == nil {
			err = store.do(r.Context(), http.MethodGet, "/keys", &goods)
		}
		if err != nil {
			writeError(w, http.StatusServiceUnavailable, "web %s: %v", name, err)
			return
		}
		p := page{Greeting: greeting, Visits: now.Visits, Items: items(goods.Keys), Balancer: r.Header.Get(balancerHeader), Web: name,
			Store: now.Store}
		var out bytes.Buffer
		kind := "text/html"
		if strings.Contains(r.Header.Get("Accept"), "text/plain") {
			kind, err = "text/plain", text.Execute(&out, p)
		} else {
			err = html.Execute(&out, p)
		}
		if err != nil {
			writeError(w, http.StatusInternalServerError, "web %s: render: %v", name, err)
			return
		}
		w.Header().Set("Content-Type", kind+"; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		_, _ = w.Write(out.Bytes()) // fails only if the client has gone
	})
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, r *http.Request) {
		var now counted
		if err := store.do(r.Context(), http.MethodGet, "/health", &now); err != nil {
			writeError(w, http.StatusServiceUnavailable, "web %s: %v", name, err)
			return
		}
		writeJSON(w, http.StatusOK, health{Web: name, Store: now.Store, Visits: now.Visits})
	})
	return mux, nil
}

// items returns the keys that begin with "item.", sorted by name.
func items(keys map[string]string) []item {
	var out []item
	for k, v := range keys {
		if name, ok := strings.CutPrefix(k, "item."); ok {
			out = append(out, item{name, v})
		}
	}
	slices.SortFunc(out, func(a, b item) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// storeClient is a client of the store.
type storeClient struct {
	url  string
	http *http.Client
}

func (c storeClient) do(ctx context.Context, method, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, nil)
	if err != nil {
		return err
	}
	return fetch(c.http, req, into)
}

// fetch sends req and decodes the JSON body of a 200. Any other status is an error with the body's
// text.
func fetch(client *http.Client, req *http.Request, into any) error {
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err != nil {
		return fmt.Errorf("%s %s: %w", req.Method, req.URL, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s: %s", req.Method, req.URL, resp.Status, bytes.TrimSpace(body))
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("%s %s: %w", req.Method, req.URL, err)
	}
	return nil
}
