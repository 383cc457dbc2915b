package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"
)

// balancer runs the top tier, which spreads requests over the web servers.
func (p program) balancer(ctx context.Context, args []string) error {
	var listen, name, backends string
	var timeout, interval time.Duration
	s := p.newSettings("balancer")
	s.common(&listen, &name, &timeout)
	s.StringVar(&backends, "backends", "", "comma-separated `URLs` of the web servers; read again from --config when it "+
		"changes or on SIGHUP")
	s.DurationVar(&interval, "interval", time.Second, "how often web servers are checked")
	if err := s.parse(args); err != nil {
		return err
	}
	urls, err := backendURLs(backends)
	if err != nil {
		return fmt.Errorf("%w: backends: %w", errUsage, err)
	}
	if interval <= 0 {
		return fmt.Errorf("%w: interval: want more than 0, got %s", errUsage, interval)
	}
	log := p.logger("balancer", name)
	transport := &http.Transport{MaxIdleConnsPerHost: 64, ResponseHeaderTimeout: timeout,
		DialContext: (&net.Dialer{Timeout: timeout}).DialContext}
	defer transport.CloseIdleConnections()
	pool := &pool{log: log, client: &http.Client{Transport: transport, Timeout: timeout}}
	pool.set(urls)

	ctx, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	kick := make(chan struct{}, 1)
	wg.Go(func() { pool.keepChecking(ctx, interval, kick) })
	if s.fromFile["backends"] {
		wg.Go(func() { reload(ctx, log, s.config, interval, p.hup, pool, kick) })
	}
	return serve(ctx, log, listen, timeout, balancerHandler(name, log, pool, transport))
}

// backendURLs parses a comma-separated list. The error names all faulty entries.
func backendURLs(list string) ([]string, error) {
	var out []string
	var faults []error
	for part := range strings.SplitSeq(list, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		u, err := httpURL(part)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		out = append(out, u)
	}
	return out, errors.Join(faults...)
}

// reload replaces the pool's list when the file changes or hup receives a signal. An unreadable
// file leaves the list unchanged.
func reload(ctx context.Context, log *slog.Logger, path string, every time.Duration, hup <-chan os.Signal, pool *pool,
	kick chan<- struct{}) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	last := "" // "" makes the first tick read the file again, as it may have changed since the start
	for {
		forced := false
		select {
		case <-ctx.Done():
			return
		case <-hup:
			forced = true
		case <-tick.C:
		}
		raw, err := backendsIn(path)
		if err == nil && raw == last && !forced {
			continue
		}
		var urls []string
		if err == nil {
			urls, err = backendURLs(raw)
		}
		if err != nil {
			if key := "fault: " + err.Error(); key != last { // logged once, not at every tick
				log.Error("settings are not applied, the old ones stay in force", "why", err)
				last = key
			}
			continue
		}
		last = raw
		pool.set(urls)
		log.Info("settings read", "backends", len(urls))
		select {
		case kick <- struct{}{}:
		default:
		}
	}
}

func backendsIn(path string) (string, error) {
	values, err := readSettings(path)
	if err != nil {
		return "", err
	}
	out := ""
	for _, v := range values {
		if v.name == "backends" {
			out = v.value
		}
	}
	return out, nil
}

func balancerHandler(name string, log *slog.Logger, pool *pool, transport http.RoundTripper) http.Handler {
	spread := spreader{pool, transport}
	proxy := &httputil.ReverseProxy{
		Transport: spread,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetXForwarded()
			r.Out.Header.Set(balancerHeader, name)
		},
		ModifyResponse: func(r *http.Response) error {
			r.Header.Set(balancerHeader, name)
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() != nil {
				return // the client has gone
			}
			status := http.StatusBadGateway
			if errors.Is(err, errNoBackend) {
				status = http.StatusServiceUnavailable
			}
			writeError(w, status, "balancer %s: %v", name, err)
		},
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	mux := http.NewServeMux()
	mux.Handle("/", proxy)
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, r *http.Request) {
		req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "http://web/health", nil)
		var h health
		if err == nil {
			err = fetch(&http.Client{Transport: spread}, req, &h)
		}
		if err != nil {
			writeError(w, http.StatusServiceUnavailable, "balancer %s: %v", name, err)
			return
		}
		h.Balancer = name
		h.Alive, h.Backends = pool.count()
		writeJSON(w, http.StatusOK, h)
	})
	return mux
}

// errNoBackend means that no web server could take a request.
var errNoBackend = errors.New("no web server")

// spreader sends each request to the next web server, the live ones first, and to another one if it
// does not answer and a repetition is safe.
type spreader struct {
	pool *pool
	base http.RoundTripper
}

func (s spreader) RoundTrip(req *http.Request) (*http.Response, error) {
	tried := map[string]bool{}
	var faults []error
	for {
		at, ok := s.pool.pick(tried)
		if !ok {
			if req.Body != nil {
				_ = req.Body.Close() // a RoundTripper always closes the body
			}
			if len(faults) > 0 {
				return nil, fmt.Errorf("%w: %w", errNoBackend, errors.Join(faults...))
			}
			return nil, fmt.Errorf("%w: no web servers are configured", errNoBackend)
		}
		tried[at] = true
		to, err := url.Parse(at)
		if err != nil {
			return nil, err
		}
		out := req.Clone(req.Context())
		out.URL.Scheme, out.URL.Host, out.Host = to.Scheme, to.Host, ""
		resp, err := s.base.RoundTrip(out)
		if err == nil || req.Context().Err() != nil {
			return resp, err
		}
		s.pool.mark(at, err)
		faults = append(faults, err)
		if !repeatable(req, err) {
			return nil, err
		}
	}
}

// repeatable reports whether a failed request may be sent to another server: it changes nothing, or
// was never sent. A request with a body is not, because the body has been read.
func repeatable(req *http.Request, err error) bool {
	if req.Body != nil && req.Body != http.NoBody {
		return false
	}
	var op *net.OpError
	return req.Method == http.MethodGet || req.Method == http.MethodHead || errors.As(err, &op) && op.Op == "dial"
}
