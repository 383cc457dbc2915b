package rest

import (
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/coopr/coopr/engine/access"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/server/sdklike"
)

// Config configures the API.
type Config struct {
	Services Services
	Logger   *slog.Logger
	// Registry holds the API's metrics. GET /v1/metrics shows all metrics of the registry. If
	// it is nil, the metrics are not registered and nothing is shown.
	Registry *prometheus.Registry
	// Name identifies this agent in the headers of requests that it forwards.
	Name string
	// Patience is how long a request waits for a leader, counted from its arrival, unless it asks for
	// another time (api.HeaderHold); 0 means 600 ms.
	Patience time.Duration
	// Heartbeat is how often an idle event stream sends a sign of life; 0 means 15 seconds.
	Heartbeat time.Duration
	// MaxBody bounds a request's body in bytes; 0 means MaxBody.
	MaxBody int64
	// MaxWatches bounds the number of concurrent blocking reads, event streams and followed logs;
	// 0 means no limit.
	MaxWatches int
	// Bounds are the limits of what tenants and strangers make the agent do.
	Bounds Bounds
	// Dev agents give Root, the superadmin's token, to the console at one click from loopback.
	Dev  bool
	Root string
	// Pages: an identity provider has people log in on its own pages.
	Pages  bool
	Issuer string // of tokens of tasks; "": the mesh issues none
	// Now is the clock for the usage of runs and for schedules. If it is nil, it is time.Now.
	Now func() time.Time
}

// Server registers routes and serves them.
type Server struct {
	Services
	Issuer    string // as in Config
	log       *slog.Logger
	metrics   *metrics
	name      string
	patience  time.Duration
	heartbeat time.Duration
	maxBody   int64
	clock     func() time.Time
	pages     bool
	devToken  string        // "" outside of dev mode
	watches   chan struct{} // has a free slot for each further watch; nil: no limit
	loads     *loads
	sources   *sources
	callers   callers
	sets      access.Sets
	mux       *http.ServeMux
	api       huma.API
}

// New returns a server without routes. Without services its routes only have a document.
func New(cfg Config) (*Server, error) {
	m, err := newMetrics(cfg.Registry)
	if err != nil {
		return nil, fmt.Errorf("HTTP API: metrics: %w", err)
	}
	s := &Server{
		Services: cfg.Services, metrics: m,
		log: slog.New(slog.DiscardHandler), name: "agent",
		patience: 600 * time.Millisecond, heartbeat: 15 * time.Second, maxBody: MaxBody,
		mux: http.NewServeMux(), clock: time.Now, pages: cfg.Pages, Issuer: cfg.Issuer,
	}
	s.api = humago.New(s.mux, humaConfig())
	if cfg.Logger != nil {
		s.log = cfg.Logger
	}
	if cfg.Name != "" {
		s.name = cfg.Name
	}
	if cfg.Patience > 0 {
		s.patience = cfg.Patience
	}
	if cfg.Heartbeat > 0 {
		s.heartbeat = cfg.Heartbeat
	}
	if cfg.MaxBody > 0 {
		s.maxBody = cfg.MaxBody
	}
	s.loads, s.sources = newLoads(cfg.Bounds, s.maxBody), newSources(cfg.Bounds.Strangers)
	if cfg.Dev {
		s.devToken = cfg.Root
	}
	if cfg.Now != nil {
		s.clock = cfg.Now
	}
	if cfg.MaxWatches > 0 {
		s.watches = make(chan struct{}, cfg.MaxWatches)
	}
	return s, nil
}

// Handler returns the handler of the registered routes and of their document.
func (s *Server) Handler() http.Handler {
	s.serveDocument()
	return s.observe(carried(s.again(sdklike.Handler(s.routed()))))
}

// Millis returns the present time in Unix milliseconds.
func (s *Server) Millis() int64 { return s.clock().UnixMilli() }

// Beats returns how often an idle event stream sends a sign of life.
func (s *Server) Beats() time.Duration { return s.heartbeat }

// routed dispatches requests to their routes. It answers requests without a route, or with an
// unsupported method, with a problem document.
func (s *Server) routed() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := s.mux.Handler(r); pattern == "" {
			probe := &probe{header: http.Header{}}
			s.mux.ServeHTTP(probe, r)
			if allow := probe.header.Get("Allow"); allow != "" {
				w.Header().Set("Allow", allow)
				writeProblem(w, NewProblem(problem.Method, fmt.Sprintf("%s does not support %s: use %s", r.Method, r.URL.Path, allow)))
				return
			}
			if err := s.sources.request(r); err != nil {
				writeProblem(w, ProblemOf(err))
				return
			}
			writeProblem(w, NotFound("there is no %s: the routes are in /v1/openapi.json", r.URL.Path))
			return
		}
		s.mux.ServeHTTP(w, r)
	})
}

// probe is a ResponseWriter that records the headers of the mux's answer.
type probe struct {
	header http.Header
}

func (p *probe) Header() http.Header         { return p.header }
func (p *probe) Write(b []byte) (int, error) { return len(b), nil }
func (p *probe) WriteHeader(int)             {}
