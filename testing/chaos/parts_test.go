package chaos

import (
	"slices"
	"testing"
	"time"
)

func TestScheduleIsReadAsWritten(t *testing.T) {
	next := generator(7, 5)
	var s schedule
	pairs := 0
	for len(s) < 3*len(faults) {
		together := next()
		if first, rest := together.first(); len(first) != len(together) || len(rest) > 0 {
			t.Errorf("%v cannot happen at the same time", together)
		}
		if len(together) > 1 {
			pairs++
		}
		s = append(s, together...)
	}
	if pairs == 0 {
		t.Error("never do two faults happen at the same time")
	}
	got, err := parseSchedule(s.String(), 5)
	if err != nil || !slices.Equal(got, s) {
		t.Errorf("%v, %v, not %v", got, err, s)
	}
	for _, kind := range kinds() {
		if n := len(slices.DeleteFunc(slices.Clone(s), func(x step) bool { return x.kind != kind })); n != 3 {
			t.Errorf("the fault %s comes %d times", kind, n)
		}
	}
	for _, bad := range []string{"", "kill", "kill@0", "kill@5/1s", "kill@x/1s", "kill@0/soon", "nap@0/1s", "kill@0/1s+mute@1/1s"} {
		if got, err := parseSchedule(bad, 5); err == nil {
			t.Errorf("%q is read as %v", bad, got)
		}
	}
}

// A fault is alone if the schedule was shrunk so that its neighbour is one that cannot happen at the same time.
func TestFirst(t *testing.T) {
	for text, want := range map[string]string{
		"kill@0/1s,mute@1/1s":            "kill@0/1s",
		"kill@0/1s,+mute@1/1s,flip@0/1s": "kill@0/1s,+mute@1/1s",
		"kill@0/1s,+flip@1/1s":           "kill@0/1s",
		"+mute@1/1s":                     "+mute@1/1s",
	} {
		s, err := parseSchedule(text, 3)
		if err != nil {
			t.Fatal(err)
		}
		if got, rest := s.first(); got.String() != want || len(got)+len(rest) != len(s) {
			t.Errorf("%s begins with %v, not %s", text, got, want)
		}
	}
}

func TestShrink(t *testing.T) {
	var all schedule
	for i := range 20 {
		all = append(all, step{kind: "kill", agent: i})
	}
	for _, c := range []struct {
		name string
		need []int // the faults that together make a run fail
		most int
		want int // how many faults may be left
	}{
		{"one fault", []int{7}, 1000, 1},
		{"two faults", []int{3, 17}, 1000, 2},
		{"all faults but few runs", []int{3, 17}, 3, 20},
		{"no run", []int{3}, 0, 20},
	} {
		runs := 0
		got := shrink(all, c.most, func(s schedule) bool {
			runs++
			for _, n := range c.need {
				if !slices.ContainsFunc(s, func(x step) bool { return x.agent == n }) {
					return false
				}
			}
			return true
		})
		if len(got) > c.want || runs > c.most {
			t.Errorf("%s: %d faults are left after %d runs", c.name, len(got), runs)
		}
	}
}

// put, del and get are operations of a client that takes one second each, from its first second on.
func put(from int, value string, version int) op {
	return op{key: "k", what: "put", value: value, version: version, call: second(from), end: second(from + 1)}
}

func get(from int, value string, version int) op {
	return op{key: "k", what: "get", value: value, version: version, found: version != 0, call: second(from), end: second(from + 1)}
}

func del(from int, found bool) op {
	return op{key: "k", what: "delete", found: found, call: second(from), end: second(from + 1)}
}

func second(n int) time.Duration { return time.Duration(n) * time.Second }

// The model accepts what a mesh may answer, and nothing else.
func TestModel(t *testing.T) {
	lost := put(2, "b", 0)
	lost.unknown = true
	for _, c := range []struct {
		name    string
		history []op
		want    bool
	}{
		{"a read after a write", []op{put(0, "a", 1), get(1, "a", 1)}, true},
		{"a stale read", []op{put(0, "a", 1), put(2, "b", 2), get(4, "a", 1)}, false},
		{"a lost write", []op{put(0, "a", 1), get(2, "", 0)}, false},
		{"a concurrent read of either value", []op{put(0, "a", 1), put(2, "b", 2), get(2, "a", 1), get(2, "b", 2)}, true},
		{"the answer of another write", []op{put(0, "a", 1), put(2, "b", 2), put(4, "c", 2)}, false},
		{"a write that was carried out twice", []op{put(0, "a", 1), put(2, "b", 3)}, false},
		{"a write without an answer that was carried out", []op{put(0, "a", 1), lost, get(6, "b", 2)}, true},
		{"a write without an answer that was not carried out", []op{put(0, "a", 1), lost, get(6, "a", 1)}, true},
		{"a write without an answer that comes and goes", []op{put(0, "a", 1), lost, get(6, "b", 2), get(8, "a", 1)}, false},
		{"a deletion", []op{put(0, "a", 1), del(2, true), get(4, "", 0), del(6, false)}, true},
		{"a deletion that was done and answered as not found", []op{put(0, "a", 1), del(2, false), get(4, "", 0)}, false},
		{"a key that was deleted and is read", []op{put(0, "a", 1), del(2, true), get(4, "a", 1)}, false},
		{"versions after a deletion", []op{put(0, "a", 1), del(2, true), put(4, "b", 1), get(6, "b", 1), put(8, "c", 2)}, true},
	} {
		err := linearizable(c.history)
		if (err == nil) != c.want {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
