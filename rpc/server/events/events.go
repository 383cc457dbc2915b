package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/coopr/coopr/engine/access"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/rest"
)

type eventFilter struct {
	LastEventID string `header:"Last-Event-ID" doc:"Continue after this index; takes precedence over ?index="`
	Index       uint64 `query:"index" doc:"Events after this index; absent or 0: from now on"`
	Type        string `query:"type" doc:"Only these types, separated by commas; task.* means all of tasks"`
	Cluster     string `query:"cluster" doc:"Only of this cluster, by id"`
	Operation   string `query:"operation" doc:"Only of this operation"`
}

func (f *eventFilter) wants(types []string, e *model.Event) bool {
	if f.Cluster != "" && e.Cluster != f.Cluster || f.Operation != "" && e.Operation != f.Operation {
		return false
	}
	return len(types) == 0 || slices.ContainsFunc(types, func(t string) bool {
		if prefix, ok := strings.CutSuffix(t, "*"); ok {
			return strings.HasPrefix(e.Type, prefix)
		}
		return e.Type == t
	})
}

func eventRoutes(s *rest.Server) {
	rest.Stream(
		s,
		rest.Route{
			ID:      "watchEvents",
			Method:  http.MethodGet,
			Path:    "/v1/events",
			Tag:     "events",
			Rule:    rest.Rule{AllTenants: true, Watches: true},
			Bare:    true,
			Summary: "Follow the changes of the state as server-sent events",
			Description: "Each event's data is an Event; its id is the index after which a reader continues. " +
				"An event of the type \"problem\" is the last one: its data is a problem document. " +
				"Superadmins may ask for tenant=* to see every tenant's events.",
		},
		"text/event-stream",
		"Server-sent events",
		func(ctx context.Context, c *rest.Call, in *eventFilter, w http.ResponseWriter, r *http.Request) error {
			return events(ctx, s, c, in, w, r)
		},
	)
	doc := s.OpenAPI()
	doc.Paths["/v1/events"].Get.Responses["200"].Content["text/event-stream"].Schema = &huma.Schema{Type: huma.TypeArray, Items: &huma.Schema{
		Type: huma.TypeObject, Description: "One server-sent event",
		Properties: map[string]*huma.Schema{
			"id":    {Type: huma.TypeInteger, Format: "int64", Description: "The index to go on from"},
			"event": {Type: huma.TypeString, Description: "The event's type"},
			"data":  doc.Components.Schemas.Schema(reflect.TypeFor[model.Event](), true, "Event"),
		},
		Required: []string{"event", "data"},
	}}
}

