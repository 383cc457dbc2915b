package cluster

import (
	"testing"
	"time"
)

// TestTimesOfLines gives lines, which have a time of the day alone, their day.
func TestTimesOfLines(t *testing.T) {
	at := func(text string) time.Time {
		out, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	a := &attemptLog{leased: at("2026-03-31T23:59:58Z"), lost: at("2026-04-01T07:00:00Z"), head: logLine{Node: "web1", Attempt: 2}}
	var last time.Time
	for _, x := range []struct {
		line, time string
		stderr     bool
		text       string
	}{
		{"23:59:57.500   from a clock that is behind", "2026-03-31T23:59:57.5Z", false, "from a clock that is behind"},
		{"23:59:59.000 ! oh", "2026-03-31T23:59:59Z", true, "oh"},
		{"no time", "2026-03-31T23:59:59Z", false, "no time"},
		{"00:00:01.000   the next day", "2026-04-01T00:00:01Z", false, "the next day"},
		{"22:00:00.000   ", "2026-04-01T22:00:00Z", false, ""},
		{"21:59:59.000   the clock was set back", "2026-04-01T21:59:59Z", false, "the clock was set back"},
		{"12:00:00.000   ten hours earlier is the day after", "2026-04-02T12:00:00Z", false, "ten hours earlier is the day after"},
		{"99:00:00.000   no time", "2026-04-02T12:00:00Z", false, "99:00:00.000   no time"},
	} {
		l := a.parse(x.line, last)
		if last = l.Time; !last.Equal(at(x.time)) || l.Stderr != x.stderr || l.Text != x.text || l.Node != "web1" || l.Attempt != 2 {
			t.Errorf("%q is %+v", x.line, l)
		}
	}
	if l := a.parse("what the state keeps", time.Time{}); !l.Time.Equal(a.lost) {
		t.Errorf("a line whose agent was lost has the time %v", l.Time)
	}
}
