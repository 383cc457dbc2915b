package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"
)

// load is the work that clients give to a mesh while faults happen, and what they learn.
type load struct {
	mesh    *mesh
	history *history
	stop    chan struct{} // closed when no operation begins any more
	done    sync.WaitGroup

	mu       sync.Mutex
	errs     []error
	clusters []string // the ids of operations that created clusters and deleted them
	tokens   []*token
	follows  []*follower
}

const (
	writers  = 4 // clients of definitions, preferences and secrets
	builders = 1 // clients of clusters
	issuers  = 2 // clients of tokens
	perNode  = 3 // nodes of each cluster
)

// startLoad starts the clients. The seed chooses what they do, but not when.
func startLoad(ctx context.Context, m *mesh, seed uint64) *load {
	l := &load{mesh: m, history: &history{began: time.Now()}, stop: make(chan struct{})}
	for i := range writers {
		l.done.Go(func() { l.write(ctx, i, rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
	for i := range builders {
		l.done.Go(func() { l.build(ctx, i) })
	}
	for i := range issuers {
		l.done.Go(func() { l.issue(ctx, writers+i, rand.New(rand.NewPCG(seed, uint64(writers+i)))) })
	}
	for i := range m.agents {
		f := &follower{agent: m.agents[i]}
		l.follows = append(l.follows, f)
		f.start(ctx)
	}
	return l
}

func (l *load) stopped() bool {
	select {
	case <-l.stop:
		return true
	default:
		return false
	}
}

// pause waits between two operations, so that a run does not only measure the processor.
func (l *load) pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-l.stop:
	case <-time.After(d):
	}
}

func (l *load) fail(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errs = append(l.errs, fmt.Errorf(format, args...))
}

// ask sends a request to one agent after the other, beginning with agent first, until there is a final answer.
// The attempts share the request id of the context, so that the mesh carries the request out once. A read has
// one attempt with each agent. each is called before each attempt.
func (l *load) ask(ctx context.Context, first int, read bool, each func(), do func(context.Context, *client.Client) error) error {
	over := time.Now().Add(patience)
	for i := 0; ; i++ {
		each()
		a := l.mesh.agents[(first+i)%len(l.mesh.agents)]
		attempt, cancel := context.WithTimeout(ctx, answer)
		err := do(attempt, a.api)
		cancel()
		switch {
		case err == nil, final(err), ctx.Err() != nil, time.Now().After(over), read && i >= len(l.mesh.agents):
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// final reports whether an error is an answer of the mesh to the request itself.
func final(err error) bool {
	var e *client.Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.ProblemCode() {
	case problem.NoLeader, problem.UnknownOutcome, problem.Busy, problem.Timeout, problem.Internal:
		return false
	}
	return true
}

// write writes, deletes and reads a few keys until the load stops.
func (l *load) write(ctx context.Context, id int, random *rand.Rand) {
	for n := 0; !l.stopped() && ctx.Err() == nil; n++ {
		key := keys[random.IntN(len(keys))]
		o := op{client: id, key: key.name, call: l.history.now()}
		first := random.IntN(len(l.mesh.agents))
		ctx := client.WithRequestID(ctx, client.NewRequestID())
		var err error
		switch roll := random.IntN(10); {
		case roll < 4:
			o.what, o.value = "put", fmt.Sprintf("%d-%d", id, n)
			if key.only != "" {
				o.value = key.only
			}
			err = l.ask(ctx, first, false, func() {}, func(ctx context.Context, c *client.Client) (err error) {
				o.version, err = key.put(ctx, c, key.name, o.value)
				return err
			})
			o.unknown = err != nil
		case roll < 5 && key.delete != nil:
			o.what = "delete"
			err = l.ask(ctx, first, false, func() {}, func(ctx context.Context, c *client.Client) error { return key.delete(ctx, c, key.name) })
			o.found = err == nil
			if errors.Is(err, client.ErrNotFound) {
				err = nil
			}
			o.unknown = err != nil
		default:
			o.what = "get"
			err = l.ask(ctx, first, true, func() { o.call = l.history.now() }, func(ctx context.Context, c *client.Client) (err error) {
				o.value, o.version, o.found, err = key.get(ctx, c, key.name)
				return err
			})
		}
		o.end = l.history.now()
		if final(err) {
			l.fail("%s %s was refused: %w", o.what, o.key, err)
		}
		if o.what != "get" || err == nil {
			if o.unknown {
				o.version = 0
			}
			l.history.add(o)
		}
		l.pause(ctx, time.Duration(10+random.IntN(60))*time.Millisecond)
	}
}

// key is something that holds a value, with the requests for it.
type key struct {
	name   string
	only   string // the only value that it can have
	put    func(ctx context.Context, c *client.Client, name, value string) (version int, err error)
	get    func(ctx context.Context, c *client.Client, name string) (value string, version int, found bool, err error)
	delete func(ctx context.Context, c *client.Client, name string) error
}

var keys = []key{
	definition("one"), definition("two"), definition("three"),
	{name: "preferences", put: putPreferences, get: preferences},
	{name: "secret", only: "hidden", put: putSecret, get: secret, delete: deleteSecret},
}

var fresh = client.Read{Consistency: api.Consistent}

// stored is what a client reads of a definition.
type stored struct {
	Name        string         `json:"name"`
	Description string         `json:"description"`
	Version     int            `json:"version,omitempty"`
	ProviderMap map[string]any `json:"providermap"`
}

func definition(name string) key {
	return key{name: name, put: putDefinition, get: getDefinition, delete: deleteDefinition}
}

func putDefinition(ctx context.Context, c *client.Client, name, value string) (int, error) {
	body, err := json.Marshal(stored{Name: name, Description: value, ProviderMap: map[string]any{"ledger": map[string]string{"flavor": "small"}}})
	if err != nil {
		return 0, err
	}
	answer, _, err := c.PutDefinition(ctx, model.KindHardwareType, name, body)
	if err != nil {
		return 0, err
	}
	var s stored
	if err := json.Unmarshal(answer, &s); err != nil {
		return 0, err
	}
	if s.Description != value {
		return 0, fmt.Errorf("the answer to a write of %q has %q", value, s.Description)
	}
	return s.Version, nil
}

func getDefinition(ctx context.Context, c *client.Client, name string) (string, int, bool, error) {
	body, _, err := c.Definition(ctx, model.KindHardwareType, name, 0, fresh)
	if errors.Is(err, client.ErrNotFound) {
		return "", 0, false, nil
	}
	var s stored
	if err == nil {
		err = json.Unmarshal(body, &s)
	}
	return s.Description, s.Version, err == nil, err
}

func deleteDefinition(ctx context.Context, c *client.Client, name string) error {
	_, err := c.DeleteDefinition(ctx, model.KindHardwareType, name, 0, false)
	return err
}

func deleteSecret(ctx context.Context, c *client.Client, name string) error {
	return c.DeleteSecret(ctx, name)
}

// property is a key of preferences that may have any value.
const property = profile.PropertyPrefix + profile.PropField + "chaos"

func putPreferences(ctx context.Context, c *client.Client, _, value string) (int, error) {
	return 0, c.PutPreferences(ctx, "", map[string]string{property: value})
}

func preferences(ctx context.Context, c *client.Client, _ string) (string, int, bool, error) {
	s, _, err := c.Preferences(ctx, "", fresh)
	v := s.Properties[property]
	return v, 0, v != "", err
}

func putSecret(ctx context.Context, c *client.Client, name, value string) (int, error) {
	return 0, c.PutSecret(ctx, name, api.SecretBody{Value: value})
}

func secret(ctx context.Context, c *client.Client, name string) (string, int, bool, error) {
	list, _, err := c.Secrets(ctx, fresh)
	if err != nil || !slices.Contains(list, name) {
		return "", 0, false, err
	}
	return "hidden", 0, true, nil
}

// build creates clusters and deletes them until the load stops. Each request is sent to two agents at once with
// the same id.
func (l *load) build(ctx context.Context, id int) {
	for n := 0; !l.stopped() && ctx.Err() == nil; n++ {
		name := fmt.Sprintf("c%d-%d", id, n)
		cluster, ok := l.twice(ctx, n, "create "+name, func(ctx context.Context, c *client.Client) (api.StartedBody, error) {
			st, _, err := c.CreateCluster(ctx, model.CreateCluster{Name: name, ClusterTemplate: "ledger", NumMachines: perNode}, false)
			return st, err
		})
		if !ok {
			return
		}
		_, ok = l.twice(ctx, n+1, "delete "+name, func(ctx context.Context, c *client.Client) (api.StartedBody, error) {
			st, _, err := c.Operate(ctx, cluster, api.Operate{Type: model.OpDelete})
			return st, err
		})
		if !ok {
			return
		}
	}
}

// twice asks two agents to begin an operation once, and waits until it has succeeded. It returns the id of the
// cluster.
func (l *load) twice(ctx context.Context, first int, what string, do func(context.Context, *client.Client) (api.StartedBody, error)) (
	cluster string, ok bool) {
	ctx = client.WithRequestID(ctx, client.NewRequestID())
	var answers [2]api.StartedBody
	var errs [2]error
	var both sync.WaitGroup
	for i := range answers {
		both.Go(func() {
			errs[i] = l.ask(ctx, first+i, false, func() {}, func(ctx context.Context, c *client.Client) (err error) {
				answers[i], err = do(ctx, c)
				return err
			})
		})
	}
	both.Wait()
	if err := errors.Join(errs[0], errs[1]); err != nil {
		l.fail("%s: %w", what, err)
		return "", false
	}
	a, b := answers[0].Operation, answers[1].Operation
	if a == nil || b == nil || a.ID != b.ID {
		l.fail("%s: one request id began two operations: %+v, %+v", what, a, b)
		return "", false
	}
	var last api.OperationDetails
	err := await(ctx, what+" to end", func() error {
		return l.ask(ctx, first, true, func() {}, func(ctx context.Context, c *client.Client) error {
			d, _, err := c.Operation(ctx, a.ID, client.Read{})
			if err == nil && !d.Status.Ended() {
				err = fmt.Errorf("operation %s is %s, %d of %d tasks are done", a.ID, d.Status, d.Progress.Done, d.Progress.Total)
			}
			last = d
			return err
		})
	})
	switch {
	case err != nil:
		l.fail("%s: %w", what, err)
	case last.Status != model.OpSucceeded:
		l.fail("%s: operation %s is %s: %s", what, a.ID, last.Status, last.Message)
	default:
		l.mu.Lock()
		l.clusters = append(l.clusters, a.ID)
		l.mu.Unlock()
		return a.Cluster, true
	}
	return "", false
}

// follower follows the events of one agent.
type follower struct {
	agent  *agent
	cancel context.CancelFunc
	done   chan struct{}
	mu     sync.Mutex
	from   uint64 // the index from which on all events were seen
	last   uint64
	seen   map[uint64][]string
	errs   []error
}

func (f *follower) start(ctx context.Context) {
	ctx, f.cancel = context.WithCancel(ctx)
	f.done, f.seen = make(chan struct{}), map[uint64][]string{}
	go func() {
		defer close(f.done)
		for ctx.Err() == nil {
			err := f.agent.api.Events(ctx, client.EventFilter{After: f.last, Types: []string{"definition.changed"}}, f.take)
			var gone *client.Error
			if errors.As(err, &gone) && errors.Is(err, client.ErrConflict) {
				// The events after the index are not kept any more, for example after a restart.
				f.mu.Lock()
				f.from, f.last = 0, 0
				f.mu.Unlock()
			}
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
}

// place returns the index of the newest event.
func (f *follower) place() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

func (f *follower) take(e model.Event) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	text := e.Subject + " " + e.Status
	switch {
	case e.Index < f.last && !slices.Contains(f.seen[e.Index], text):
		f.errs = append(f.errs, fmt.Errorf("the follower of agent %s got event %d (%s) after event %d", f.agent.name, e.Index, text, f.last))
	case slices.Contains(f.seen[e.Index], text):
		return nil // an event may come twice
	}
	if f.from == 0 {
		f.from = e.Index
	}
	f.last = max(f.last, e.Index)
	f.seen[e.Index] = append(f.seen[e.Index], text)
	return nil
}

// halt stops the clients and waits for them.
func (l *load) halt() {
	close(l.stop)
	l.done.Wait()
}

// checkEvents compares what the followers saw: each saw the same events in the order of their indexes, and none
// lacks one.
func (l *load) checkEvents(ctx context.Context) error {
	var newest uint64
	for _, f := range l.follows {
		newest = max(newest, f.place())
	}
	n := 0
	err := await(ctx, "all followers to see new events", func() error {
		// A follower that had to subscribe again sees only the events from then on.
		n++
		marked := client.WithRequestID(ctx, client.NewRequestID())
		err := l.ask(marked, n, false, func() {}, func(ctx context.Context, c *client.Client) error {
			_, err := putDefinition(ctx, c, "marker", strconv.Itoa(n))
			return err
		})
		for _, f := range l.follows {
			if at := f.place(); at <= newest {
				err = errors.Join(err, fmt.Errorf("the follower of agent %s is at event %d, and the newest was %d", f.agent.name, at, newest))
			}
		}
		return err
	})
	errs := []error{err}
	for _, f := range l.follows {
		f.cancel()
		<-f.done
		errs = append(errs, f.errs...)
	}
	all := map[uint64]string{}
	for _, f := range l.follows {
		for at, texts := range f.seen {
			if at > newest {
				continue // the followers stop one after the other
			}
			if text := strings.Join(texts, ", "); all[at] == "" {
				all[at] = text
			} else if all[at] != text {
				errs = append(errs, fmt.Errorf("event %d is %q for one follower and %q for that of agent %s", at, all[at], text, f.agent.name))
			}
		}
	}
	for at, text := range all {
		for _, f := range l.follows {
			if f.from > 0 && at >= f.from && len(f.seen[at]) == 0 {
				errs = append(errs, fmt.Errorf("the follower of agent %s never saw event %d (%s)", f.agent.name, at, text))
			}
		}
	}
	return errors.Join(errs...)
}