// events writes the stream. Only the last event of an index has an id. A reader that is cut off
// between two events of one index therefore continues at the first event of that index. It reads that
// event twice, and misses none.
func events(_ context.Context, s *rest.Server, c *rest.Call, in *eventFilter, w http.ResponseWriter, r *http.Request) error {
	after := in.Index
	if in.LastEventID != "" {
		n, err := strconv.ParseUint(in.LastEventID, 10, 64)
		if err != nil {
			return rest.Invalid(model.Faults{{Path: api.LastEventID, Message: fmt.Sprintf("must be an index, but is %q", in.LastEventID)}})
		}
		after = n
	}
	if after == 0 {
		// The reader must be able to return to the place where it started.
		v, err := s.View(r.Context(), c)
		if err != nil {
			return err
		}
		after = v.Index()
	}
	tenant := c.Who.Tenant
	if tenant == api.AllTenants {
		tenant = ""
	}
	var types []string
	if in.Type != "" {
		types = strings.Split(in.Type, ",")
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // proxies would buffer the stream
	out := &eventWriter{w: w, cancel: cancel, seen: after}
	listed := s.ClusterFilter(c) // decides, before anything is written
	var beats sync.WaitGroup
	beats.Add(1)
	go func() {
		defer beats.Done()
		out.beat(ctx, s.Beats())
	}()
	err := s.State.Follow(ctx, tenant, after, func(batch []model.Event) error {
		if err := c.CheckToken(ctx); err != nil {
			return err
		}
		return out.batch(batch, func(e *model.Event) bool {
			return in.wants(types, e) && seesEvent(ctx, s, c, listed, e)
		})
	})
	cancel()
	beats.Wait()
	ended := rest.Ended(r.Context())
	switch {
	case ended != nil:
		err = ended
	case r.Context().Err() != nil || errors.Is(err, errReaderGone):
		return nil
	case err == nil:
		err = problem.New(problem.NoLeader, "the event stream ended")
	}
	if !out.begun {
		return err
	}
	c.Fail(err)
	data, merr := json.Marshal(rest.ProblemOf(err))
	if merr != nil {
		return merr
	}
	out.raw("event: problem\ndata: " + string(data) + "\n\n")
	return nil
}

// seesEvent reports whether the caller may see an event. Events of a cluster are for those who may list it.
func seesEvent(ctx context.Context, s *rest.Server, c *rest.Call, listed func(rest.View, string) bool, e *model.Event) bool {
	if e.Cluster == "" {
		return listedEvent(c, e)
	}
	v, err := s.State.View(ctx, api.Stale, 0)
	return err == nil && listed(v, e.Cluster)
}

// listedEvent reports whether the caller may list what an event without a cluster is about. Tokens and policies are not
// for everybody in a tenant; those of the mesh itself are events of the tenant "".
func listedEvent(c *rest.Call, e *model.Event) bool {
	kind, name, _ := strings.Cut(e.Subject, "/")
	switch {
	case strings.HasPrefix(e.Type, "token."):
		return c.MayListIn(e.Tenant, access.TypeToken, e.Subject)
	case strings.HasPrefix(e.Type, "definition.") && kind == string(model.KindPolicies):
		return c.MayListIn(e.Tenant, access.TypePolicy, name)
	}
	return true
}

var errReaderGone = errors.New("the reader of events is gone")

// eventWriter writes the stream on behalf of two goroutines: the one with the events and the one
// with the heartbeat.
type eventWriter struct {
	mu     sync.Mutex
	w      http.ResponseWriter
	cancel context.CancelFunc
	begun  bool
	dead   bool
	// seen is the latest index of the batches, and told the latest index that was sent to the reader.
	seen, told uint64
}

func (o *eventWriter) batch(batch []model.Event, wants func(*model.Event) bool) error {
	var b strings.Builder
	var last, told uint64
	// The last wanted event of an index is known only when the next index begins.
	flush := func(e *model.Event, final bool) error {
		data, err := json.Marshal(e)
		if err != nil {
			return err
		}
		if final {
			fmt.Fprintf(&b, "id: %d\n", e.Index)
			told = e.Index
		}
		fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", e.Type, data)
		return nil
	}
	var held *model.Event
	for i := range batch {
		e := &batch[i]
		last = max(last, e.Index)
		if !wants(e) {
			continue
		}
		if held != nil {
			if err := flush(held, held.Index != e.Index); err != nil {
				return err
			}
		}
		held = e
	}
	if held != nil {
		if err := flush(held, true); err != nil {
			return err
		}
	}
	o.mu.Lock()
	o.seen = max(o.seen, last)
	o.told = max(o.told, told)
	o.mu.Unlock()
	switch {
	case b.Len() > 0:
		return o.raw(b.String())
	case len(batch) == 0:
		return o.place("here")
	}
	return nil
}

// place sends the reader an index, so that it does not have to skip the same unwanted events again
// when it returns.
func (o *eventWriter) place(comment string) error {
	text := ": " + comment + "\n\n"
	o.mu.Lock()
	if o.seen > o.told {
		text = fmt.Sprintf(": %s\nid: %d\n\n", comment, o.seen)
		o.told = o.seen
	}
	o.mu.Unlock()
	return o.raw(text)
}

// raw writes a piece and flushes it.
func (o *eventWriter) raw(text string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.dead {
		return errReaderGone
	}
	o.begun = true
	// A reader that accepts nothing for this long is gone.
	control := http.NewResponseController(o.w)
	_ = control.SetWriteDeadline(time.Now().Add(rest.BodyTime))
	if _, err := o.w.Write([]byte(text)); err != nil {
		o.dead = true
		o.cancel()
		return errReaderGone
	}
	_ = control.SetWriteDeadline(time.Time{})
	return nil
}

// beat sends a comment at regular intervals, with the latest index if the reader does not have it
// yet. The first comment is sent early, so that the reader knows that it is connected.
func (o *eventWriter) beat(ctx context.Context, every time.Duration) {
	first := time.NewTimer(min(every, time.Second))
	defer first.Stop()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-first.C:
			o.mu.Lock()
			begun := o.begun
			o.mu.Unlock()
			if begun {
				continue
			}
		case <-ticker.C:
		}
		if o.place("beat") != nil {
			return
		}
	}
}
