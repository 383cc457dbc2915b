package state

import (
	"errors"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
)

// The ring holds the latest groups in order while it grows, when it is full, and after a reset. A reader of events that
// are no longer kept gets an error.
func TestEventsKeepTheLatest(t *testing.T) {
	const size = 3
	e := newEvents(size)
	publish := func(index uint64) { e.publish(index, []group{{event: model.Event{Index: index}}}) }
	check := func(after, first, last uint64) {
		t.Helper()
		groups, index, _, err := e.after(after)
		if err != nil || index != last || uint64(len(groups)) != last+1-first {
			t.Fatalf("after %d: %d groups up to index %d, %v; want those of %d to %d", after, len(groups), index, err, first, last)
		}
		for i, g := range groups {
			if g.event.Index != first+uint64(i) {
				t.Fatalf("after %d: group %d is of index %d", after, i, g.event.Index)
			}
		}
	}
	check(0, 1, 0)
	for i := uint64(1); i <= 10; i++ {
		publish(i)
		check(i-min(i, size), i+1-min(i, size), i)
		check(i-1, i, i)
		check(i, i+1, i)
		if i > size {
			if _, _, _, err := e.after(i - size - 1); !errors.Is(err, problem.Conflict) {
				t.Fatalf("after %d, with %d published: %v", i-size-1, i, err)
			}
		}
	}
	e.reset(20)
	if _, _, _, err := e.after(19); !errors.Is(err, problem.Conflict) {
		t.Fatalf("after the reset to index 20: %v", err)
	}
	check(20, 21, 20)
	publish(21)
	check(20, 21, 21)
}
