package state

import "testing"

// TestWatchersGoAway: a mesh has any number of terms, and each adds its own watchers.
func TestWatchersGoAway(t *testing.T) {
	m, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	calls := [2]int{}
	stop := m.Watch(func(Batch) { calls[0]++ })
	for range 100 {
		m.Watch(func(Batch) { calls[1]++ })()
	}
	if n := len(m.watchers); n > 2 {
		t.Errorf("the machine keeps %d watchers", n)
	}
	m.tell(Batch{})
	stop()
	m.tell(Batch{})
	if calls != [2]int{1, 0} {
		t.Errorf("calls %v", calls)
	}
}
