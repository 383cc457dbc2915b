package rest

import (
	"context"
	"errors"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
)

// TestRoomForAnswers has a tenant whose bodies leave no room for an answer.
func TestRoomForAnswers(t *testing.T) {
	s := newLoads(Bounds{Bodies: 4 << 10}, 1<<10)
	who := model.Caller{Tenant: "one"}
	none := func(int) error { return nil }
	learn, err := s.answer(who, "list", none)
	if err != nil {
		t.Fatal(err)
	}
	learn(200 << 10)
	take, release := s.body(who)
	defer release()
	if err := take(freeBody + 512); err != nil {
		t.Fatal(err)
	}
	if _, err := s.answer(who, "list", take); !errors.Is(err, problem.Throttled) {
		t.Errorf("an answer without room: %v", err)
	}
	if _, err := s.answer(model.Caller{Tenant: "one", Root: true}, "list", take); err != nil {
		t.Errorf("an answer for the operator: %v", err)
	}
}

// TestTurns takes all places of a tenant, and has more requests wait for them.
func TestTurns(t *testing.T) {
	s := newLoads(Bounds{Tenants: true}, 1)
	ctx := context.Background()
	next := func() *turn { return &turn{loads: s, tenant: "one"} }
	var working []*turn
	for range places() {
		working = append(working, next())
		if err := working[len(working)-1].begin(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := (&turn{loads: s, tenant: "two"}).begin(ctx); err != nil {
		t.Error(err)
	}
	first, second := next(), next()
	turnOfFirst, _ := first.enqueue()
	turnOfSecond, _ := second.enqueue()
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if err := next().begin(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("a request whose client is gone: %v", err)
	}
	for range 2 { // a place is given back once
		working[0].end()
	}
	if len(turnOfFirst) != 1 || len(turnOfSecond) != 0 {
		t.Errorf("%d, %d", len(turnOfFirst), len(turnOfSecond))
	}
	for range mostQueued - 1 {
		if _, err := next().enqueue(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := next().enqueue(); !errors.Is(err, problem.Throttled) {
		t.Errorf("too many wait: %v", err)
	}
	reader := &turn{loads: s, tenant: "one", reader: true}
	if place, err := reader.enqueue(); place == nil || err != nil {
		t.Errorf("a reader that was counted: %v", err)
	}
	first.load.queue = first.load.queue[:1] // the second
	last := next()
	if working[1].end(); len(turnOfSecond) != 1 {
		t.Error("it is not the turn of the second")
	}
	working[2].end()
	if err := errors.Join(last.begin(ctx), last.begin(ctx)); err != nil {
		t.Error(err)
	}
	last.end()
	if err := last.begin(ctx); err != nil { // its answer has begun
		t.Error(err)
	}
	working[3].end()
	if l := first.load; l.working != places()-2 || len(l.queue) != 0 {
		t.Errorf("%d places are taken, and %d requests wait", l.working, len(l.queue))
	}
}
