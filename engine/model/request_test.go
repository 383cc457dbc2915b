package model

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestMergeConfig(t *testing.T) {
	base := map[string]any{"a": 1.0, "m": map[string]any{"x": 1.0, "deep": map[string]any{"k": "v"}}, "l": []any{1.0}, "gone": 1.0}
	over := map[string]any{"m": map[string]any{"y": 2.0, "deep": map[string]any{"k": "w"}}, "l": []any{2.0}, "gone": nil,
		"a": map[string]any{"now": "object"}, "e": map[string]any{}}
	want := map[string]any{"a": map[string]any{"now": "object"}, "m": map[string]any{"x": 1.0, "y": 2.0, "deep": map[string]any{"k": "w"}},
		"l": []any{2.0}, "e": map[string]any{}}
	before, _ := json.Marshal(base)
	if got := MergeConfig(base, over); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v", got)
	}
	if after, _ := json.Marshal(base); string(after) != string(before) {
		t.Errorf("the base changed: %s", after)
	}
	if got := CombineConfig(base, map[string]any{}, ConfigReplace); len(got) != 0 {
		t.Errorf("replaced by nothing: %v", got)
	}
}

// docs/spec/coopr.md appendix A, "Lease parse", "Initial lease", "Prolong".
func TestLeases(t *testing.T) {
	for text, want := range map[string]Millis{"7d": 604800000, "3s": 3000, "5m": 300000, "10h": 36000000, "0": 0, "1500": 1500} {
		if got, err := ParseMillis(text); err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"-15s", "1v", "invalidNumbers", "", "s", "+5", "9223372036854775807d", "1.5h"} {
		if got, err := ParseMillis(text); err == nil {
			t.Errorf("%q: %d", text, got)
		}
	}
	ms := func(m Millis) *Millis { return &m }
	for _, c := range []struct {
		initial   Millis
		requested *Millis
		want      Millis
		fault     string
	}{
		{900_000, ms(2000), 2000, ""},
		{300_000, nil, 300_000, ""},
		{300_000, ms(-2), 0, "must not be negative"},
		{300_000, ms(360_000), 0, "6m is longer than the 5m that the template allows"},
		{0, ms(1<<63 - 1), 1<<63 - 1, ""},
		{0, ms(200), 200, ""}, {0, ms(0), 0, ""}, {0, nil, 0, ""},
		{10_000, ms(20_000), 0, "20s is longer than the 10s"},
		{10_000, ms(10_000), 10_000, ""}, {10_000, ms(500), 500, ""},
		{10_000, ms(0), 0, "must have an end: ask for at most 10s"},
		{10_000, nil, 10_000, ""},
	} {
		got, err := InitialLease(LeaseDuration{Initial: c.initial}, c.requested)
		if got != c.want || (err == nil) != (c.fault == "") || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%d, %v: %d, %v", c.initial, c.requested, got, err)
		}
	}
	for _, c := range []struct {
		status ClusterStatus
		rules  LeaseDuration
		was    int64
		end    int64
		now    int64
		fault  string
	}{
		{ClusterActive, LeaseDuration{Max: 12_000, Step: 1000}, 20_000, 22_000, 0, "by 2s at once: its template allows steps of 1s; at most 1s can"},
		{ClusterActive, LeaseDuration{Max: 12_000, Step: 1000}, 20_000, 9000, 0, "cannot end before 1970-01-01 00:00:10Z"},
		{ClusterActive, LeaseDuration{Max: 12_000, Step: 1000}, 22_000, 23_000, 0, "allows 12s from the creation, until 1970-01-01 00:00:22Z: it cannot"},
		{ClusterActive, LeaseDuration{Max: 12_000, Step: 1000}, 20_000, 19_000, 0, ""},
		{ClusterActive, LeaseDuration{Max: 12_000, Step: 1000}, 19_000, 20_000, 0, ""},
		{ClusterActive, LeaseDuration{Max: 12_000, Step: 1000}, 20_000, 20_000, 0, ""},
		{ClusterActive, LeaseDuration{Max: 12_000, Step: 1000}, 20_000, 21_000, 0, ""},
		{ClusterActive, LeaseDuration{Max: 12_000, Step: 1000}, 21_000, 22_000, 0, ""},
		{ClusterIncomplete, LeaseDuration{Max: 12_000, Step: 1000}, 20_000, 21_000, 0, ""},
		{ClusterPending, LeaseDuration{Max: 12_000, Step: 1000}, 20_000, 21_000, 0, "is pending: wait until operation o has ended"},
		{ClusterTerminated, LeaseDuration{Max: 12_000, Step: 1000}, 20_000, 21_000, 0, "is terminated"},
		{ClusterActive, LeaseDuration{Max: 12_000}, 20_000, 22_000, 0, ""},
		{ClusterActive, LeaseDuration{Max: 1<<63 - 1}, 20_000, 10_000 + int64(longestLease), 0, ""},
		{ClusterActive, LeaseDuration{Max: 1<<63 - 1}, 20_000, 10_001 + int64(longestLease), 0, "would last longer than 1000000d"},
		{ClusterActive, LeaseDuration{Step: 1000}, 20_000, 10_000 + int64(longestLease), 0, ""},
		{ClusterActive, LeaseDuration{}, 20_000, 1<<63 - 1, 0, "would last longer than 1000000d"},
		{ClusterActive, LeaseDuration{Max: 12_000, Step: 1000}, 0, 20_000, 0, ""},
		{ClusterActive, LeaseDuration{Max: 12_000, Step: 1000}, 0, 23_000, 0, "ask for an end until then"},
		{ClusterActive, LeaseDuration{}, 20_000, 0, 0, "cannot end before"},
		{ClusterActive, LeaseDuration{}, 20_000, 22_000, 22_000, "ended at 1970-01-01 00:00:20Z: with 2s more it would be over still; add more than 2s"},
		{ClusterActive, LeaseDuration{}, 20_000, 22_000, 21_999, ""},
		{ClusterActive, LeaseDuration{}, 20_000, 11_000, 15_000, ""},
	} {
		cl := &Cluster{Name: "n", Status: c.status, Operation: "o", CreatedAt: 10_000, ExpiresAt: c.was}
		cl.Template.Administration.LeaseDuration = c.rules
		if err := cl.CheckLease(c.end, c.now); (err == nil) != (c.fault == "") || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	for _, c := range []struct{ created, expires, want int64 }{{5, 0, 0}, {0, 8000, 6000}, {0, 40 * 86_400_000, 39 * 86_400_000}, {9000, 8000, 8000}} {
		if got := (&Cluster{CreatedAt: c.created, ExpiresAt: c.expires}).WarnAt(); got != c.want {
			t.Errorf("%+v: warned at %d", c, got)
		}
	}
	if ExpiryOf(5, 0) != 0 || ExpiryOf(5, 10) != 15 {
		t.Error("ExpiryOf")
	}
}
