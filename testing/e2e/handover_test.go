package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/coopr/coopr/rpc/api"
)

// TestHandOver hands leadership over repeatedly while a cluster is made and clients read and write
// at every agent. They send each request once, and ask the agents to hold it while there is no leader.
// No client gets an error, and no running task is started again.
func TestHandOver(t *testing.T) {
	t.Parallel()
	m := ledgerMesh(t)
	op := m.create("c", nodes)
	ctx, stop := context.WithCancel(m.context())
	defer stop()
	var clients sync.WaitGroup
	var answered atomic.Int64
	for i, a := range append(m.agents, m.agents...) {
		clients.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				name := fmt.Sprintf("s-%d", i)
				r := request{method: http.MethodPut, path: "/v1/services/" + name, body: fmt.Sprintf(`{"name":%q,"description":"number %d"}`, name, n)}
				if n%2 == 1 {
					r = request{method: http.MethodGet, path: "/v1/services/" + name}
				}
				r.header = map[string]string{api.HeaderHold: "20s"}
				status, _, body, err := a.do(r)
				switch {
				case err != nil || status >= 300:
					t.Errorf("%s at agent %s: %v, status %d, %s", r.method, a.name, err, status, body)
				case r.method == http.MethodGet && !strings.Contains(string(body), fmt.Sprintf("number %d\"", n-1)):
					t.Errorf("agent %s has forgotten what was written: %s", a.name, body)
				}
				answered.Add(1)
			}
		})
	}
	handed := 0
	m.until(op.ID, "succeeded", func(d api.OperationDetails) bool {
		if !d.Status.Ended() && d.Progress.Total > 0 && handed*d.Progress.Total < 6*d.Progress.Done {
			before := answered.Load()
			// A machine that is too busy for the next leader is asked again.
			m.await("the leadership to be handed over", func() error {
				if s := m.coopr("operator", "raft", "transfer"); s.code != 0 {
					return errors.New(s.err)
				}
				return nil
			})
			handed++
			m.await("the clients to have been answered since", func() error {
				if answered.Load() < before+20 {
					return errNotYet
				}
				return nil
			})
		}
		return d.Status.Ended()
	})
	stop()
	clients.Wait()
	if handed < 3 {
		t.Errorf("the leadership was handed over %d times", handed)
	}
	begun := map[string]int{}
	for _, e := range m.ledger() {
		if e.what == "begin" {
			begun[key(e.node, e.service, e.action)]++
		}
	}
	for what, times := range begun {
		if times != 1 {
			t.Errorf("%s was begun %d times", what, times)
		}
	}
	m.survives(op)
}
