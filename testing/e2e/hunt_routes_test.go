package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/coopr/coopr/rpc/client"
)

// webClient returns a client of agents whose CA is in the pool.
func webClient(pool *x509.CertPool) *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, MaxIdleConnsPerHost: 16}}
}

// asked counts requests, so that they go to all agents in turn.
var asked atomic.Uint64

// request returns a request to one of the agents as a principal.
func (p *preserve) request(ctx context.Context, who, method, path, body string) *http.Request {
	p.t.Helper()
	a := p.agents[asked.Add(1)%uint64(len(p.agents))]
	r, err := http.NewRequestWithContext(ctx, method, "https://"+a.addr(httpPort)+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	if token := p.tokens[who]; token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r
}

// ask sends a request as a principal. It repeats one that is refused because there were too many.
func (p *preserve) ask(who, method, path, body string) (status int, answer []byte) {
	p.t.Helper()
	ctx := p.context()
	for {
		res, err := p.web.Do(p.request(ctx, who, method, path, body))
		if err != nil {
			p.t.Fatalf("%s %s as %s: %v", method, path, who, err)
		}
		answer, err = io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil {
			p.t.Fatalf("%s %s as %s: %v", method, path, who, err)
		}
		if res.StatusCode != http.StatusTooManyRequests || ctx.Err() != nil {
			return res.StatusCode, answer
		}
		pause(ctx)
	}
}

// listen follows the events of all principals until the returned function is called. That waits until each of them has heard the last
// word.
func (p *preserve) listen() (end func(last string)) {
	p.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p.t.Cleanup(cancel)
	var readers sync.WaitGroup
	var mu sync.Mutex
	texts := map[string]*strings.Builder{}
	for who := range p.tokens {
		if who == "nobody" {
			continue
		}
		text := &strings.Builder{}
		texts[who] = text
		readers.Go(func() {
			// An agent that ends cuts its readers off. They begin again at another one.
			for ; ctx.Err() == nil; pause(ctx) {
				res, err := p.web.Do(p.request(ctx, who, http.MethodGet, "/v1/events?index=1", ""))
				if err != nil {
					continue
				}
				buffer := make([]byte, 64<<10)
				for err == nil {
					var n int
					n, err = res.Body.Read(buffer)
					mu.Lock()
					text.Write(buffer[:n])
					mu.Unlock()
				}
				_ = res.Body.Close()
			}
		})
	}
	return func(last string) {
		p.t.Helper()
		p.await("the last event to arrive at everybody", func() (err error) {
			mu.Lock()
			defer mu.Unlock()
			for who, text := range texts {
				if !strings.Contains(text.String(), last) {
					err = errors.Join(err, fmt.Errorf("%s has %d bytes without it", who, text.Len()))
				}
			}
			return err
		})
		cancel()
		readers.Wait()
		for who, text := range texts {
			p.hear("the events of "+who, []byte(text.String()))
		}
	}
}

// route is a route of the API's document that answers GET.
type route struct {
	id, path string
	query    []string // names of required parameters
}

// routes returns all routes that answer GET.
func routes(t *testing.T) (out []route) {
	t.Helper()
	raw, err := os.ReadFile("../../docs/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths map[string]map[string]struct {
			OperationID string
			Parameters  []struct {
				Name, In string
				Required bool
			}
		}
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	for path, methods := range doc.Paths {
		get, ok := methods["get"]
		if !ok || get.OperationID == "watchEvents" { // see listen
			continue
		}
		r := route{id: get.OperationID, path: path}
		for _, x := range get.Parameters {
			if x.In == "query" && x.Required {
				r.query = append(r.query, x.Name)
			}
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b route) int { return strings.Compare(a.path, b.path) })
	return out
}

// most is how many values of one parameter the hunt asks for, besides tasks.
const most = 8

// queries are the queries of routes that have or need some.
var queries = map[string][]string{
	"canI":             {"?action=read&resource=cluster/one", "?action=reveal&resource=secret/phrase"},
	"debugPlans":       {"", "?sync=true"},
	"explainObject":    {"?object=turn", "?object=leak", "?object=page"},
	"getClusterHealth": {"", "?verbose=true"},
	"getSite":          {"", "?generation=1"},
	"listAudit":        {"?limit=10000"},
	"search":           {"?query=profile:vaulted"},
}

// everyTask returns the ids of all tasks.
func (p *preserve) everyTask() (out []string) {
	p.t.Helper()
	operations, _, err := p.api().Operations(p.context(), "", nil, client.Page{Limit: 1000}, client.Read{})
	if err != nil {
		p.t.Fatal(err)
	}
	for _, op := range operations {
		for _, task := range p.tasks(op.ID) {
			out = append(out, task.ID)
		}
	}
	return out
}

// names returns the values of the parameter at the end of a path: those that the list above it has.
func (p *preserve) names(path, parameter string) (out []string) {
	p.t.Helper()
	if strings.HasPrefix(path, "/v1/plugins/") {
		path = strings.TrimSuffix(path, "/versions") // the list of versions is that of the name
	}
	status, answer := p.ask("root", http.MethodGet, path, "")
	var list []any
	if status != http.StatusOK {
		p.t.Errorf("GET %s, for values of {%s}: %d %s", path, parameter, status, answer)
		return nil
	}
	var value any
	if err := json.Unmarshal(answer, &value); err != nil {
		p.t.Errorf("GET %s: %v", path, err)
		return nil
	}
	list, ok := value.([]any)
	if object, is := value.(map[string]any); is { // an object with one list
		for _, v := range object {
			if inner, is := v.([]any); is {
				list, ok = inner, true
			}
		}
	}
	if !ok {
		p.t.Errorf("GET %s has no list, for values of {%s}: %.200s", path, parameter, answer)
	}
	for _, item := range list {
		if fields, ok := item.(map[string]any); ok {
			for _, key := range []string{parameter, "id", "name", "number", "version"} {
				if item = fields[key]; item != nil {
					break
				}
			}
		}
		if name := fmt.Sprint(item); item != nil && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	if len(out) > most {
		out = append(out[:most-1], out[len(out)-1])
	}
	return out
}

// filled returns the paths of a route with the ids and names that exist in place of its parameters. fixed has values of parameters that
// no list above them has.
func (p *preserve) filled(path string, fixed map[string][]string) []string {
	p.t.Helper()
	before, rest, ok := strings.Cut(path, "{")
	if !ok {
		return []string{path}
	}
	parameter, after, _ := strings.Cut(rest, "}")
	values, ok := fixed[parameter]
	if !ok {
		values = p.names(strings.TrimSuffix(before, "/"), parameter)
	}
	var out []string
	for _, v := range values {
		out = append(out, p.filled(before+url.PathEscape(v)+after, fixed)...)
	}
	return out
}

// answers sends every route that answers GET to the agents, as every principal, with ids and names that exist. It searches the answers,
// and checks that each route was answered.
func (p *preserve) answers(check func(place, []byte)) {
	p.t.Helper()
	tasks := p.everyTask()
	var mu sync.Mutex
	reached := map[string]bool{}
	var group errgroup.Group
	group.SetLimit(8)
	for _, r := range routes(p.t) {
		paths := p.filled(r.path, map[string][]string{"task": tasks, "kind": {"automatortypes"}, "type": {"shell"}, "resourcetype": {"keys", "scripts"}})
		suffixes := []string{""}
		if q, ok := queries[r.id]; ok {
			suffixes = q
		} else if len(r.query) > 0 {
			p.t.Errorf("the hunt does not know values for the parameters %v of %s", r.query, r.id)
		}
		for _, path := range paths {
			for _, suffix := range suffixes {
				for _, who := range slices.Sorted(maps.Keys(p.tokens)) {
					group.Go(func() error {
						status, answer := p.ask(who, http.MethodGet, path+suffix, "")
						mu.Lock()
						reached[r.id] = reached[r.id] || status == http.StatusOK
						mu.Unlock()
						kind := "an answer"
						if strings.Contains(r.path, "/tasks") {
							kind = "an answer about a task"
						}
						check(place{kind: kind, who: who, route: r.id, name: "GET " + path + suffix + " as " + who}, answer)
						return nil
					})
				}
			}
		}
	}
	if err := group.Wait(); err != nil {
		p.t.Error(err)
	}
	for _, r := range routes(p.t) {
		if !reached[r.id] {
			p.t.Errorf("nobody got an answer of %s, GET %s: the hunt has to prepare one", r.id, r.path)
		}
	}
}
