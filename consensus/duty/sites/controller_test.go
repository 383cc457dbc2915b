package sites

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/testing/doubles/logtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestController follows a site in the leader: the site is applied, its host is assigned, a runtime
// gets the orders and reports. The next generation waits until the removed object is down. The site
// is reverted, and deleted.
func TestController(t *testing.T) { synctest.Test(t, controller) }

func controller(t *testing.T) {
	m, err := state.New(state.Config{})
	if err != nil {
		t.Fatal(err)
	}
	index := uint64(0)
	var log sync.Mutex
	propose := func(_ context.Context, cs ...*pb.Command) ([]state.Answer, error) {
		log.Lock()
		defer log.Unlock()
		index++
		b, err := proto.Marshal(
			&pb.Entry{Format: state.Format, FeatureLevel: state.FeatureLevel, MustUnderstand: true, NowMs: int64(index), Commands: cs},
		)
		if err != nil {
			return nil, err
		}
		var out []state.Answer
		for _, g := range m.Apply(&raft.Log{Type: raft.LogCommand, Index: index, Data: b}).([][]state.Answer) {
			out = append(out, g...)
		}
		return out, nil
	}
	for _, c := range []*pb.Command{
		{Change: &pb.Command_PutTenant{PutTenant: &pb.PutTenant{Tenant: logtest.Tenant(model.Tenant{Name: "t"})}}},
		{Change: &pb.Command_OpenSession{OpenSession: &pb.OpenSession{Session: "s1", Agent: "one", Record: logtest.Agent(model.Agent{ID: "one", Name: "x"})}}},
	} {
		if a, err := propose(t.Context(), c); err != nil || a[0].Err != nil {
			t.Fatal(a, err)
		}
	}
	c := New(
		Config{
			Machine: m,
			Propose: propose,
			Logger:  slog.New(slog.DiscardHandler),
			Node:    func(*state.View, string, string) (*site.Access, string, bool) { return nil, "", false },
		},
	)
	var told []*site.Orders
	c.Join("s1", Runtime{Agent: "one", Name: "x", Process: "p", Send: func(msg *pb.LeaderMessage) bool {
		for _, m := range msg.Sites {
			o, err := logformat.DecodeOrders(m)
			if err != nil {
				t.Error(err)
				continue
			}
			told = append(told, o)
		}
		return true
	}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = c.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	rounds := func() {
		time.Sleep(time.Second)
		synctest.Wait()
	}
	last := func() *site.Orders {
		for i := len(told) - 1; i >= 0; i-- {
			if told[i].Site != "" {
				return told[i]
			}
		}
		t.Fatal("the runtime was told nothing")
		return nil
	}
	who := model.Caller{Tenant: "t", Actor: "alice"}
	a, b := site.Object{
		Name: "a",
		Host: "agent:x",
		Type: "script",
	}, site.Object{
		Name:     "b",
		Host:     "agent:x",
		Type:     "script",
		Requires: []site.Requirement{{To: "up", Object: "a"}},
	}
	doc := &site.Document{Name: "s", Objects: []site.Object{a, b}}
	p, err := c.Preview(who, doc)
	if err != nil || len(p.Added) != 2 || len(p.Rounds) != 2 {
		t.Fatalf("%+v, %v", p, err)
	}
	if _, err := c.Apply(t.Context(), who, doc); err != nil {
		t.Fatal(err)
	}
	rounds()
	o := last()
	if o.Generation != 1 || len(o.Lives) != 2 || o.Lives[0].Inc != 1 || o.Agents["agent:x"] != "one" {
		t.Fatalf("%+v", o)
	}
	if s, err := c.Status(t.Context(), "t", "s", 0); err != nil || s.ConvergedObjects != 0 || s.Items[0].Phase != "unheard" {
		t.Fatalf("%+v, %v", s, err)
	}
	report := func(generation uint64, objects ...*pb.ObjectReport) {
		for _, x := range objects {
			x.Inc, x.State, x.Target, x.AtRest, x.Generation = 1, 2, 2, true, generation
		}
		c.Hear("s1", []*pb.RuntimeReport{{Tenant: "t", Site: "s", Epoch: o.Epoch, Objects: objects}})
	}
	report(1, &pb.ObjectReport{Id: 0}, &pb.ObjectReport{Id: 1})
	s, err := c.Status(t.Context(), "t", "s", 0)
	if err != nil || s.ConvergedObjects != 2 || s.Items[0].State != "up" || s.Items[0].Agent != "x" {
		t.Fatalf("%+v, %v", s, err)
	}
	if chain, err := c.Explain("t", "s", "b"); err != nil || len(chain) != 0 {
		t.Errorf("%v, %v", chain, err)
	}

	// Without b: nothing switches before it is away.
	if _, err := c.Apply(t.Context(), who, &site.Document{Name: "s", Objects: []site.Object{a}}); err != nil {
		t.Fatal(err)
	}
	rounds()
	if o := last(); o.Next != 2 || len(o.Removing) != 1 || o.Removing[0] != 1 {
		t.Fatalf("%+v", o)
	}
	if _, err := c.Apply(t.Context(), who, doc); !errors.Is(err, problem.Conflict) {
		t.Errorf("a third generation was taken: %v", err)
	}
	report(1, &pb.ObjectReport{Id: 1, Removing: true})
	rounds()
	if o := last(); o.Generation != 2 || o.Next != 0 || len(o.Lives) != 1 {
		t.Fatalf("%+v", o)
	}
	if again, err := c.Apply(t.Context(), who, &site.Document{Name: "s", Objects: []site.Object{a}}); err != nil || !again.Unchanged {
		t.Errorf("%+v, %v", again, err)
	}
	if back, err := c.Revert(t.Context(), who, "s", 0); err != nil || back.Preview.Generation != 3 || len(back.Preview.Added) != 1 {
		t.Fatalf("%+v, %v", back, err)
	}
	rounds()
	if o := last(); o.Generation != 3 || len(o.Lives) != 2 || o.Lives[1].Inc != 2 {
		t.Fatalf("b begins another life: %+v", o)
	}

	// A runtime that does not answer finds nothing; the probe ends without it.
	soon, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer stop()
	if f, err := c.Probe(soon, "t", "s"); err != nil || len(f) != 2 || f[0].Found != "unknown" {
		t.Errorf("%+v, %v", f, err)
	}
	if _, err := c.Delete(t.Context(), who, "s"); err != nil {
		t.Fatal(err)
	}
	rounds()
	report(3, &pb.ObjectReport{Id: 0, Removing: true})
	c.Hear(
		"s1",
		[]*pb.RuntimeReport{{Tenant: "t", Site: "s", Epoch: o.Epoch, Objects: []*pb.ObjectReport{{Id: 1, Inc: 2, Removing: true, AtRest: true}}}},
	)
	rounds()
	if o := last(); !o.Gone {
		t.Errorf("%+v", o)
	}
	if _, err := c.Status(t.Context(), "t", "s", 0); !errors.Is(err, problem.NotFound) {
		t.Error(err)
	}
}

// Events of many objects at once are cut so that each portion fits into an entry.
func TestPortions(t *testing.T) {
	var events []event
	for i := range 20_000 {
		e := &pb.ObjectEvent{Object: fmt.Sprint("object", i), Status: "moved", Message: "start: down → up"}
		events = append(events, event{ObjectEvent: e})
	}
	events = append(events, event{ObjectEvent: &pb.ObjectEvent{Object: "talker", Message: strings.Repeat("x", 2*portionSize)}}, events[0])
	n := 0
	for rest := events; len(rest) > 0; {
		p := portion(rest)
		rest = rest[len(p):]
		size := 0
		for _, e := range p {
			if e != events[n] {
				t.Fatalf("event %d is out of order", n)
			}
			n++
			size += proto.Size(e.ObjectEvent)
		}
		if size > portionSize && len(p) > 1 || len(p) == 0 {
			t.Errorf("a portion of %d events and %d bytes", len(p), size)
		}
	}
	if n != len(events) {
		t.Errorf("%d of %d events", n, len(events))
	}
}
