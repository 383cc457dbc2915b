package lease

import (
	"testing"
	"time"
)

func TestHellos(t *testing.T) {
	order := []Hello{{}, {0, 1}, {1, 0}, {1, 9}, {2, 1}}
	for i, a := range order {
		for j, b := range order {
			if a.Before(b) != (i < j) || Opens(a, b) != (j >= i) {
				t.Errorf("%v before %v: %t, opens after it: %t", a, b, a.Before(b), Opens(b, a))
			}
		}
	}
	for _, last := range order {
		mark := Removed(last, 5)
		for _, old := range []Hello{last, {last.Incarnation, last.Number + 9}, {5, 1}} {
			if Opens(mark, old) {
				t.Errorf("%v opens a session after the removal of %v at 5", old, last)
			}
		}
		if !Opens(mark, Hello{Next(mark), 0}) || !Opens(last, Hello{Next(last), 0}) {
			t.Errorf("no hello follows %v", last)
		}
	}
}

// A worker that was answered stops before its leader may end the session.
func TestWorkerStopsFirst(t *testing.T) {
	timing := Timing{TTL: 5 * time.Second, Grace: 5 * time.Second}
	sent := time.Unix(100, 0)
	for late := range 10 {
		heard := sent.Add(time.Duration(late) * time.Second)
		for at := sent; at.Before(sent.Add(time.Minute)); at = at.Add(100 * time.Millisecond) {
			if InTouch(at, Until(sent, timing.TTL)) && timing.MayEnd(at, heard, Checks) {
				t.Fatalf("heard %s after it was sent, and ended after %s", heard.Sub(sent), at.Sub(sent))
			}
		}
	}
	if timing.MayEnd(sent.Add(time.Hour), sent, Checks-1) {
		t.Error("the clock alone ended a session")
	}
	now := sent.Add(time.Minute)
	if got := timing.Inherited(now, sent, true); !got.Equal(sent.Add(timing.Grace)) {
		t.Error(got)
	}
	if got := timing.Inherited(now, sent, false); !got.Equal(now.Add(timing.Grace)) {
		t.Error(got)
	}
}

func TestInTouch(t *testing.T) {
	now := time.Unix(100, 0)
	for _, c := range []struct {
		until time.Time
		touch bool
	}{{time.Time{}, false}, {now, false}, {now.Add(1), true}, {now.Add(-1), false}} {
		if InTouch(now, c.until) != c.touch || Begins("s", "s", now, c.until) != c.touch || Begins("s", "t", now, c.until) {
			t.Errorf("until %v", c.until)
		}
	}
}
