package bounds_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/coopr/coopr/internal/bounds"
)

func TestBucket(t *testing.T) {
	var b bounds.Bucket
	now := time.Unix(1000, 0)
	for i := range 4 {
		if wait := b.Take(now, 2, 4); wait != 0 {
			t.Errorf("place %d: wait %v", i, wait)
		}
	}
	if wait := b.Take(now, 2, 4); wait != 500*time.Millisecond {
		t.Errorf("a full bucket says %v", wait)
	}
	if b.Idle(now.Add(time.Second), 2) {
		t.Error("the bucket is idle after half of the time")
	}
	for range 2 {
		if wait := b.Take(now.Add(500*time.Millisecond), 2, 4); wait != 0 { // the clock went back since Idle
			t.Errorf("after a second: %v", wait)
		}
	}
	if wait := b.Take(now.Add(500*time.Millisecond), 2, 4); wait != 500*time.Millisecond {
		t.Errorf("a clock that went back makes room: %v", wait)
	}
	if !b.Idle(now.Add(time.Hour), 2) {
		t.Error("the bucket is not idle")
	}
}

func TestSource(t *testing.T) {
	for address, want := range map[string]string{
		"10.1.2.3:4444":              "10.1.2.3/32",
		"[::ffff:10.1.2.3]:4444":     "10.1.2.3/32",
		"[2001:db8:1:2:3:4:5:6]:443": "2001:db8:1:2::/64",
		"[2001:db8:1:2::9]:443":      "2001:db8:1:2::/64",
		"[fe80::1%eth0]:443":         "fe80::/64",
		"2001:db8::1":                "2001:db8::/64",
		"pipe":                       "invalid Prefix",
		"":                           "invalid Prefix",
	} {
		if got := bounds.Source(address).String(); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}

// A client that comes under many names makes the table neither grow nor forget.
func TestTable(t *testing.T) {
	type value struct{ used int }
	now := time.Unix(1000, 0)
	table := bounds.NewTable[string](100, func(v *value, _ time.Time) bool { return v.used == 0 })
	table.Of("known", now).used = 7
	for i := range 10_000 {
		now = now.Add(time.Millisecond)
		table.Of(fmt.Sprint("stranger ", i), now).used++
	}
	if n := table.Sweep(now); n != 100 {
		t.Errorf("%d values, not 100", n)
	}
	if table.Of("known", now).used != 7 {
		t.Error("the table forgot a value in use")
	}
	if n := table.Of("one more", now).used; n != 10_000-99 {
		t.Errorf("keys without a place of their own share a value with %d uses", n)
	}
	for i := range 99 {
		table.Of(fmt.Sprint("stranger ", i), now).used = 0
	}
	if n := table.Of("at once", now).used; n == 0 {
		t.Error("the table searched for idle values twice within a second")
	}
	if n := table.Of("later", now.Add(time.Second)).used; n != 0 || table.Sweep(now) != 1 {
		t.Errorf("idle values stay, and the new one has %d uses", n)
	}
}
