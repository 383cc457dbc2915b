package sites

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/testing/doubles/logtest"
)

// Events of objects wait until they are committed: a proposal may fail, also one that is committed later.
func TestEventsOutliveAFailedCommit(t *testing.T) {
	for name, late := range map[string]bool{"lost": false, "late": true} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { failedCommit(t, late) }) })
	}
}

func failedCommit(t *testing.T, late bool) {
	m, err := state.New(state.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var log sync.Mutex
	index, failures := uint64(0), 1
	apply := func(cs ...*pb.Command) ([]state.Answer, error) {
		log.Lock()
		defer log.Unlock()
		index++
		b, err := proto.Marshal(&pb.Entry{Format: state.Format, FeatureLevel: state.FeatureLevel, NowMs: int64(index), Commands: cs,
			Groups: []uint32{uint32(len(cs))}})
		if err != nil {
			return nil, err
		}
		return m.Apply(&raft.Log{Type: raft.LogCommand, Index: index, Data: b}).([][]state.Answer)[0], nil
	}
	propose := func(_ context.Context, cs ...*pb.Command) ([]state.Answer, error) {
		log.Lock()
		fails := cs[0].GetChangeSite().GetEvents() != nil && failures > 0
		if fails {
			failures--
		}
		log.Unlock()
		if !fails {
			return apply(cs...)
		}
		if late {
			time.AfterFunc(3*time.Second, func() { _, _ = apply(cs...) })
		}
		return nil, errors.New("nobody knows whether it was committed")
	}
	for _, c := range []*pb.Command{
		{Change: &pb.Command_PutTenant{PutTenant: &pb.PutTenant{Tenant: logtest.Tenant(model.Tenant{Name: "t"})}}},
		{Change: &pb.Command_OpenSession{OpenSession: &pb.OpenSession{Session: "s1", Agent: "one", Record: logtest.Agent(model.Agent{ID: "one", Name: "x"})}}},
	} {
		if a, err := apply(c); err != nil || a[0].Err != nil {
			t.Fatal(a, err)
		}
	}
	c := New(Config{Machine: m, Propose: propose, Logger: slog.New(slog.DiscardHandler),
		Node: func(*state.View, string, string) (*site.Access, string, bool) { return nil, "", false }})
	c.Join("s1", Runtime{Agent: "one", Name: "x", Process: "p", Send: func(*pb.LeaderMessage) bool { return true }})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer func() { cancel(); running.Wait() }()
	running.Go(func() { _ = c.Run(ctx) })
	if _, err := c.Apply(t.Context(), model.Caller{Tenant: "t", Actor: "alice"},
		&site.Document{Name: "s", Objects: []site.Object{{Name: "a", Host: "agent:x", Type: "script"}}}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	r, _ := m.View().Site("t", "s")
	var mu sync.Mutex
	got := map[string]int{}
	running.Go(func() {
		_ = m.Follow(ctx, "t", m.View().Index(), func(list []model.Event) error {
			mu.Lock()
			defer mu.Unlock()
			for _, e := range list {
				if e.Type == "object.changed" {
					got[e.Message]++
				}
			}
			return nil
		})
	})
	for _, message := range []string{"first", "second"} {
		c.Hear("s1", []*pb.RuntimeReport{{Tenant: "t", Site: "s", Epoch: r.Epoch,
			Events: []*pb.ObjectEvent{{Object: "a", Status: "moved", Message: message}}}})
		time.Sleep(20 * time.Millisecond)
	}
	time.Sleep(10 * time.Second)
	mu.Lock()
	defer mu.Unlock()
	if got["first"] == 0 || got["second"] != 1 || !late && got["first"] != 1 {
		t.Errorf("events: %v", got)
	}
}

// TestEventsOfARuntime: a runtime sends events again that it does not know to be committed. The leader takes each once, and says so.
func TestEventsOfARuntime(t *testing.T) {
	m, err := state.New(state.Config{})
	if err != nil {
		t.Fatal(err)
	}
	c := New(Config{Machine: m, Logger: slog.New(slog.DiscardHandler)})
	k := state.SiteKey{Tenant: "t", Name: "s"}
	var taken []uint64
	h := &session{Runtime: Runtime{Agent: "one", Process: "p", Send: func(m *pb.LeaderMessage) bool {
		for _, o := range m.Sites {
			taken = append(taken, o.EventsTaken)
		}
		return true
	}}}
	c.sessions["s1"] = h
	s := c.known(k, &site.Record{Tenant: "t", Name: "s", Epoch: 1})
	report := func(first uint64, messages ...string) {
		r := &pb.RuntimeReport{Tenant: "t", Site: "s", Epoch: 1, FirstEvent: first}
		for _, x := range messages {
			r.Events = append(r.Events, &pb.ObjectEvent{Object: "a", Message: x})
		}
		c.take(k, s, h, r)
	}
	waiting := func(want ...string) {
		t.Helper()
		var got []string
		for _, e := range c.events[k] {
			got = append(got, e.Message)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q waits, not %q", got, want)
		}
	}
	report(5, "five", "six")
	report(5, "five", "six", "seven") // in another session, before anything is committed
	waiting("five", "six", "seven")
	c.forget(k, slices.Clone(c.events[k][:2]))
	waiting("seven")
	report(5, "five", "six", "seven") // the answer was lost
	waiting("seven")
	report(0, "a runtime of an older build", "says it", "says it")
	waiting("seven", "a runtime of an older build", "says it", "says it")
	c.forget(k, slices.Clone(c.events[k]))
	waiting()
	if want := []uint64{6, 6, 7}; !slices.Equal(taken, want) {
		t.Errorf("the runtime hears %v, not %v", taken, want)
	}
	c.forget(k, []event{{number: 9, process: "p"}}) // of a site that has gone meanwhile
}
