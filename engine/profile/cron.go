package profile

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Cron is a cron expression: minute, hour, day of the month, month, day of the week.
//
// When clocks change, a skipped time of day is replaced by the first moment after the gap, and
// a repeated one counts only the first time. So "30 2 * * *" is due once on every day.
// Expressions whose hour begins with a star are intervals and not times of day. They follow
// the clock: not due in the gap, and twice in the repeated hour.
type Cron struct {
	minute, hour, day, month, weekday uint64
	anyDay, anyWeekday                bool
	interval                          bool
}

type field struct {
	name     string
	min, max int
	names    []string // of min and on
}

var (
	minutes = field{name: "minute", max: 59}
	hours   = field{name: "hour", max: 23}
	days    = field{name: "day of the month", min: 1, max: 31}
	months  = field{
		name:  "month",
		min:   1,
		max:   12,
		names: []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"},
	}
	weekdays = field{name: "day of the week", max: 7, names: []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}}
)

var nicknames = map[string]string{
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
	"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}

// ParseCron parses an expression of five fields, or a nickname such as @daily. A field
// consists of "*", numbers and names, ranges and steps, and lists of these.
func ParseCron(s string) (*Cron, error) {
	if full, ok := nicknames[strings.ToLower(strings.TrimSpace(s))]; ok {
		s = full
	}
	parts := strings.Fields(s)
	if len(parts) != 5 {
		return nil, fmt.Errorf("%q must have five fields: minute, hour, day of the month, month, day of the week", s)
	}
	c := &Cron{}
	for i, f := range []struct {
		field
		into *uint64
	}{{minutes, &c.minute}, {hours, &c.hour}, {days, &c.day}, {months, &c.month}, {weekdays, &c.weekday}} {
		set, err := f.parse(parts[i])
		if err != nil {
			return nil, fmt.Errorf("%s %q: %w", f.name, parts[i], err)
		}
		*f.into = set
	}
	if c.weekday>>7&1 > 0 {
		c.weekday |= 1 // 7 is also Sunday
	}
	star := func(s string) bool { return strings.HasPrefix(s, "*") || s == "?" }
	c.anyDay, c.anyWeekday, c.interval = star(parts[2]), star(parts[4]), star(parts[1])
	if c.Next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), time.UTC).IsZero() {
		return nil, fmt.Errorf("%q never matches: no month that it allows has such a day", s)
	}
	return c, nil
}

func (f field) parse(s string) (uint64, error) {
	var set uint64
	for item := range strings.SplitSeq(s, ",") {
		span, by, stepped := strings.Cut(item, "/")
		step := 1
		if stepped {
			n, err := strconv.Atoi(by)
			if err != nil || n < 1 || n > f.max {
				return 0, fmt.Errorf("the step %q must be from 1 to %d", by, f.max)
			}
			step = n
		}
		from, to := f.min, f.max
		if f.name == weekdays.name {
			to = 6
		}
		if span != "*" && span != "?" {
			low, high, ranged := strings.Cut(span, "-")
			var err error
			if from, err = f.value(low); err != nil {
				return 0, err
			}
			switch {
			case ranged:
				if to, err = f.value(high); err != nil {
					return 0, err
				}
			case !stepped:
				to = from
			}
			if to < from {
				return 0, fmt.Errorf("the range %q goes backwards", span)
			}
		}
		for n := from; n <= to; n += step {
			set |= 1 << n
		}
	}
	return set, nil
}

