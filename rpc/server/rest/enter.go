package rest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/internal/words"
	"github.com/coopr/coopr/rpc/api"
)

// enter runs before every handler. It decides which agent answers, and authenticates and
// authorises the caller. Until the caller is known, the request costs little: nothing of its body is
// read, and it takes none of the places for requests that wait (watch).
func (s *Server) enter(hctx huma.Context, next func(huma.Context)) {
	op := hctx.Operation()
	ru := op.Metadata[ruleKey].(Rule)
	r, w := humago.Unwrap(hctx)
	n := noteOf(r.Context())
	n.route = op.OperationID
	if ru.Duplex {
		control := http.NewResponseController(w)
		_ = control.EnableFullDuplex() // else a refusal waits for the body; HTTP/2 always is
		rest := func() { _ = control.SetReadDeadline(time.Now().Add(BodyTime)) }
		rest()       // for what a refused client goes on to send
		defer rest() // and one that has not noticed the end of the answer
	}
	refuse := func(err error) {
		n.err = err
		writeProblem(w, ProblemOf(err))
	}
	if ru.Public {
		if err := s.sources.open(r); err != nil {
			refuse(err)
			return
		}
		next(hctx)
		return
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		refuse(Malformed(model.Faults{{Path: "query", Message: err.Error()}}))
		return
	}
	if err := checkQuery(query); err != nil {
		refuse(err)
		return
	}
	stale := !ru.Local && r.Method == http.MethodGet && api.Consistency(query.Get("consistency")) == api.Stale
	if !ru.Local && r.Header.Get(api.HeaderForwarded) != "" && !s.Router.Serves(stale) {
		// Even the question whom the token belongs to would be passed on once more.
		w.Header().Set(api.HeaderNotLeader, s.name)
		refuse(problem.New(problem.NoLeader, "agent %s is not the leader", s.name))
		return
	}
	bearer, who, err := s.identified(r, ru, n)
	if err != nil {
		refuse(err)
		return
	}
	take, release := s.loads.body(who)
	defer release()
	waits, blocks := waits(ru, query), blocks(ru, query)
	n.long = waits || ru.Streamed
	limited := s.loads.Tenants && !ru.Open && !who.Root
	if limited && !ofAgent(r.Context()) {
		t := s.tenant(r.Context(), who.Tenant)
		leave, err := s.loads.arrive(&t, waits || ru.Streamed) // an upload takes long, too
		if err != nil {
			refuse(err)
			return
		}
		defer leave()
	}
	turn := &turn{tenant: who.Tenant, reader: blocks}
	defer turn.end()
	n.begins(turn.end)
	if err := s.checkBody(w, r, op, ru, take, turn); err != nil {
		refuse(err)
		return
	}
	leave, err := s.sources.compared(r, ru, who, n)
	if err != nil {
		refuse(err)
		return
	}
	defer leave()
	if waits {
		leave, err := s.watch()
		if err != nil {
			refuse(err)
			return
		}
		defer leave()
		s.metrics.streams.Inc()
		defer s.metrics.streams.Dec()
	}
	begins := !waits && !reads(op, ru, r)
	if !ru.Local && !s.Router.Serves(stale) {
		if s.forward(w, r, stale, ru) {
			return
		}
		begins = !waits // the body may have been read already
	}
	// The place is at the agent that does the work, so one that passes requests on can do its own.
	if limited && (blocks || !waits && !ru.Streamed) {
		turn.loads = s.loads
	}
	if begins {
		if err := turn.begin(r.Context()); err != nil {
			refuse(err)
			return
		}
	}
	learn := func(int64) {}
	room := func() error {
		l, err := s.loads.answer(who, op.OperationID, take)
		if err == nil {
			learn = l
		}
		return err
	}
	defer func() { learn(n.sent()) }()
	if !waits {
		if err := room(); err != nil {
			refuse(err)
			return
		}
	}
	if ru.Open {
		next(hctx)
		return
	}
	who.From, who.Agent = addressOf(r), s.entry(r)
	c := &Call{Who: who, Bearer: bearer, note: n, path: r.URL.Path, parameters: query}
	if faults := c.parse(op, query); len(faults) > 0 {
		refuse(Invalid(faults))
		return
	}
	if err := s.authorize(r.Context(), r, query, op.OperationID, ru, c); err != nil {
		refuse(err)
		return
	}
	if c.Who.Request != "" {
		w.Header().Set(api.HeaderRequest, c.Who.Request)
	}
	ctx := r.Context()
	if blocks {
		c.ready = func() error {
			if err := turn.begin(ctx); err != nil {
				return err
			}
			return room()
		}
	}
	if waits {
		held, release := s.hold(r, c)
		defer release()
		ctx = held
	}
	next(huma.WithContext(hctx, context.WithValue(ctx, callKey{}, c)))
}

