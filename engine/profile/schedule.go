package profile

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/coopr/coopr/engine/model"
)

// The rules for a run that is due while earlier runs of its schedule have not ended.
const (
	Allow   = "allow"   // it begins concurrently
	Skip    = "skip"    // it does not begin
	Queue   = "queue"   // it begins when there is room; only the latest waits
	Replace = "replace" // the oldest is stopped, and it begins after that has ended
)

// The rules for runs that were due while no leader could start them.
const (
	CatchNone   = "none"
	CatchLatest = "latest"
	CatchAll    = "all"
)

// SuspendedSchedule is the status of a schedule whose user is gone or may not start its runs any more. It goes on once it is written again
// or enabled. The statuses besides are Enabled and Disabled.
const SuspendedSchedule = "SUSPENDED"

// Schedule starts runs of a program at given times.
type Schedule struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	Program     string `json:"program"`
	Cron        string `json:"cron"`
	// TimeZone is a name such as Europe/Berlin; default UTC.
	TimeZone string `json:"timezone,omitempty"`
	// Concurrency is Allow, Skip (the default), Queue or Replace. It applies from MaxRuns runs
	// of the schedule on (default 1). A run counts until its program has ended, including
	// provisioning.
	Concurrency string `json:"concurrency,omitempty"`
	MaxRuns     int    `json:"maxRuns,omitempty"`
	// CatchUp is CatchNone, CatchLatest (the default) or CatchAll. It applies to runs that were
	// due at most CatchUpWithin ago (default one day).
	CatchUp       string       `json:"catchup,omitempty"`
	CatchUpWithin model.Millis `json:"catchupWithin,omitempty"`
	// Properties choose the profile and override its properties. Arguments are passed to the
	// program.
	Properties map[string]string `json:"properties,omitempty"`
	Arguments  []string          `json:"arguments,omitempty"`

	// The state sets the following fields. Last is the last time that has been handled, and
	// Waits the time of a run that waits for room, both in Unix milliseconds.
	Tenant  string `json:"tenant,omitempty"`
	Status  string `json:"status,omitempty"`
	Actor   string `json:"actor,omitempty"`
	Last    int64  `json:"last,omitempty"`
	Waits   int64  `json:"waits,omitempty"`
	Skipped int64  `json:"skipped,omitempty"`
	LastRun string `json:"lastRun,omitempty"`
	Message string `json:"message,omitempty"`
	Version uint64 `json:"version,omitempty"`
}

// Complete sets the defaults of omitted fields.
func (s *Schedule) Complete() {
	s.TimeZone = cmp.Or(s.TimeZone, "UTC")
	s.Concurrency = cmp.Or(s.Concurrency, Skip)
	s.MaxRuns = max(s.MaxRuns, 1)
	s.CatchUp = cmp.Or(s.CatchUp, CatchLatest)
	s.CatchUpWithin = cmp.Or(s.CatchUpWithin, 24*60*60_000)
}

// place returns the time zone. The zone of the machine is not allowed, because agents may
// differ.
func (s *Schedule) place() (*time.Location, error) {
	if strings.EqualFold(s.TimeZone, "local") {
		return nil, fmt.Errorf("%q is not the same everywhere: give a name such as Europe/Berlin", s.TimeZone)
	}
	l, err := time.LoadLocation(s.TimeZone)
	if err != nil {
		return nil, fmt.Errorf("there is no time zone %q: give a name such as Europe/Berlin", s.TimeZone)
	}
	return l, nil
}

// Check returns the faults of a complete schedule.
func (s *Schedule) Check() model.Faults {
	var fs model.Faults
	if why := model.CheckName(s.Name); why != "" {
		fs.Add("name", why)
	}
	if s.Program == "" {
		fs.Add("program", "is missing")
	}
	if _, err := ParseCron(s.Cron); err != nil {
		fs.Add("cron", err.Error())
	}
	if _, err := s.place(); err != nil {
		fs.Add("timezone", err.Error())
	}
	switch s.Concurrency {
	case Allow, Skip, Queue, Replace:
	default:
		fs.Add("concurrency", fmt.Sprintf("must be allow, skip, queue or replace, but is %q", s.Concurrency))
	}
	switch s.CatchUp {
	case CatchNone, CatchLatest, CatchAll:
	default:
		fs.Add("catchup", fmt.Sprintf("must be none, latest or all, but is %q", s.CatchUp))
	}
	if s.CatchUpWithin < 0 {
		fs.Add("catchupWithin", "must not be negative")
	}
	return append(fs, CheckSettings(s.Properties, OfRun)...)
}

// late is how long after its time a run does not yet count as missed.
const late = int64(60_000)

// maxCaught is the highest number of runs that are caught up at a time.
const maxCaught = 100

// Due returns the times since the schedule's last one for which runs are to be started now,
// oldest first. It also returns how many due runs are skipped, and when the next one is due
// (Unix milliseconds; 0: never).
func (s *Schedule) Due(now int64) (start []int64, missed int, next int64) {
	c, err := ParseCron(s.Cron)
	place, perr := s.place()
	if err != nil || perr != nil {
		return nil, 0, 0 // it was checked before it was stored
	}
	if s.Waits > 0 {
		start = append(start, s.Waits)
	}
	// Times that are too long ago are skipped at once, because there may be many.
	from := max(s.Last, now-int64(s.CatchUpWithin)-late)
	var old []int64
	for t := c.Next(time.UnixMilli(from), place); ; t = c.Next(t, place) {
		switch at := t.UnixMilli(); {
		case t.IsZero():
		case at > now:
			next = at
		case now-at > late:
			old = append(old, at)
			continue
		default:
			start = append(start, at)
			continue
		}
		break
	}
	keep := 0
	switch s.CatchUp {
	case CatchLatest:
		keep = min(len(old), 1)
		if len(start) > 0 {
			keep = 0 // there is a later one
		}
	case CatchAll:
		keep = min(len(old), maxCaught)
	}
	missed = len(old) - keep
	return append(old[missed:len(old):len(old)], start...), missed, next
}
