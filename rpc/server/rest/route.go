package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"go.yaml.in/yaml/v3"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/model/decode"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/api"
)

// Rule determines how a route is answered, and by which agent. What its callers must be allowed to do is in
// rightsTable.
type Rule struct {
	// Public routes need no token.
	Public bool
	// Open routes need no token either, and are answered by the leader. Their bodies are small.
	Open bool
	// Password routes compare one. A wrong one, answered with 401 or 403, slows down the next ones from its source.
	Password bool
	// Names returns the user whose password is in the body of an open route, or "". Without it, guesses count for their source alone.
	Names func(body []byte) string
	// Local routes are answered by the agent that receives the request, whether it leads or not.
	Local bool
	// Streamed bodies have no limit in size.
	Streamed bool
	// Duplex routes answer while they read the body, and bound it themselves.
	Duplex bool
	// Watches routes last until their reader disconnects.
	Watches bool
	// Once: requests with the same request id are carried out once, so that a request with an
	// unknown outcome may be repeated.
	Once bool
	// Secret answers are shown only once.
	Secret bool
	// Planned routes start an operation. What policies forbid about it, the orchestrator finds out once it is planned. A route that
	// changes a lease decides by itself.
	Planned bool
	// Own routes are about the caller: no other tenant can be named.
	Own bool
	// Later routes start something that the mesh goes on with in the name of the caller. A token that may do less than its user
	// cannot use them, because the mesh would go on with the rights of the user.
	Later bool
	// Private bodies have passwords, so that what is wrong with them is not logged.
	Private bool
	// AllTenants lets a superadmin select all tenants at once.
	AllTenants bool
}

// anybody reports whether a route needs no token.
func (r Rule) anybody() bool { return r.Public || r.Open }

// Route is one row of the API's table.
type Route struct {
	ID, Method, Path string
	Tag, Summary     string
	Description      string
	Status           int
	Rule             Rule
	// Optional bodies may be left out.
	Optional bool
	// Bare reads take neither index nor consistency.
	Bare bool
	// Order is set for lists: the fields of their own order, as listing.ShapeOf has them.
	Order string
	// Paged lists had limits and offsets before all lists had limits.
	Paged bool
}

const ruleKey = "coopr.rule"

// Reply is the answer of a handler that returns JSON.
type Reply[T any] struct {
	Status   int
	Index    string `header:"Coopr-Index" doc:"The index of the state that the answer is from"`
	Age      string `header:"Coopr-Age" doc:"Of a stale read: how long ago the answering agent last heard from the leader; absent: not since it started"`
	Repeated string `header:"Coopr-Repeated" doc:"true if a write with the same request id was carried out before"`
	Total    string `header:"Coopr-Total" doc:"How many rows the whole list has that the filter selects; absent if they were not counted"`
	Next     string `header:"Coopr-Next" doc:"The cursor of the next page; absent on the last one"`
	Body     T
}

// Read registers a route that reads the state.
func Read[I, T any](s *Server, r Route, h func(context.Context, *Call, View, *I) (T, error)) {
	r.Method = http.MethodGet
	register(s, r, func(ctx context.Context, c *Call, in *I) (*Reply[T], error) {
		v, err := s.View(ctx, c)
		if err != nil {
			return nil, err
		}
		body, err := h(ctx, c, v, in)
		if err != nil {
			return nil, err
		}
		return &Reply[T]{Body: body, Index: strconv.FormatUint(v.Index(), 10), Age: ageOf(c, v)}, nil
	})
}

// ageOf returns the age of the state that a stale read was answered from, or "".
func ageOf(c *Call, v View) string {
	if age, ok := v.Age(); ok && c.consistency == api.Stale {
		return age.Round(time.Millisecond).String()
	}
	return ""
}

