package client_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"
	"github.com/coopr/coopr/rpc/server/apitest"
)

// recorder is a transport that records the requests and answers that nothing is there.
type recorder struct{ asked []*url.URL }

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodGet {
		r.asked = append(r.asked, req.URL)
	}
	answer := reply(404, api.ProblemNotFound)
	answer.Request = req
	return answer, nil
}

// TestStaleReadsAreForRoutesThatKnowThem calls every method of a client for stale reads. Only routes that have the
// parameter get it.
func TestStaleReadsAreForRoutesThatKnowThem(t *testing.T) {
	raw, err := os.ReadFile("../../docs/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths map[string]map[string]struct {
			Parameters []struct{ Name string }
		}
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	knows := func(path string) (found, knows bool) {
		for route, methods := range doc.Paths {
			pattern := "^" + regexp.MustCompile(`\\\{[^}]+\\\}`).ReplaceAllString(regexp.QuoteMeta(route), "[^/]+") + "$"
			if op, ok := methods["get"]; ok && regexp.MustCompile(pattern).MatchString(path) {
				found = true
				for _, p := range op.Parameters {
					knows = knows || p.Name == "consistency"
				}
			}
		}
		return found, knows
	}
	record := &recorder{}
	c, err := client.New(client.Config{Addresses: []string{"a"}, Transport: record, Patience: -1, Stale: true})
	if err != nil {
		t.Fatal(err)
	}
	v := reflect.ValueOf(c)
	for i := range v.NumMethod() {
		m := v.Method(i)
		if m.Type().NumIn() == 0 || m.Type().In(0) != reflect.TypeFor[context.Context]() {
			continue
		}
		args := []reflect.Value{reflect.ValueOf(t.Context())}
		for j := 1; j < m.Type().NumIn(); j++ {
			arg := reflect.New(m.Type().In(j)).Elem()
			if arg.Kind() == reflect.String {
				arg.SetString("x")
			}
			args = append(args, arg)
		}
		if m.Type().IsVariadic() {
			args = args[:len(args)-1]
		}
		m.Call(args)
	}
	stale := 0
	for _, u := range record.asked {
		sent := u.Query().Get("consistency") != ""
		found, knows := knows(u.Path)
		if sent && found && !knows {
			t.Errorf("%s gets consistency=%s", u.Path, u.Query().Get("consistency"))
		}
		if sent {
			stale++
		}
	}
	if stale < 20 {
		t.Errorf("only %d of %d reads are stale", stale, len(record.asked))
	}
}

// TestStaleClient: a client for stale reads reports how old the answers are, and writes nothing.
func TestStaleClient(t *testing.T) {
	m := newMesh(t)
	var ages []time.Duration
	c, err := client.New(client.Config{Addresses: []string{m.URL}, Token: apitest.Admin, Stale: true, OnStale: func(age time.Duration, known bool) {
		if known {
			ages = append(ages, age)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if _, _, err := c.Tenants(t.Context(), client.Read{}); err != nil || len(ages) != 1 || ages[0] != 0 {
		t.Errorf("%v %v", ages, err)
	}
	if _, err := c.Status(t.Context()); err != nil || len(ages) != 1 {
		t.Errorf("%v %v", ages, err)
	}
	if err := c.DeleteSecret(t.Context(), "x"); err == nil || !strings.Contains(err.Error(), "only reads can be stale") {
		t.Errorf("%v", err)
	}
}
