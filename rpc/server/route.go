package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"go.yaml.in/yaml/v3"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/internal/words"
	"github.com/coopr/coopr/rpc/api"
)

// rule determines the callers that may use a route, and the agent that answers it.
type rule struct {
	// public routes need no token.
	public bool
	// local routes are answered by the agent that receives the request, whether it leads or not.
	local bool
	// need is the least role that may use the route.
	need model.Role
	// streamed bodies have no limit in size.
	streamed bool
	// watches routes last until their reader disconnects.
	watches bool
	// once: requests with the same request id are carried out once, so that a request with an
	// unknown outcome may be repeated.
	once bool
	// secret answers are shown only once.
	secret bool
	// allTenants lets a superadmin select all tenants at once.
	allTenants bool
}

// route is one row of the API's table.
type route struct {
	id, method, path string
	tag, summary     string
	description      string
	status           int
	rule             rule
	// optional bodies may be left out.
	optional bool
	// bare reads take neither index nor consistency.
	bare bool
}

const ruleKey = "coopr.rule"

// Reply is the answer of a handler that returns JSON.
type Reply[T any] struct {
	Status   int
	Index    string `header:"Coopr-Index" doc:"The index of the state that the answer is from"`
	Repeated string `header:"Coopr-Repeated" doc:"true if a write with the same request id was carried out before"`
	Total    string `header:"Coopr-Total" doc:"The length of the whole list, where the answer is a part of it"`
	Body     T
}

// read registers a route that reads the state.
func read[I, T any](s *server, r route, h func(context.Context, *call, View, *I) (T, error)) {
	r.method = http.MethodGet
	register(s, r, func(ctx context.Context, c *call, in *I) (*Reply[T], error) {
		v, err := s.view(ctx, c)
		if err != nil {
			return nil, err
		}
		body, err := h(ctx, c, v, in)
		if err != nil {
			return nil, err
		}
		return &Reply[T]{Body: body, Index: strconv.FormatUint(v.Index(), 10)}, nil
	})
}

// list is like read, for a part of a list. h also returns the length of the whole list.
func list[I, T any](s *server, r route, h func(context.Context, *call, View, *I) ([]T, int, error)) {
	r.method = http.MethodGet
	register(s, r, func(ctx context.Context, c *call, in *I) (*Reply[[]T], error) {
		v, err := s.view(ctx, c)
		if err != nil {
			return nil, err
		}
		body, total, err := h(ctx, c, v, in)
		if err != nil {
			return nil, err
		}
		if body == nil {
			body = []T{}
		}
		return &Reply[[]T]{Body: body, Index: strconv.FormatUint(v.Index(), 10), Total: strconv.Itoa(total)}, nil
	})
}

// write registers a route that changes the state.
func write[I, T any](s *server, r route, h func(context.Context, *call, *I) (T, api.Written, error)) {
	r.rule.once = !r.rule.secret
	register(s, r, func(ctx context.Context, c *call, in *I) (*Reply[T], error) {
		body, w, err := h(ctx, c, in)
		if err != nil {
			return nil, err
		}
		reply := &Reply[T]{Body: body}
		if st, ok := any(body).(interface{ HTTPStatus() int }); ok {
			reply.Status = st.HTTPStatus()
		}
		if w.Index > 0 {
			reply.Index = strconv.FormatUint(w.Index, 10)
		}
		if w.Repeated {
			reply.Repeated = "true"
		}
		return reply, nil
	})
}

// ask registers a route that does not look at the replicated state.
func ask[I, T any](s *server, r route, h func(context.Context, *call, *I) (T, error)) {
	r.bare = true
	register(s, r, func(ctx context.Context, c *call, in *I) (*Reply[T], error) {
		body, err := h(ctx, c, in)
		if err != nil {
			return nil, err
		}
		return &Reply[T]{Body: body}, nil
	})
}

func register[I, T any](s *server, r route, h func(context.Context, *call, *I) (*Reply[T], error)) {
	op := s.operation(r)
	huma.Register(s.api, op, func(ctx context.Context, in *I) (*Reply[T], error) {
		var c *call // a public route has no caller
		if !r.rule.public {
			c = callOf(ctx)
		}
		reply, err := h(ctx, c, in)
		if err != nil {
			n := noteOf(ctx)
			n.err, n.again = err, r.rule.mayPass(err)
			return nil, problemOf(err)
		}
		if reply.Status == 0 {
			reply.Status = op.DefaultStatus
		}
		return reply, nil
	})
	s.finish(op, r)
}

