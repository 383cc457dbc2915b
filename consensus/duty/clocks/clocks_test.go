package clocks_test

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coopr/coopr/consensus/duty/clocks"
)

func names(c *clocks.Clocks) string {
	var out []string
	list, _ := c.Differ()
	for _, x := range list {
		out = append(out, x.Name+" "+(time.Duration(x.AheadMs)*time.Millisecond).String())
	}
	return strings.Join(out, ", ")
}

// The agents that differ from most others are named, the leader among them.
func TestDiffer(t *testing.T) {
	for _, c := range []struct {
		name   string
		leader time.Duration // its clock is ahead of the right time
		others []time.Duration
		want   string
	}{
		{"all are right", 0, []time.Duration{0, 0}, ""},
		{"nobody else is there", time.Hour, nil, ""},
		{"small differences", 0, []time.Duration{14 * time.Minute, -14 * time.Minute}, ""},
		{"one is ahead", 0, []time.Duration{time.Hour, 0}, "a 1h0m0s"},
		{"one is behind", 0, []time.Duration{0, -2 * time.Hour}, "b -2h0m0s"},
		{"the leader is wrong", time.Hour, []time.Duration{0, 0}, "leader 1h0m0s"},
		{"the leader is believed by one other", time.Hour, []time.Duration{0}, "a -1h0m0s"},
		{"four, one of them wrong", 0, []time.Duration{0, 0, -time.Hour}, "c -1h0m0s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			all := clocks.New(slog.New(slog.DiscardHandler))
			all.Hear("s", "0", "leader", 0)
			for i, x := range c.others {
				name := string(rune('a' + i))
				all.Hear("s"+name, name, name, x-c.leader)
			}
			if got := names(all); got != c.want {
				t.Errorf("%q differ, want %q", got, c.want)
			}
		})
	}
}

// The number changes with the list, and only then; the log has each agent once.
func TestChanges(t *testing.T) {
	var log strings.Builder
	all := clocks.New(slog.New(slog.NewTextHandler(&log, nil)))
	var numbers []uint64
	step := func() {
		_, n := all.Differ()
		numbers = append(numbers, n)
	}
	for _, s := range []string{"a", "b", "c"} {
		all.Hear(s, s, s, 0)
	}
	step()
	all.Hear("c", "c", "c", time.Hour)
	step()
	all.Hear("c", "c", "c", time.Hour+200*time.Millisecond) // the network was slow
	step()
	all.Hear("c", "c", "c", 2*time.Hour)
	step()
	all.Leave("c")
	step()
	all.Leave("c")
	step()
	if want := []uint64{0, 1, 1, 2, 3, 3}; !slices.Equal(numbers, want) {
		t.Errorf("numbers %v, want %v", numbers, want)
	}
	if n := strings.Count(log.String(), "differs"); n != 1 {
		t.Errorf("%d lines of log: %s", n, log.String())
	}
}
