package rest

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/coopr/coopr/engine/problem"
)

// metrics are the metrics of the API. Labels are routes and statuses, never names of objects.
type metrics struct {
	registry *prometheus.Registry // may be nil
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	active   prometheus.Gauge
	streams  prometheus.Gauge
	refused  *prometheus.CounterVec
}

// newMetrics registers the metrics with reg, unless that is nil.
func newMetrics(reg *prometheus.Registry) (*metrics, error) {
	m := &metrics{
		registry: reg,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "coopr_api_requests_total", Help: "HTTP requests answered, by route, method and status.",
		}, []string{"route", "method", "status"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "coopr_api_request_duration_seconds",
			Help:    "Time from a request to the end of its answer, without streams, uploads and blocking reads.",
			Buckets: []float64{.001, .005, .01, .05, .1, .5, 1, 5, 30, 120, 600},
		}, []string{"route", "method"}),
		active: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "coopr_api_requests_active", Help: "HTTP requests being answered.",
		}),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "coopr_api_streams_active", Help: "Blocking reads, event streams and followed logs that are open.",
		}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "coopr_api_refused_total",
			Help: "HTTP requests refused because of a limit, a missing right or a missing leader, by the problem's code.",
		}, []string{"code"}),
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.requests, m.duration, m.active, m.streams, m.refused} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// WriteMetrics writes all metrics of the registry in the text format of Prometheus.
func (s *Server) WriteMetrics(w io.Writer) error {
	if s.metrics.registry == nil {
		return nil
	}
	families, err := s.metrics.registry.Gather()
	if err != nil {
		return err
	}
	enc := expfmt.NewEncoder(w, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, f := range families {
		if err := enc.Encode(f); err != nil {
			return err
		}
	}
	return nil
}

// note passes information about a request from the inner layers to the log. Only the goroutine of
// the request uses it.
type note struct {
	route     string
	tenant    string
	actor     string
	request   string
	forwarded bool
	counted   bool      // among the requests of its source without a valid token
	long      bool      // the request may take as long as its caller likes
	answered  int       // the status that the leader answered with
	again     bool      // the request may be repeated after the error
	until     time.Time // when the request stops waiting for a leader
	err       error
	answer    *recorder // nil in a context without a request
	body      error     // why the body could not be read
}

// sent returns the bytes of the answer so far.
func (n *note) sent() int64 {
	if n.answer == nil {
		return 0
	}
	return n.answer.bytes
}

// begins has f called before the body of the answer is sent.
func (n *note) begins(f func()) {
	if n.answer != nil {
		n.answer.begins = f
	}
}

type noteKey struct{}

func noteOf(ctx context.Context) *note {
	if n, ok := ctx.Value(noteKey{}).(*note); ok {
		return n
	}
	return &note{}
}

// recorder records the status and the size of an answer.
type recorder struct {
	http.ResponseWriter
	status int
	bytes  int64
	begins func() // called before the first bytes
}

// WriteHeader sends only the first status: a problem that occurs while the body is encoded
// (transformProblem) overrides the status that was intended.
func (r *recorder) WriteHeader(status int) {
	if r.status != 0 {
		return
	}
	if status >= 200 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(p []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	if r.begins != nil {
		r.begins()
		r.begins = nil
	}
	n, err := r.ResponseWriter.Write(p)
	r.bytes += int64(n)
	return n, err
}

// Unwrap returns the wrapped writer, on which http.ResponseController flushes and sets deadlines.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// observe is the outermost layer. It counts and logs requests and recovers from panics. It logs
// neither the query, which may have a token, nor any header.
func (s *Server) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		rec := &recorder{ResponseWriter: w}
		n := &note{route: "none", answer: rec}
		r = r.WithContext(context.WithValue(r.Context(), noteKey{}, n))
		s.metrics.active.Inc()
		aborted := true
		defer func() {
			if p := recover(); p != nil {
				if p == http.ErrAbortHandler { //nolint:errorlint // net/http compares so too
					defer panic(p)
				} else {
					s.log.Error("panic in a request", "route", n.route, "method", r.Method, "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
					if rec.status == 0 {
						writeProblem(rec, NewProblem(problem.Internal, "an internal error: the agent's log has its cause"))
					} else {
						defer panic(http.ErrAbortHandler) // the answer is incomplete, and the client must notice
					}
				}
			}
			s.metrics.active.Dec()
			took := time.Since(start)
			status := strconv.Itoa(rec.status)
			if aborted && rec.status == 0 {
				status = "aborted"
			}
			method := methodLabel(r.Method)
			s.metrics.requests.WithLabelValues(n.route, method, status).Inc()
			switch code := problem.CodeOf(n.err); code {
			case problem.Throttled, problem.Quota, problem.TooLarge, problem.Busy,
				problem.Unauthorized, problem.Forbidden, problem.NoLeader:
				s.metrics.refused.WithLabelValues(string(code)).Inc()
			}
			if !n.long {
				s.metrics.duration.WithLabelValues(n.route, method).Observe(took.Seconds())
			}
			s.incident(r, rec.status, n)
			s.access(r, rec, n, took)
		}()
		next.ServeHTTP(rec, r)
		aborted = false
	})
}

// methodLabel returns a request's method as a label. A caller may send any word as a method, so that others than those of
// HTTP have one label.
func methodLabel(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return method
	}
	return "other"
}

func (s *Server) access(r *http.Request, rec *recorder, n *note, took time.Duration) {
	level := slog.LevelDebug
	switch {
	case rec.status >= 500 && rec.status != http.StatusServiceUnavailable:
		level = slog.LevelError
	case r.Method != http.MethodGet || rec.status >= 400:
		level = slog.LevelInfo
	}
	if !s.log.Enabled(r.Context(), level) {
		return
	}
	left := 0
	if n.stranger(rec.status) {
		var ok bool
		if left, ok = s.sources.line(); !ok {
			return
		}
	}
	attrs := []slog.Attr{
		slog.String("method", r.Method), slog.String("path", r.URL.Path), slog.String("route", n.route),
		slog.Int("status", rec.status), slog.Int64("bytes", rec.bytes), slog.Duration("took", took),
		slog.String("from", r.RemoteAddr),
	}
	for _, a := range []slog.Attr{slog.String("tenant", n.tenant), slog.String("actor", n.actor), slog.String("request", n.request)} {
		if a.Value.String() != "" {
			attrs = append(attrs, a)
		}
	}
	if left > 0 {
		attrs = append(attrs, slog.Int("left_out", left))
	}
	if n.forwarded {
		attrs = append(attrs, slog.Bool("forwarded", true))
	}
	if n.err != nil && !errors.Is(n.err, context.Canceled) {
		attrs = append(attrs, slog.Any("error", n.err))
	}
	s.log.LogAttrs(r.Context(), level, "http request", attrs...)
}
