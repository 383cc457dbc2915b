package console

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

func get(path string, headers ...string) *http.Response {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	Files().ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Each file is served with its type, the policy and a tag by which a browser need not load it twice.
func TestFiles(t *testing.T) {
	kinds := map[string]string{
		"/": "text/html; charset=utf-8", Prefix + "app.js": "text/javascript; charset=utf-8",
		Prefix + "app.css": "text/css; charset=utf-8", Prefix + "icon.svg": "image/svg+xml",
		Prefix + "licences.txt": "text/plain; charset=utf-8",
	}
	for path, kind := range kinds {
		plain := get(path)
		text := body(t, plain.Body)
		if plain.StatusCode != http.StatusOK || plain.Header.Get("Content-Type") != kind || plain.Header.Get("Content-Encoding") != "" ||
			text == "" {
			t.Errorf("%s: %d %v", path, plain.StatusCode, plain.Header)
		}
		packed := get(path, "Accept-Encoding: br;q=1, gzip;q=0.8")
		z, err := gzip.NewReader(packed.Body)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if body(t, z) != text {
			t.Errorf("%s: the packed file has other contents", path)
		}
		if get(path, "Accept-Encoding: gzip;q=0").Header.Get("Content-Encoding") != "" {
			t.Errorf("%s: packed although the browser refuses that", path)
		}
		for _, a := range []*http.Response{plain, packed} {
			h := a.Header
			if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Vary") != "Accept-Encoding" || h.Get("Cache-Control") != "no-cache" {
				t.Errorf("%s: %v", path, h)
			}
			policy := h.Get("Content-Security-Policy")
			if !strings.HasPrefix(policy, "default-src 'self';") || strings.Contains(policy, "unsafe") {
				t.Errorf("%s: policy %q", path, policy)
			}
		}
		if plain.Header.Get("ETag") == packed.Header.Get("ETag") {
			t.Errorf("%s: one tag for two answers", path)
		}
		again := get(path, "Accept-Encoding: gzip", `If-None-Match: "other", W/`+packed.Header.Get("ETag"))
		if again.StatusCode != http.StatusNotModified || body(t, again.Body) != "" || again.Header.Get("ETag") != packed.Header.Get("ETag") {
			t.Errorf("%s: %d %v", path, again.StatusCode, again.Header)
		}
		if a := get(path, "Accept-Encoding: gzip", `If-None-Match: "other"`); a.StatusCode != http.StatusOK {
			t.Errorf("%s: %d for another tag", path, a.StatusCode)
		}
	}
	if len(files()) != len(kinds) {
		t.Errorf("%d files are embedded, and %d are known here: add the others", len(files()), len(kinds))
	}
	for _, path := range []string{Prefix, Prefix + "index.html/", Prefix + "../console.go", Prefix + "dist/app.js", "/app.js"} {
		if a := get(path); a.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d", path, a.StatusCode)
		}
	}
}

// The page asks nobody but its own agent, and its policy permits no inline script.
func TestPageIsWhole(t *testing.T) {
	foreign := regexp.MustCompile(`(?:src|href|url|import)\s*[=(]\s*["']?(?:https?:)?//[^"')\s]+`)
	var packed int
	for name, f := range files() {
		packed += len(f.packed)
		if strings.HasSuffix(name, ".svg") || strings.HasSuffix(name, ".txt") {
			continue // name addresses that nobody loads
		}
		for _, found := range foreign.FindAllString(string(f.plain), -1) {
			t.Errorf("%s loads %s", name, found)
		}
	}
	if packed > 150<<10 {
		t.Errorf("the page has %d KiB with gzip: 150 at most", packed>>10)
	}
	page := string(files()["index.html"].plain)
	for _, found := range regexp.MustCompile(`(?i)<script[^>]*>[^<]|<style|\son[a-z]+=|\sstyle=|javascript:`).FindAllString(page, -1) {
		t.Errorf("index.html has %q, which the policy forbids", found)
	}
	for _, name := range regexp.MustCompile(`(?:src|href)="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		if a := get(name[1]); a.StatusCode != http.StatusOK {
			t.Errorf("index.html names %s: %d", name[1], a.StatusCode)
		}
	}
}
