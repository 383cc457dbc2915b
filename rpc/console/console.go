// Package console is the web page that every agent serves (decision 083). Its sources are in src. The files that
// `make console` builds of them are in dist and are embedded, so that a build of the agent needs no Node.
package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
)

//go:embed dist
var dist embed.FS

// Prefix is the path below which the page's files are served. The page itself is at "/".
const Prefix = "/console/"

// callback is where a browser comes back to after a login on the pages of an identity provider.
const callback = Prefix + "callback"

// policy lets the page load its own files and ask its own agent, and nothing else.
const policy = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"

// A file is one file of the page as it is sent.
type file struct {
	kind   string // the Content-Type
	plain  []byte
	packed []byte // with gzip
	etag   string // of the plain file, without quotes
}

// files are the files of the page by their names.
var files = sync.OnceValue(func() map[string]file {
	out := map[string]file{}
	entries, err := fs.ReadDir(dist, "dist")
	if err != nil {
		panic(err) // the folder is embedded
	}
	for _, e := range entries {
		plain, err := dist.ReadFile(path.Join("dist", e.Name()))
		if err != nil {
			panic(err)
		}
		var packed bytes.Buffer
		z, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression) // fails for other levels only
		_, _ = z.Write(plain)                                      // a buffer takes everything
		_ = z.Close()
		sum := sha256.Sum256(plain)
		out[e.Name()] = file{kind: typeOf(e.Name()), plain: plain, packed: packed.Bytes(), etag: hex.EncodeToString(sum[:12])}
	}
	return out
})

// typeOf returns the Content-Type of a file. It does not ask the machine, whose tables differ.
func typeOf(name string) string {
	switch path.Ext(name) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".txt":
		return "text/plain; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	}
	return "application/octet-stream"
}

// Files returns the handler of the page's files. It answers GET and HEAD of "/", of the page's address after a
// login on the pages of an identity provider, and of names below Prefix.
func Files() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := "index.html"
		if r.URL.Path != "/" && r.URL.Path != callback {
			name = strings.TrimPrefix(r.URL.Path, Prefix)
		}
		f, ok := files()[name]
		if !ok {
			http.NotFound(w, r)
			return
		}
		f.send(w, r)
	})
}

// send writes the file, unless the browser has it already.
func (f file) send(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	for name, value := range map[string]string{
		"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
		"X-Frame-Options": "DENY", "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
		"Cache-Control": "no-cache", "Vary": "Accept-Encoding", "Content-Type": f.kind,
	} {
		h.Set(name, value)
	}
	etag, body := `"`+f.etag+`"`, f.plain
	if accepts(r.Header.Get("Accept-Encoding")) {
		etag, body = `"`+f.etag+`-gzip"`, f.packed
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("ETag", etag)
	if slices.Contains(words(r.Header.Get("If-None-Match")), etag) {
		h.Del("Content-Encoding")
		h.Del("Content-Type")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_, _ = w.Write(body) // fails if the browser is gone; net/http leaves out the body for HEAD
}

// accepts reports whether a browser takes gzip.
func accepts(header string) bool {
	return slices.ContainsFunc(words(header), func(w string) bool {
		name, q, _ := strings.Cut(w, ";")
		return strings.TrimSpace(name) == "gzip" && strings.ReplaceAll(q, " ", "") != "q=0"
	})
}

// words returns the parts of a header that are separated by commas.
func words(header string) []string {
	var out []string
	for w := range strings.SplitSeq(header, ",") {
		out = append(out, strings.TrimPrefix(strings.TrimSpace(w), "W/"))
	}
	return out
}