// stream registers a route whose handler writes the answer piece by piece.
func stream[I any](s *server, r route, contentType, what string, h func(context.Context, *call, *I, http.ResponseWriter, *http.Request) error) {
	op := s.operation(r)
	op.Responses = map[string]*huma.Response{strconv.Itoa(op.DefaultStatus): {
		Description: what,
		Content:     map[string]*huma.MediaType{contentType: {Schema: &huma.Schema{Type: huma.TypeString}}},
	}}
	huma.Register(s.api, op, func(ctx context.Context, in *I) (*huma.StreamResponse, error) {
		c := callOf(ctx)
		return &huma.StreamResponse{Body: func(hctx huma.Context) {
			req, w := humago.Unwrap(hctx)
			out := &lateWriter{w: w, contentType: contentType}
			if err := h(ctx, c, in, out, req); err != nil {
				c.note.err, c.note.again = err, r.rule.mayPass(err)
				if out.begun {
					panic(http.ErrAbortHandler) // the client must notice that the answer is incomplete
				}
				writeProblem(w, problemOf(err))
			}
		}}, nil
	})
	s.finish(op, r)
}

// lateWriter sends the headers with the first piece, so that an earlier error can still be
// answered with a problem document. It flushes every piece.
type lateWriter struct {
	w           http.ResponseWriter
	contentType string
	begun       bool
}

func (l *lateWriter) Header() http.Header { return l.w.Header() }

func (l *lateWriter) WriteHeader(status int) {
	if !l.begun {
		l.begun = true
		if l.w.Header().Get("Content-Type") == "" {
			l.w.Header().Set("Content-Type", l.contentType)
		}
		l.w.WriteHeader(status)
	}
}

func (l *lateWriter) Write(p []byte) (int, error) {
	l.WriteHeader(http.StatusOK)
	n, err := l.w.Write(p)
	if err == nil {
		_ = http.NewResponseController(l.w).Flush()
	}
	return n, err
}

// Flush sends the headers if they were not sent before.
func (l *lateWriter) Flush() {
	l.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(l.w).Flush()
}

// operation returns huma's description of a route, with the parts that all routes of its kind
// share.
func (s *server) operation(r route) huma.Operation {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	op := huma.Operation{
		OperationID: r.id, Method: r.method, Path: r.path, Summary: r.summary, Description: r.description,
		Tags: []string{r.tag}, DefaultStatus: r.status,
		MaxBodyBytes: -1, BodyReadTimeout: -1, // limitedBody enforces both limits
		SkipValidateBody: true,
		RequestBody:      nil,
		Metadata:         map[string]any{ruleKey: r.rule},
		Middlewares:      huma.Middlewares{s.enter},
	}
	text := func() *huma.Schema { return &huma.Schema{Type: huma.TypeString} }
	if r.rule.public {
		op.Security = []map[string][]string{{}}
		return op
	}
	if !r.rule.local {
		op.Parameters = append(op.Parameters,
			&huma.Param{Name: "tenant", In: "query", Schema: text(), Description: "Another tenant than the token's, for superadmins; also as the header " + api.HeaderTenant},
		)
	}
	switch {
	case r.method != http.MethodGet:
		op.Parameters = append(op.Parameters, &huma.Param{Name: api.HeaderRequest, In: "header", Schema: &huma.Schema{Type: huma.TypeString, Pattern: requestID.String()}, Description: "Requests with the same id are carried out once"})
	case !r.bare && !r.rule.local:
		op.Parameters = append(op.Parameters,
			&huma.Param{Name: "index", In: "query", Schema: &huma.Schema{Type: huma.TypeInteger, Format: "int64"}, Description: "Wait until the state is newer than this index"},
			&huma.Param{Name: "wait", In: "query", Schema: text(), Description: "Maximum time to wait, such as 30s; 60s if absent, 10m at most"},
			&huma.Param{Name: "consistency", In: "query", Schema: &huma.Schema{Type: huma.TypeString, Enum: []any{"default", "consistent", "stale"}}, Description: "default: the leader's state; consistent: confirmed by the voters first; stale: the copy of the asked agent"},
		)
	}
	op.RequestBody = &huma.RequestBody{}
	return op
}