// Write registers a route that changes the state.
func Write[I, T any](s *Server, r Route, h func(context.Context, *Call, *I) (T, api.Written, error)) {
	r.Rule.Once = !r.Rule.Secret
	register(s, r, func(ctx context.Context, c *Call, in *I) (*Reply[T], error) {
		body, w, err := h(ctx, c, in)
		if c != nil && c.retried && refuses(err) {
			done, unsure := s.State.RefuseCopies(ctx, c.Who, problem.CodeOf(err))
			switch {
			case unsure != nil:
				err = unsure
			case done:
				body, w, err = h(ctx, c, in) // a copy was carried out meanwhile
			}
		}
		if err != nil {
			return nil, err
		}
		reply := &Reply[T]{Body: body, Status: statusOf(body)}
		if w.Index > 0 {
			reply.Index = strconv.FormatUint(w.Index, 10)
		}
		if w.Repeated {
			reply.Repeated = "true"
		}
		return reply, nil
	})
}

// refuses reports whether an error is the refusal of a write that a later state may allow. One for lack of a right is none: who may
// not write writes nothing, not even that.
func refuses(err error) bool {
	switch problem.CodeOf(err) {
	case problem.NotFound, problem.Conflict, problem.Stale, problem.Refused, problem.Invalid, problem.Quota, problem.Unsolvable:
		return true
	}
	return false
}

// Ask registers a route that does not read the replicated state.
func Ask[I, T any](s *Server, r Route, h func(context.Context, *Call, *I) (T, error)) {
	r.Bare = true
	register(s, r, func(ctx context.Context, c *Call, in *I) (*Reply[T], error) {
		body, err := h(ctx, c, in)
		if err != nil {
			return nil, err
		}
		return &Reply[T]{Body: body, Status: statusOf(body)}, nil
	})
}

// statusOf returns the HTTP status that an answer asks for, or 0 for that of its route.
func statusOf(body any) int {
	if st, ok := body.(interface{ HTTPStatus() int }); ok {
		return st.HTTPStatus()
	}
	return 0
}

func register[I, T any](s *Server, r Route, h func(context.Context, *Call, *I) (*Reply[T], error)) {
	op := s.operation(r)
	huma.Register(s.api, op, func(ctx context.Context, in *I) (*Reply[T], error) {
		var c *Call // a public route has no caller
		if !r.Rule.anybody() {
			c = callOf(ctx)
		}
		reply, err := h(ctx, c, in)
		if err == nil && c != nil && !c.done {
			err = fmt.Errorf("the route %s was answered without a decision", r.ID)
		}
		if err != nil {
			n := noteOf(ctx)
			n.err, n.again = err, r.Rule.mayPass(err)
			if r.Rule.Private {
				n.err = problem.CodeOf(err)
			}
			return nil, ProblemOf(err)
		}
		if reply.Status == 0 {
			reply.Status = op.DefaultStatus
		}
		return reply, nil
	})
	s.finish(op, r)
}

