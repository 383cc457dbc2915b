package audit

import (
	"testing"
	"time"

	"github.com/coopr/coopr/engine/audit"
)

func TestPointInTime(t *testing.T) {
	now := time.Date(2026, 3, 9, 12, 0, 0, 0, time.UTC)
	for in, want := range map[string]string{
		"2h": "2026-03-09T10:00:00Z", "90m": "2026-03-09T10:30:00Z", "3d": "2026-03-06T12:00:00Z", "0.5d": "2026-03-09T00:00:00Z",
		"2026-03-01": "2026-03-01T00:00:00Z", "2026-03-01 10:11": "2026-03-01T10:11:00Z", "2026-03-01T10:11:12": "2026-03-01T10:11:12Z",
		"2026-03-01T10:11:12+02:00": "2026-03-01T08:11:12Z", "2026-03-01 10:11:12Z": "2026-03-01T10:11:12Z",
		"-2h": "", "yesterday": "", "": "", "d": "",
	} {
		got, err := pointInTime(in, now)
		if (err != nil) != (want == "") || err == nil && got.UTC().Format(time.RFC3339) != want {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
}

func TestAuditChange(t *testing.T) {
	for _, tt := range []struct{ task, before, after, message, want string }{
		{"", ``, `{"name":"x","maxNodes":5}`, "", "maxNodes 5, name x"},
		{"", `{"status":"running"}`, `{"status":"paused","message":"lunch"}`, "lunch", "running → paused, message:  → lunch"},
		{"", `{"config":{"a":1}}`, `{"config":{"a":2}}`, "m", `config: {"a":1} → {"a":2}; m`},
		{"o/1", `{"status":"leased"}`, `{"status":"ready","agent":"a","attempt":2,"fence":9,"outcome":"lost"}`, "gone",
			"leased → ready, agent a, attempt 2, outcome lost; gone"},
	} {
		r := audit.Record{Task: tt.task, After: []byte(tt.after), Message: tt.message}
		if tt.before != "" {
			r.Before = []byte(tt.before)
		}
		if got := change(&r); got != tt.want {
			t.Errorf("%q, not %q", got, tt.want)
		}
	}
}