// finish completes the document of a route after its registration.
func (s *server) finish(op huma.Operation, r route) {
	item := s.api.OpenAPI().Paths[r.path]
	for _, o := range []*huma.Operation{item.Get, item.Put, item.Post, item.Delete} {
		if o == nil || o.OperationID != r.id {
			continue
		}
		if body := o.RequestBody; body != nil {
			if len(body.Content) == 0 && !r.rule.streamed {
				o.RequestBody = nil
			} else if !r.rule.streamed {
				body.Required = !r.optional
				body.Content["application/yaml"] = &huma.MediaType{Schema: body.Content["application/json"].Schema}
			}
		}
		if r.status == http.StatusAccepted {
			// 200 means that nothing was started: a dry run, or nothing to do.
			o.Responses["200"] = &huma.Response{Description: "Nothing was started", Content: o.Responses["202"].Content}
		}
		o.Responses["default"] = &huma.Response{
			Description: "A problem document (RFC 9457)",
			Content:     map[string]*huma.MediaType{api.ProblemContentType: {Schema: s.api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[api.Problem](), true, "Problem")}},
		}
	}
}

// enter runs before every handler. It decides which agent answers, and authenticates and
// authorises the caller.
func (s *server) enter(hctx huma.Context, next func(huma.Context)) {
	op := hctx.Operation()
	ru := op.Metadata[ruleKey].(rule)
	r, w := humago.Unwrap(hctx)
	n := noteOf(r.Context())
	n.route = op.OperationID
	if ru.public {
		next(hctx)
		return
	}
	refuse := func(err error) {
		n.err = err
		writeProblem(w, problemOf(err))
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		refuse(malformed(model.Faults{{Path: "query", Message: err.Error()}}))
		return
	}
	if err := s.checkBody(w, r, op, ru); err != nil {
		refuse(err)
		return
	}
	if ru.watches || query.Get("index") != "" || query.Get("follow") == "true" {
		leave, err := s.watch()
		if err != nil {
			refuse(err)
			return
		}
		defer leave()
	}
	stale := !ru.local && r.Method == http.MethodGet && api.Consistency(query.Get("consistency")) == api.Stale
	if !ru.local && !s.Router.Serves(stale) {
		if r.Header.Get(api.HeaderForwarded) != "" {
			w.Header().Set(api.HeaderNotLeader, s.name)
			refuse(problem.New(problem.NoLeader, "agent %s is not the leader", s.name))
			return
		}
		if s.forward(w, r, stale, ru) {
			return
		}
	}
	c := &call{note: n}
	if faults := c.parse(op, query); len(faults) > 0 {
		refuse(invalid(faults))
		return
	}
	if err := s.authenticate(r.Context(), r, query, ru, c); err != nil {
		refuse(err)
		return
	}
	if c.who.Request != "" {
		w.Header().Set(api.HeaderRequest, c.who.Request)
	}
	next(huma.WithContext(hctx, context.WithValue(r.Context(), callKey{}, c)))
}

// watch reserves one of the places for requests that wait.
func (s *server) watch() (leave func(), err error) {
	if s.watches == nil {
		return func() {}, nil
	}
	select {
	case s.watches <- struct{}{}:
		return func() { <-s.watches }, nil
	default:
		return nil, newProblem(problem.Busy, fmt.Sprintf("this agent has %d readers that wait already: try again later, or ask another agent", cap(s.watches)))
	}
}

// checkBody checks the headers of the body and limits it.
func (s *server) checkBody(w http.ResponseWriter, r *http.Request, op *huma.Operation, ru rule) error {
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	if !ru.streamed && r.ContentLength > s.maxBody {
		return bodyProblem(&errTooLarge{s.maxBody})
	}
	n := noteOf(r.Context())
	r.Body = &limitedBody{
		ReadCloser: r.Body, control: http.NewResponseController(w), limit: s.maxBody, left: s.maxBody, streamed: ru.streamed,
		failed: func(err error) { n.body, n.err = err, err },
	}
	if op.RequestBody == nil || ru.streamed || r.ContentLength == 0 {
		return nil
	}
	given := r.Header.Get("Content-Type")
	if given == "" {
		return nil
	}
	kind, _, err := mime.ParseMediaType(given)
	if err == nil && slices.Contains([]string{"application/json", "application/yaml", "application/x-yaml", "text/yaml"}, kind) {
		return nil
	}
	p := newProblem(problem.Malformed, fmt.Sprintf("the body has Content-Type %q: send JSON or YAML, with Content-Type: application/json or application/yaml", given))
	p.Status = http.StatusUnsupportedMediaType
	return p
}

