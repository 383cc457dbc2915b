package profile

import (
	"flag"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	l, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestCronAtClockChanges checks the times that are due around the changes of summer time.
func TestCronAtClockChanges(t *testing.T) {
	for _, c := range []struct {
		about, cron, zone, from string
		want                    []string
	}{
		{"an ordinary day", "30 2 * * *", "Europe/Berlin", "2026-01-10T00:00:00Z", []string{"2026-01-10T01:30:00Z", "2026-01-11T01:30:00Z"}},
		{"a time that is skipped: the end of the gap", "30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z",
			[]string{"2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"}},
		{"a time that comes twice: the first", "30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z",
			[]string{"2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"}},
		{"an hour that is skipped is not an interval", "*/30 * * * *", "Europe/Berlin", "2026-03-29T00:20:00Z",
			[]string{"2026-03-29T00:30:00Z", "2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z"}},
		{"an hour that comes twice is two", "*/30 * * * *", "Europe/Berlin", "2026-10-25T00:20:00Z",
			[]string{"2026-10-25T00:30:00Z", "2026-10-25T01:00:00Z", "2026-10-25T01:30:00Z", "2026-10-25T02:00:00Z"}},
		{"several in the gap are one", "0,15,45 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z",
			[]string{"2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"}},
		{"half an hour, southern", "15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z",
			[]string{"2026-10-03T15:30:00Z", "2026-10-04T15:15:00Z"}},
		{"midnight is skipped", "0 0 * * *", "America/Santiago", "2026-09-05T12:00:00Z",
			[]string{"2026-09-06T04:00:00Z", "2026-09-07T03:00:00Z"}},
		{"a whole day is skipped", "0 12 30 12 *", "Pacific/Apia", "2011-12-29T00:00:00Z",
			[]string{"2011-12-30T10:00:00Z", "2012-12-29T22:00:00Z"}},
		{"leap days", "0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z", []string{"2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"}},
		{"one of two sorts of days", "0 0 13 * fri", "UTC", "2026-02-01T00:00:00Z",
			[]string{"2026-02-06T00:00:00Z", "2026-02-13T00:00:00Z", "2026-02-20T00:00:00Z", "2026-02-27T00:00:00Z", "2026-03-06T00:00:00Z",
				"2026-03-13T00:00:00Z"}},
		{"Sunday is 7 too", "0 0 * * 7", "UTC", "2026-02-01T00:00:00Z", []string{"2026-02-08T00:00:00Z"}},
		{"names and steps", "5-59/20 9-17/4 * jan-mar mon-fri", "UTC", "2026-03-31T16:00:00Z",
			[]string{"2026-03-31T17:05:00Z", "2026-03-31T17:25:00Z", "2026-03-31T17:45:00Z", "2027-01-01T09:05:00Z"}},
		{"a nickname", "@monthly", "UTC", "2026-03-31T16:00:00Z", []string{"2026-04-01T00:00:00Z"}},
	} {
		e, err := ParseCron(c.cron)
		if err != nil {
			t.Errorf("%s: %v", c.about, err)
			continue
		}
		at, _ := time.Parse(time.RFC3339, c.from)
		var got []string
		for range c.want {
			at = e.Next(at, zone(t, c.zone))
			got = append(got, at.UTC().Format(time.RFC3339))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s (%s in %s): %v, want %v", c.about, c.cron, c.zone, got, c.want)
		}
	}
}

// TestCronAgainstClock: intervals are due at just the minutes at which a clock shows them,
// and times of day once on every day that has them.
func TestCronAgainstClock(t *testing.T) {
	fewer(t)
	zones := []string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "America/Santiago"}
	rapid.Check(t, func(t *rapid.T) {
		place, err := time.LoadLocation(rapid.SampledFrom(zones).Draw(t, "zone"))
		if err != nil {
			t.Fatal(err)
		}
		minute := rapid.SampledFrom([]string{"*", "*/7", "0", "15,45", "59"}).Draw(t, "minute")
		hour := rapid.SampledFrom([]string{"*", "*/3", "0", "1-3", "23", "2"}).Draw(t, "hour")
		day := rapid.SampledFrom([]string{"*", "29", "25-31"}).Draw(t, "day")
		e, err := ParseCron(strings.Join([]string{minute, hour, day, "*", "*"}, " "))
		if err != nil {
			t.Fatal(err)
		}
		// Around a change of the clock, where there is one.
		from := time.Date(2026, time.Month(rapid.IntRange(1, 12).Draw(t, "month")), rapid.IntRange(1, 28).Draw(t, "date"), 0, 0, 0, 0, time.UTC)
		for range 300 {
			if offset(from, place) != offset(from.AddDate(0, 0, 1), place) {
				break
			}
			from = from.AddDate(0, 0, 1)
		}
		from = from.Add(-time.Duration(rapid.IntRange(0, 24).Draw(t, "hours")) * time.Hour)
		until := from.AddDate(0, 0, 3)
		var want []time.Time
		seen := map[string]bool{}
		// Times of day that came before the window for the first time are none of it.
		for x := from.Add(-3 * time.Hour); !x.After(until); x = x.Add(time.Minute) {
			l := x.In(place)
			if e.minute>>l.Minute()&1 == 0 || e.hour>>l.Hour()&1 == 0 || !e.on(time.Date(l.Year(), l.Month(), l.Day(), 0, 0, 0, 0, time.UTC)) {
				continue
			}
			if wall := l.Format("2006-01-02 15:04"); e.interval || !seen[wall] {
				if seen[wall] = true; x.After(from) {
					want = append(want, x)
				}
			}
		}
		var got []time.Time
		for x := e.Next(from, place); !x.IsZero() && !x.After(until); x = e.Next(x, place) {
			l := x.In(place)
			// Leave out times that were moved to the end of the gap: they do not match the fields.
			if e.interval || e.minute>>l.Minute()&1 > 0 && e.hour>>l.Hour()&1 > 0 {
				got = append(got, x)
			}
		}
		for i := range max(len(got), len(want)) {
			if i >= len(got) || i >= len(want) || !got[i].Equal(want[i]) {
				t.Fatalf("%s %s %s in %s from %s: number %d of %d is not that of %d:\n%v\nwant\n%v", minute, hour, day, place, from, i, len(got),
					len(want), got[min(i, len(got)):min(i+2, len(got))], want[min(i, len(want)):min(i+2, len(want))])
			}
		}
	})
}

// fewer makes a property's check have 40 cases: each is thousands of moments.
func fewer(t *testing.T) {
	t.Helper()
	f := flag.Lookup("rapid.checks")
	was := f.Value.String()
	if was != f.DefValue {
		return // the command line has another number of cases
	}
	if err := f.Value.Set("40"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Value.Set(was) })
}

func TestBadCron(t *testing.T) {
	for _, s := range []string{"", "* * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8", "*/0 * * * *", "5-1 * * * *",
		"a * * * *", "0 0 31 feb *", "@often", "1,,2 * * * *"} {
		if _, err := ParseCron(s); err == nil {
			t.Errorf("%q was taken", s)
		}
	}
}

func FuzzParseCron(f *testing.F) {
	f.Add("*/5 1-3,7 * jan-feb mon")
	f.Fuzz(func(t *testing.T, s string) {
		c, err := ParseCron(s)
		if err != nil {
			return
		}
		now := time.Date(2026, 3, 28, 23, 59, 0, 0, time.UTC)
		if next := c.Next(now, time.UTC); !next.After(now) {
			t.Errorf("%q: %s is next after %s", s, next, now)
		}
	})
}