func (f field) value(s string) (int, error) {
	if i := slices.Index(f.names, strings.ToLower(s)); i >= 0 {
		return f.min + i, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < f.min || n > f.max {
		return 0, fmt.Errorf("%q must be from %d to %d", s, f.min, f.max)
	}
	return n, nil
}

// years bounds the search. The longest wait is for a 29th of February on a given weekday
// across a century without a leap day.
const years = 41

// Next returns the first time after t at which the expression is due in a time zone, or the
// zero time if there is none.
func (c *Cron) Next(t time.Time, place *time.Location) time.Time {
	local := t.In(place)
	// A gap may have moved a time of the previous day into this one.
	day := time.Date(local.Year(), local.Month(), local.Day(), 0, 0, 0, 0, time.UTC).AddDate(0, 0, -1)
	for last := day.AddDate(years, 0, 0); day.Before(last); day = day.AddDate(0, 0, 1) {
		if c.month>>day.Month()&1 == 0 {
			day = time.Date(day.Year(), day.Month()+1, 0, 0, 0, 0, 0, time.UTC) // the loop continues with the 1st
			continue
		}
		if c.on(day) {
			if at := c.within(day, t, place); !at.IsZero() {
				return at
			}
		}
	}
	return time.Time{}
}

// on reports whether a day matches the expression. If both kinds of days are restricted, one
// match is enough.
func (c *Cron) on(day time.Time) bool {
	month, week := c.day>>day.Day()&1 > 0, c.weekday>>day.Weekday()&1 > 0
	switch {
	case c.anyDay && c.anyWeekday:
		return month && week
	case c.anyDay:
		return week && month
	case c.anyWeekday:
		return month && week
	}
	return month || week
}

// within returns the first matching time of a day after t.
func (c *Cron) within(day, t time.Time, place *time.Location) time.Time {
	var first time.Time
	calm := steady(day, place)
	ahead := time.Duration(offset(day, place)) * time.Second
	// The clock shows a time between these two after t.
	least, most := offset(day.Add(-around), place), offset(day.Add(2*around), place)
	least, most = min(least, most), max(least, most)
	for h := c.hour; h > 0; h &= h - 1 {
		for m := c.minute; m > 0; m &= m - 1 {
			wall := day.Add(time.Duration(bits.TrailingZeros64(h))*time.Hour + time.Duration(bits.TrailingZeros64(m))*time.Minute)
			if calm {
				// Later times of day are later moments, so the first match is the result.
				if x := wall.Add(-ahead); x.After(t) {
					return x
				}
				continue
			}
			switch {
			case !wall.Add(-time.Duration(least) * time.Second).After(t):
				continue // over, in either case
			case !first.IsZero() && wall.Add(-time.Duration(most)*time.Second).After(first):
				return first
			}
			at, gap := moments(wall, place)
			if !c.interval {
				at = at[:min(len(at), 1)]
				if len(at) == 0 {
					at = []time.Time{gap}
				}
			}
			for _, x := range at {
				if x.After(t) && (first.IsZero() || x.Before(first)) {
					first = x
				}
			}
		}
		// Later hours are later moments, except around a change of the clock.
		if !first.IsZero() && steady(day, place) {
			return first
		}
	}
	return first
}

// around is longer than any change of the clock.
const around = 26 * time.Hour

func offset(t time.Time, place *time.Location) int {
	_, off := t.In(place).Zone()
	return off
}

// steady reports whether the clock does not change around a day.
func steady(day time.Time, place *time.Location) bool {
	return offset(day.Add(-around), place) == offset(day.Add(2*around), place)
}

// moments returns the moments at which the clock of a time zone shows a time, which is passed
// as if it were UTC: none, one or two. If there is none, gap is the end of the gap.
func moments(wall time.Time, place *time.Location) (at []time.Time, gap time.Time) {
	before, after := offset(wall.Add(-around), place), offset(wall.Add(around), place)
	for _, off := range []int{before, after} {
		x := wall.Add(-time.Duration(off) * time.Second)
		if offset(x, place) == off && !slices.ContainsFunc(at, x.Equal) {
			at = append(at, x)
		}
	}
	slices.SortFunc(at, time.Time.Compare)
	if len(at) > 0 {
		return at, time.Time{}
	}
	low, high := wall.Add(-around), wall.Add(around)
	for high.Sub(low) > time.Second {
		mid := low.Add(high.Sub(low) / 2).Truncate(time.Second)
		if offset(mid, place) == before {
			low = mid
		} else {
			high = mid
		}
	}
	return nil, high
}