// The bounds on waiting for a newer state.
const (
	defaultWait = time.Minute
	maxWait     = 10 * time.Minute
)

type waitTime time.Duration

// parse parses the parameters that all routes share, and reports unknown ones.
func (c *call) parse(op *huma.Operation, query url.Values) model.Faults {
	var faults model.Faults
	known := []string{"token", "tenant"}
	for _, p := range op.Parameters {
		if p.In == "query" {
			known = append(known, p.Name)
		}
	}
	for name := range query {
		if !slices.Contains(known, name) {
			hint := ""
			if near := words.Nearest(name, known); near != "" {
				hint = fmt.Sprintf(": did you mean %q?", near)
			}
			faults.Add("query."+name, "unknown parameter"+hint)
		}
	}
	slices.SortFunc(faults, func(a, b *model.Fault) int { return strings.Compare(a.Path, b.Path) })
	c.consistency, c.wait = api.Default, waitTime(defaultWait)
	switch cons := api.Consistency(query.Get("consistency")); cons {
	case "":
	case api.Default, api.Consistent, api.Stale:
		c.consistency = cons
	default:
		faults.Add("query.consistency", fmt.Sprintf("must be default, consistent or stale, but is %q", cons))
	}
	if t := query.Get("index"); t != "" {
		i, err := strconv.ParseUint(t, 10, 64)
		if err != nil {
			faults.Add("query.index", fmt.Sprintf("must be a whole number, but is %q", t))
		}
		c.after = i
	}
	if t := query.Get("wait"); t != "" {
		d, err := time.ParseDuration(t)
		switch {
		case err != nil || d < 0:
			faults.Add("query.wait", fmt.Sprintf("must be a duration such as 30s, but is %q", t))
		default:
			c.wait = waitTime(min(d, maxWait))
		}
	}
	return faults
}

// view returns the state that a read asks for. It waits for a newer one if the read asks for that.
func (s *server) view(ctx context.Context, c *call) (View, error) {
	if c.after > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(c.wait))
		defer cancel()
	}
	return s.State.View(ctx, c.consistency, c.after)
}

// now returns the present state, for the answer to a write.
func (s *server) now(ctx context.Context) (View, error) { return s.State.View(ctx, api.Default, 0) }

// raw is a request's body, which the document describes as a T. The handler decodes it, strictly
// and with all faults at once.
type raw[T any] struct{ data []byte }

func (b *raw[T]) take(data []byte) { b.data = bytes.Clone(data) }

// Schema returns the schema of T.
func (raw[T]) Schema(r huma.Registry) *huma.Schema { return r.Schema(reflect.TypeFor[T](), true, "") }

// value decodes the body; an empty one is the zero T.
func (b raw[T]) value() (T, error) {
	var v T
	if err := model.DecodeStrict(b.data, &v); err != nil {
		return v, judge(err, b.data)
	}
	return v, nil
}

// by decodes the body with a function.
func (b raw[T]) by(decode func([]byte) (T, error)) (T, error) {
	v, err := decode(b.data)
	if err != nil {
		return v, judge(err, b.data)
	}
	return v, nil
}

// readBody is called by huma instead of a decoder. It keeps the bytes.
func readBody(data []byte, v any) error {
	b, ok := v.(interface{ take([]byte) })
	if !ok {
		return fmt.Errorf("the body cannot be decoded into a %T", v)
	}
	b.take(data)
	return nil
}

// judge returns the problem for a body that could not be decoded: malformed if the text is neither
// JSON nor YAML, and invalid if its content has faults.
func judge(err error, data []byte) error {
	var faults model.Faults
	if !errors.As(err, &faults) {
		return err
	}
	text := bytes.TrimSpace(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")))
	var whole yaml.Node
	switch {
	case len(text) == 0:
		return malformed(faults)
	case text[0] == '{' || text[0] == '[':
		if !json.Valid(text) {
			return malformed(faults)
		}
	case yaml.Unmarshal(text, &whole) != nil:
		return malformed(faults)
	}
	return invalid(faults)
}
