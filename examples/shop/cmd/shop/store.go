package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"time"
)

// keyPattern matches valid keys.
var keyPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,200}$`)

// maxValue bounds one value, in bytes.
const maxValue = 1 << 20

// store runs the bottom tier, which serves a data file.
func (p program) store(ctx context.Context, args []string) (err error) {
	var listen, name, path string
	var timeout time.Duration
	s := p.newSettings("store")
	s.common(&listen, &name, &timeout)
	s.StringVar(&path, "data", "shop.db", "`file` that holds the keys")
	if err := s.parse(args); err != nil {
		return err
	}
	d, err := openData(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	return serve(ctx, p.logger("store", name), listen, timeout, storeHandler(name, d))
}

// seed writes the first catalogue, unless the file has one.
func (p program) seed(_ context.Context, args []string) (err error) {
	var path string
	s := p.newSettings("seed")
	s.StringVar(&path, "data", "shop.db", "`file` that holds the keys")
	if err := s.parse(args); err != nil {
		return err
	}
	d, err := openData(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	if _, done := d.get("seeded"); done {
		_, err := fmt.Fprintf(p.stdout, "%s is seeded already\n", path)
		return err
	}
	for _, kv := range [][2]string{
		{"item.apples", "1.20"}, {"item.bread", "2.80"}, {"item.coffee", "6.50"},
		{"seeded", time.Now().UTC().Format(time.RFC3339)}, // last, so that an interrupted seed is repeated
	} {
		if err := d.set(kv[0], kv[1]); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(p.stdout, "seeded %s\n", path)
	return err
}

// stored is the store's answer about one key.
type stored struct {
	Store string `json:"store"`
	Value string `json:"value"`
}

// counted is the store's answer to a count, and its health.
type counted struct {
	Store  string `json:"store"`
	Visits int64  `json:"visits"`
}

func storeHandler(name string, d *data) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{"store": name, "keys": d.all()})
	})
	mux.HandleFunc("GET /keys/{key}", func(w http.ResponseWriter, r *http.Request) {
		v, ok := d.get(r.PathValue("key"))
		if !ok {
			writeError(w, http.StatusNotFound, "no key %q", r.PathValue("key"))
			return
		}
		writeJSON(w, http.StatusOK, stored{name, v})
	})
	mux.HandleFunc("PUT /keys/{key}", func(w http.ResponseWriter, r *http.Request) {
		key := r.PathValue("key")
		b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxValue))
		var tooBig *http.MaxBytesError
		switch {
		case !keyPattern.MatchString(key):
			writeError(w, http.StatusBadRequest, "key %q: want %s", key, keyPattern)
			return
		case errors.As(err, &tooBig):
			writeError(w, http.StatusRequestEntityTooLarge, "value of %q: more than %d bytes", key, maxValue)
			return
		case err != nil:
			return // the client has gone
		}
		if err := d.set(key, string(b)); err != nil {
			writeError(w, http.StatusInternalServerError, "%v", err)
			return
		}
		writeJSON(w, http.StatusOK, stored{name, string(b)})
	})
	mux.HandleFunc("DELETE /keys/{key}", func(w http.ResponseWriter, r *http.Request) {
		there, err := d.remove(r.PathValue("key"))
		switch {
		case err != nil:
			writeError(w, http.StatusInternalServerError, "%v", err)
		case !there:
			writeError(w, http.StatusNotFound, "no key %q", r.PathValue("key"))
		default:
			w.WriteHeader(http.StatusNoContent)
		}
	})
	mux.HandleFunc("POST /visits", func(w http.ResponseWriter, _ *http.Request) {
		n, err := d.count("visits")
		if err != nil {
			writeError(w, http.StatusInternalServerError, "%v", err)
			return
		}
		writeJSON(w, http.StatusOK, counted{name, n})
	})
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		n, err := d.number("visits")
		if err == nil {
			_, err = os.Stat(d.path) // a store whose file was deleted would lose every later write
		}
		if err != nil {
			writeError(w, http.StatusInternalServerError, "store %s: %v", name, err)
			return
		}
		writeJSON(w, http.StatusOK, counted{name, n})
	})
	return mux
}
