package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"
)

// page returns the page at a cluster's first link.
func (m *mesh) page(cluster string) (string, error) {
	cl, _, err := m.api().Cluster(m.context(), cluster, client.Read{})
	if err != nil || len(cl.Links) == 0 {
		return "", errors.Join(err, fmt.Errorf("%d links", len(cl.Links)))
	}
	req, err := http.NewRequestWithContext(m.context(), http.MethodGet, cl.Links[0].URL, nil)
	if err != nil {
		return "", err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	res, err := transport.RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d", res.StatusCode)
	}
	return string(body), err
}

// TestLifecycle makes the example's shop of real processes, stops, starts, restarts, reconfigures
// and deletes it, all with the command.
func TestLifecycle(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	m.importShop()
	shows := func(when, words string) {
		t.Helper()
		if page, err := m.page("shop"); err != nil || !strings.Contains(page, words) {
			t.Errorf("%s: the page does not say %q: %v\n%s", when, words, err, page)
		}
	}
	m.must("cluster", "create", "shop", "--template", "shop", "--nodes", "4", "--yes")
	shows("created", "Welcome to the shop")
	m.runsCommands("shop")
	m.must("cluster", "stop", "shop")
	if _, err := m.page("shop"); err == nil {
		t.Error("a stopped shop is open")
	}
	m.must("cluster", "start", "shop")
	shows("started", "Welcome to the shop")
	before := m.plain("shop-web")
	m.must("cluster", "restart", "shop", "shop-web")
	shows("restarted", "Welcome to the shop")
	for pid := range before {
		if after := m.plain("shop-web"); after[pid] {
			t.Errorf("process %d lived through a restart", pid)
		}
	}
	m.must("cluster", "configure", "shop", "--set", "shop.greeting=Good day")
	shows("reconfigured", "Good day")
	if s := m.coopr("cluster", "create", "shop", "--template", "shop", "--nodes", "4", "--yes"); s.code != 4 {
		t.Errorf("a second shop: exit code %d\n%s%s", s.code, s.out, s.err)
	}
	m.must("cluster", "delete", "shop", "--yes")
	if s := m.coopr("cluster", "stop", "shop"); s.code == 0 {
		t.Errorf("a deleted shop was stopped: %s", s.out)
	}
	m.stop()
}

// plain returns the processes that nodes run under a name.
func (m *mesh) plain(name string) map[int]bool {
	m.t.Helper()
	list, err := processes(m.nodes())
	if err != nil {
		m.t.Fatal(err)
	}
	out := map[int]bool{}
	for _, p := range list {
		if strings.Contains(p.what, strings.ReplaceAll(name, "-", " ")) {
			out[p.pid] = true
		}
	}
	if len(out) == 0 {
		m.t.Errorf("no node runs %s", name)
	}
	return out
}

// TestOrders pauses, resumes and aborts; an aborted creation is cleaned up.
func TestOrders(t *testing.T) {
	t.Parallel()
	m := ledgerMesh(t)
	op := m.create("c", nodes)
	m.half(op.ID, .2)
	m.must("operation", "pause", op.ID)
	at := m.until(op.ID, "idle", func(d api.OperationDetails) bool {
		return d.Status == model.OpPaused && d.Progress.Counts["leased"]+d.Progress.Counts["running"] == 0
	})
	if at.Progress.Done == at.Progress.Total {
		t.Error("the pause stopped nothing")
	}
	// A paused operation stays so under another leader.
	m.leader().stop()
	for _, a := range m.agents {
		if !a.alive() {
			a.start()
		}
	}
	m.ready()
	if d := m.until(op.ID, "there", func(api.OperationDetails) bool { return true }); d.Status != model.OpPaused ||
		d.Progress.Done != at.Progress.Done {
		t.Errorf("after a change of leader: %s, %d tasks done, not %d", d.Status, d.Progress.Done, at.Progress.Done)
	}
	m.must("operation", "resume", op.ID)
	m.succeeds(op.ID)
	m.audit(op.ID, nodes)

	second := m.begin(model.CreateCluster{Name: "second", ClusterTemplate: "ledger", NumMachines: nodes})
	m.half(second.ID, .3)
	m.must("operation", "abort", second.ID, "--yes")
	m.ends(second.ID, model.OpAborted)
	m.await("what was made to be deleted", func() error {
		ops, _, err := m.api().Operations(m.context(), second.Cluster, nil, client.Page{}, client.Read{})
		for _, o := range ops {
			if o.Type == model.OpDelete && o.Status == model.OpSucceeded {
				return nil
			}
		}
		return errors.Join(err, errNotYet)
	})
	if s := m.coopr("operation", "resume", second.ID); s.code != 4 {
		t.Errorf("an aborted operation was resumed: exit code %d\n%s", s.code, s.err)
	}
	m.remove(op.Cluster)
	m.stop()
}

// TestWatching follows events over a change of leader, and reads every task's
// log from agents where the task did not run.
func TestWatching(t *testing.T) {
	t.Parallel()
	m := ledgerMesh(t)
	ctx, cancel := context.WithCancel(m.context())
	connected := make(chan struct{}, 100)
	done := map[string]int{}
	ended := make(chan error, 1)
	go func() {
		ended <- m.api().Events(ctx, client.EventFilter{Types: []string{"task.changed", "operation.changed"},
			Connected: func() { connected <- struct{}{} }}, func(e model.Event) error {
			if e.Status == "succeeded" && e.Type == "task.changed" {
				done[e.Task]++
			}
			if e.Status == "succeeded" && e.Type == "operation.changed" {
				return io.EOF
			}
			return nil
		})
	}()
	<-connected
	op := m.create("c", 6)
	m.half(op.ID, .4)
	m.await("another leader", func() error {
		// On a busy machine the other voters may be too slow for a transfer, which ends with a conflict.
		if s := m.coopr("operator", "raft", "transfer"); s.code != 0 {
			return fmt.Errorf("exit code %d, %s", s.code, s.err)
		}
		return nil
	})
	m.succeeds(op.ID)
	if err := <-ended; !errors.Is(err, io.EOF) {
		t.Fatalf("events: %v", err)
	}
	cancel()
	tasks := m.tasks(op.ID)
	for _, task := range tasks {
		if done[task.ID] == 0 {
			t.Errorf("no event says that %s has succeeded", name(&task))
		}
		if task.Service == "" {
			continue
		}
		for _, a := range m.agents {
			r, err := m.api(a).TaskLog(m.context(), task.ID, 0, false)
			if err != nil {
				t.Errorf("log of %s from agent %s: %v", name(&task), a.name, err)
				continue
			}
			b, err := io.ReadAll(r)
			_ = r.Close()
			if want := task.Service + " " + task.Action.String() + " is done"; err != nil || !strings.Contains(string(b), want) {
				t.Errorf("log of %s, which ran on %s, from agent %s: %v, %q", name(&task), task.Agent, a.name, err, b)
			}
		}
	}
	if out := m.must("operation", "log", op.ID); strings.Count(out, "is done on") < 6*7 {
		t.Errorf("the operation's log is short:\n%s", out)
	}
	m.remove(op.Cluster)
	m.stop()
}