// Stream registers a route whose handler writes the answer piece by piece.
func Stream[I any](s *Server, r Route, contentType, what string,
	h func(context.Context, *Call, *I, http.ResponseWriter, *http.Request) error) {
	op := s.operation(r)
	op.Responses = map[string]*huma.Response{strconv.Itoa(op.DefaultStatus): {
		Description: what,
		Content:     map[string]*huma.MediaType{contentType: {Schema: &huma.Schema{Type: huma.TypeString}}},
	}}
	huma.Register(s.api, op, func(ctx context.Context, in *I) (*huma.StreamResponse, error) {
		c := callOf(ctx)
		return &huma.StreamResponse{Body: func(hctx huma.Context) {
			req, w := humago.Unwrap(hctx)
			out := &lateWriter{w: w, contentType: contentType, call: c}
			if err := h(ctx, c, in, out, req.WithContext(ctx)); err != nil {
				c.note.err, c.note.again = err, r.Rule.mayPass(err)
				if out.begun {
					panic(http.ErrAbortHandler) // the client must notice that the answer is incomplete
				}
				writeProblem(w, ProblemOf(err))
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
	call        *Call
}

func (l *lateWriter) Header() http.Header { return l.w.Header() }

func (l *lateWriter) WriteHeader(status int) {
	if !l.begun {
		if status < 400 && !l.call.done {
			panic("a stream was answered without a decision")
		}
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
func (s *Server) operation(r Route) huma.Operation {
	if _, ok := RightOf(r.ID); !ok && !r.Rule.anybody() {
		panic(fmt.Sprintf("the route %s has no right", r.ID))
	}
	if r.Status == 0 {
		r.Status = http.StatusOK
	}
	op := huma.Operation{
		OperationID: r.ID, Method: r.Method, Path: r.Path, Summary: r.Summary, Description: r.Description,
		Tags: []string{r.Tag}, DefaultStatus: r.Status,
		MaxBodyBytes: -1, BodyReadTimeout: -1, // limitedBody enforces both limits
		SkipValidateBody: true,
		RequestBody:      nil,
		Metadata:         map[string]any{ruleKey: r.Rule},
		Middlewares:      huma.Middlewares{s.enter},
	}
	text := func() *huma.Schema { return &huma.Schema{Type: huma.TypeString} }
	if r.Rule.anybody() {
		op.Security = []map[string][]string{{}}
		if r.Rule.Open {
			op.RequestBody = &huma.RequestBody{}
		}
		return op
	}
	if !r.Rule.Local {
		op.Parameters = append(
			op.Parameters,
			&huma.Param{
				Name:        "tenant",
				In:          "query",
				Schema:      text(),
				Description: "Another tenant than the token's, for superadmins; also as the header " + api.HeaderTenant,
			},
		)
	}
	switch {
	case r.Method != http.MethodGet:
		op.Parameters = append(
			op.Parameters,
			&huma.Param{
				Name:        api.HeaderRequest,
				In:          "header",
				Schema:      &huma.Schema{Type: huma.TypeString, Pattern: requestID.String()},
				Description: "Requests with the same id are carried out once within a day",
			},
			&huma.Param{
				Name:        api.HeaderRetry,
				In:          "header",
				Schema:      &huma.Schema{Type: huma.TypeString, Enum: []any{"true"}},
				Description: "The request was sent before with the same id, and no answer came: if it is refused, no copy of it is carried out later",
			},
		)
	case !r.Bare && !r.Rule.Local:
		op.Parameters = append(
			op.Parameters,
			&huma.Param{
				Name:        "index",
				In:          "query",
				Schema:      &huma.Schema{Type: huma.TypeInteger, Format: "int64"},
				Description: "Wait until the state is newer than this index",
			},
			&huma.Param{Name: "wait", In: "query", Schema: text(), Description: "Maximum time to wait, such as 30s; 60s if absent, 10m at most"},
			&huma.Param{
				Name:        "consistency",
				In:          "query",
				Schema:      &huma.Schema{Type: huma.TypeString, Enum: []any{"default", "consistent", "stale"}},
				Description: "default: the leader's state; consistent: confirmed by the voters first; stale: the copy of the contacted agent",
			},
		)
	}
	if r.Order != "" {
		op.Parameters = append(op.Parameters, listParameters(r)...)
	}
	op.RequestBody = &huma.RequestBody{}
	return op
}

// finish completes the document of a route after its registration.
func (s *Server) finish(op huma.Operation, r Route) {
	item := s.api.OpenAPI().Paths[r.Path]
	for _, o := range []*huma.Operation{item.Get, item.Put, item.Post, item.Delete} {
		if o == nil || o.OperationID != r.ID {
			continue
		}
		if body := o.RequestBody; body != nil {
			if len(body.Content) == 0 && !r.Rule.Streamed {
				o.RequestBody = nil
			} else if !r.Rule.Streamed {
				body.Required = !r.Optional
				body.Content["application/yaml"] = &huma.MediaType{Schema: body.Content["application/json"].Schema}
			}
		}
		if r.Status == http.StatusAccepted {
			// 200 means that nothing was started: a dry run, or nothing to do.
			o.Responses["200"] = &huma.Response{Description: "Nothing was started", Content: o.Responses["202"].Content}
		}
		o.Responses["default"] = &huma.Response{
			Description: "A problem document (RFC 9457)",
			Content: map[string]*huma.MediaType{
				api.ProblemContentType: {Schema: s.api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[api.Problem](), true, "Problem")},
			},
		}
	}
}

// View returns the state that a read asks for. It waits for a newer one if the read asks for that.
func (s *Server) View(ctx context.Context, c *Call) (View, error) {
	waiting := ctx
	if c.after > 0 {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(ctx, time.Duration(c.wait))
		defer cancel()
	}
	v, err := s.State.View(waiting, c.consistency, c.after)
	if c.after > 0 {
		if ended := c.CheckToken(ctx); ended != nil {
			return nil, ended
		}
	}
	if err == nil && c.ready != nil {
		err = c.ready()
	}
	if err != nil {
		return nil, err
	}
	return v, s.decideBy(c, v)
}

// Latest returns the present state, for the checks before a write. The answer to the write must be made
// from api.Written instead, because a state that is read after the write may include changes of other
// requests.
func (s *Server) Latest(ctx context.Context) (View, error) { return s.State.View(ctx, api.Default, 0) }

// Before returns the present state, for the checks before a write. If the request was carried out
// before, it also returns the result, and the caller checks nothing: the object may be gone.
func (s *Server) Before(ctx context.Context, c *Call) (v View, done *api.Written, err error) {
	if v, err = s.Latest(ctx); err == nil {
		err = s.decideBy(c, v)
	}
	if err != nil {
		return nil, nil, err
	}
	if w, ok := v.Answered(c.Who); ok {
		c.done = true // it was decided when it was carried out
		done = &w
	}
	return v, done, nil
}

// Wrote returns an object that a write made. A repeated request lacks it if its id was used for a
// request of another kind.
func Wrote[T any](w api.Written, row *T) (T, error) {
	if row != nil {
		return *row, nil
	}
	var none T
	if w.Repeated {
		return none, problem.New(problem.Conflict, "the request id was used for something else before: send another")
	}
	return none, fmt.Errorf("the answer of the write at index %d lacks a %T", w.Index, none)
}

// Raw is a request's body, which the document describes as a T. The handler decodes it, strictly
// and with all faults at once.
type Raw[T any] struct{ Data []byte }

func (b *Raw[T]) take(data []byte) { b.Data = bytes.Clone(data) }

// Schema returns the schema of T.
func (Raw[T]) Schema(r huma.Registry) *huma.Schema { return r.Schema(reflect.TypeFor[T](), true, "") }

// Value decodes the body; an empty one is the zero T.
func (b Raw[T]) Value() (T, error) {
	var v T
	if err := decode.Strict(b.Data, &v); err != nil {
		return v, Judge(err, b.Data)
	}
	return v, nil
}

// By decodes the body with a function.
func (b Raw[T]) By(decode func([]byte) (T, error)) (T, error) {
	v, err := decode(b.Data)
	if err != nil {
		return v, Judge(err, b.Data)
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

// Judge returns the problem for a body that could not be decoded: malformed if the text is neither
// JSON nor YAML, and invalid if its content has faults.
func Judge(err error, data []byte) error {
	var faults model.Faults
	if !errors.As(err, &faults) {
		return err
	}
	text := bytes.TrimSpace(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")))
	var whole yaml.Node
	switch {
	case len(text) == 0:
		return Malformed(faults)
	case text[0] == '{' || text[0] == '[':
		if !json.Valid(text) {
			return Malformed(faults)
		}
	case yaml.Unmarshal(text, &whole) != nil:
		return Malformed(faults)
	}
	return Invalid(faults)
}