// identified returns the caller of a request and what it authenticates with. An open route has none.
func (s *Server) identified(r *http.Request, ru Rule, n *note) (b Bearer, who model.Caller, err error) {
	if ru.Open {
		return b, who, s.sources.request(r)
	}
	b = bearerOf(r)
	if who, err = s.admit(r, n.until, b); err == nil {
		n.tenant, n.actor = who.Tenant, who.Actor
	}
	return b, who, err
}

// compared counts the password of a request, if its route compares one, until its answer is known. It reads the body of a login, which has
// the name.
func (s *sources) compared(r *http.Request, ru Rule, who model.Caller, n *note) (leave func(), err error) {
	if !ru.Password {
		return func() {}, nil
	}
	name := ""
	switch {
	case !ru.Open:
		name = who.Tenant + "/" + who.Actor
	case ru.Names != nil && r.Body != nil:
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, bodyProblem(err)
		}
		name, r.Body = ru.Names(body), io.NopCloser(bytes.NewReader(body))
	}
	answered, err := s.try(r, s.passwords, "passwords", name)
	return func() {
		code := problem.CodeOf(n.err)
		wrong := n.answered == http.StatusUnauthorized || n.answered == http.StatusForbidden || code == problem.Unauthorized ||
			code == problem.Forbidden
		// A client that hangs up before the answer does not hear whether its guess was right, but may find out.
		unanswered := n.sent() == 0 && r.Context().Err() != nil
		right := n.answer != nil && n.answer.status/100 == 2 // also if the leader answered
		answered(right, wrong || unanswered)
	}, err
}

// openBody bounds the body of a route without a token, in bytes.
const openBody = 4 << 10

// watch reserves one of the places for requests that wait.
func (s *Server) watch() (leave func(), err error) {
	if s.watches == nil {
		return func() {}, nil
	}
	select {
	case s.watches <- struct{}{}:
		return func() { <-s.watches }, nil
	default:
		return nil, NewProblem(problem.Busy,
			fmt.Sprintf("this agent has %d readers that wait already: try again later, or ask another agent", cap(s.watches)))
	}
}

// reads reports whether a request's body is read to its end before there is anything to do.
func reads(op *huma.Operation, ru Rule, r *http.Request) bool {
	return op.RequestBody != nil && !ru.Streamed && r.Body != nil && r.Body != http.NoBody
}

// checkBody checks the headers of the body, and limits what will be read of it. At its end, the request takes its place.
func (s *Server) checkBody(w http.ResponseWriter, r *http.Request, op *huma.Operation, ru Rule, take func(n int) error, turn *turn) error {
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	if ru.Duplex {
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // a recorder has none
		return nil
	}
	limit := s.maxBody
	if ru.Open {
		limit = min(limit, openBody)
	}
	if !ru.Streamed && r.ContentLength > limit {
		return bodyProblem(&errTooLarge{limit})
	}
	n := noteOf(r.Context())
	r.Body = &limitedBody{
		ReadCloser: r.Body, control: http.NewResponseController(w), limit: limit, left: limit, streamed: ru.Streamed,
		failed: func(err error) { n.body, n.err = err, err }, take: take,
	}
	if reads(op, ru, r) {
		ctx := r.Context()
		r.Body.(*limitedBody).whole = func() error { return turn.begin(ctx) }
	}
	if op.RequestBody == nil || ru.Streamed || r.ContentLength == 0 {
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
	if strings.HasPrefix(kind, "application/vnd.dcos.") && strings.HasSuffix(kind, "+json") {
		return nil
	}
	p := NewProblem(
		problem.Malformed,
		fmt.Sprintf("the body has Content-Type %q: send JSON or YAML, with Content-Type: application/json or application/yaml", given),
	)
	p.Status = http.StatusUnsupportedMediaType
	return p
}

// The bounds on waiting for a newer state.
const (
	DefaultWait = time.Minute
	maxWait     = 10 * time.Minute
)

type waitTime time.Duration

// parse parses the parameters that all routes share, and reports unknown ones.
func (c *Call) parse(op *huma.Operation, query url.Values) model.Faults {
	var faults model.Faults
	known := []string{"tenant"}
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
	c.consistency, c.wait = api.Default, waitTime(DefaultWait)
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
