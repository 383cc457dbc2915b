package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/proto"
)

func TestTypes(t *testing.T) {
	h := newHost(t, nil)
	if err := h.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	types := h.Types()
	if len(types) != 2 || types[0].Kind != model.KindProviderType || types[1].Kind != model.KindAutomatorType {
		t.Fatalf("types: %+v", types)
	}
	for _, x := range types {
		if x.Name != "chaos" || x.Plugin != "1.0.0" || len(x.Checksum) != 64 {
			t.Errorf("type: %+v", x)
		}
	}
	if got := types[0].Repeat("CREATE") + " " + types[0].Repeat("DELETE") + " " +
		types[1].Repeat("START"); got != "observe idempotent observe" {
		t.Errorf("rules: %s", got)
	}
	if n := h.Processes(); n != 0 {
		t.Errorf("%d processes run before there is work", n)
	}
}

// TestOutcomes checks the outcome of every way in which a task can end.
func TestOutcomes(t *testing.T) {
	h := newHost(t, nil)
	for _, c := range []struct {
		fields  map[string]any
		want    proto.Outcome
		message string
	}{
		{nil, proto.Outcome_OUTCOME_SUCCEEDED, ""},
		{map[string]any{"do": "nothing"}, proto.Outcome_OUTCOME_SUCCEEDED, ""},
		{map[string]any{"do": "fail", "text": "no space"}, proto.Outcome_OUTCOME_RETRYABLE, "no space"},
		{map[string]any{"do": "fatal", "text": "bad key"}, proto.Outcome_OUTCOME_FATAL, "bad key"},
		{map[string]any{"do": "nothing-done", "text": "no quota"}, proto.Outcome_OUTCOME_NOTHING_DONE, "no quota"},
		{map[string]any{"do": "unknown", "text": "lost"}, proto.Outcome_OUTCOME_UNKNOWN, "lost"},
		{map[string]any{"do": "panic", "text": "oh"}, proto.Outcome_OUTCOME_UNKNOWN, "panicked: oh"},
		{map[string]any{"do": "exit"}, proto.Outcome_OUTCOME_UNKNOWN, "exit status 9"},
		{map[string]any{"do": "crash"}, proto.Outcome_OUTCOME_UNKNOWN, "killed"},
		{map[string]any{"do": "print", "text": "garbage on stdout"}, proto.Outcome_OUTCOME_SUCCEEDED, ""},
	} {
		r := h.Execute(t.Context(), task(fmt.Sprint(c.fields), c.fields), nil)
		if r.Outcome != c.want || !strings.Contains(r.Message, c.message) || r.Task != fmt.Sprint(c.fields) || r.Fence != 7 {
			t.Errorf("%v: got %v", c.fields, r)
		}
	}
}

func TestLogsSavesOutput(t *testing.T) {
	h := newHost(t, nil)
	var rec recorder
	if r := h.Execute(t.Context(), task("log", map[string]any{"do": "log", "text": "line", "count": 50_000}),
		&rec); r.Outcome != proto.Outcome_OUTCOME_SUCCEEDED {
		t.Fatal(r)
	}
	if len(rec.lines) != 50_000 {
		t.Fatalf("%d lines", len(rec.lines))
	}
	for i, l := range rec.lines {
		if l != fmt.Sprintf("line %d", i) {
			t.Fatalf("line %d: %q", i, l)
		}
	}
	h.Execute(t.Context(), task("save", map[string]any{"do": "save", "text": "v"}), &rec)
	if rec.saves["text"] != `"v"` {
		t.Errorf("saves: %v", rec.saves)
	}
	r := h.Execute(t.Context(), task("output", map[string]any{"do": "output", "text": "v"}), &rec)
	if string(r.Output) != `{"hostname":"h.chaos","ipaddresses":{"access_v4":"127.0.0.9"},"result":{"text":"v"}}` {
		t.Errorf("output: %s", r.Output)
	}
	r = h.Execute(t.Context(), task("tail", map[string]any{"do": "fail", "text": "why"}), &rec)
	if r.LogTail != "about to fail: why\n" {
		t.Errorf("tail: %q", r.LogTail)
	}
}

// TestCrashEndsAllInFlight checks that the death of a process ends all of its tasks, without
// blaming any, and that the next task gets a new process.
func TestCrashEndsAllInFlight(t *testing.T) {
	h := newHost(t, nil)
	var wg sync.WaitGroup
	results := make(chan *proto.Result, 50)
	for i := range 50 {
		wg.Go(func() {
			results <- h.Execute(t.Context(), task(fmt.Sprint(i), map[string]any{"do": "sleep", "for": "1h"}), nil)
		})
	}
	wg.Go(func() {
		h.Execute(t.Context(), task("killer", map[string]any{"do": "crash", "for": "200ms"}), nil)
	})
	wg.Wait()
	close(results)
	for r := range results {
		if r.Outcome != proto.Outcome_OUTCOME_CANCELLED && r.Outcome != proto.Outcome_OUTCOME_NOTHING_DONE {
			t.Errorf("got %v", r)
		}
	}
	if r := h.Execute(t.Context(), task("after", nil), nil); r.Outcome != proto.Outcome_OUTCOME_SUCCEEDED {
		t.Errorf("after: %v", r)
	}
	if n := h.Stats().Crashes; n != 1 {
		t.Errorf("%d crashes before another process", n)
	}
	if n := h.Stats().Running; n != 1 {
		t.Errorf("%d programs run", n)
	}
}

// TestUsefulCrasher checks that a plugin that completes tasks between its crashes is not blocked
// like one that never works.
func TestUsefulCrasher(t *testing.T) {
	h := newHost(t, func(c *Config) { c.Backoff, c.BreakAfter = time.Millisecond, 3 })
	for i := range 10 {
		if r := h.Execute(t.Context(), task(fmt.Sprint("well", i), nil), nil); r.Outcome != proto.Outcome_OUTCOME_SUCCEEDED {
			t.Fatalf("after %d crashes: %v", i, r)
		}
		if r := h.Execute(t.Context(), task(fmt.Sprint("crash", i), map[string]any{"do": "crash"}),
			nil); r.Outcome != proto.Outcome_OUTCOME_UNKNOWN {
			t.Fatalf("crash %d: %v", i, r)
		}
	}
}

// TestLeaseIsOver checks that a task whose lease has ended is not begun, and never reaches the
// plugin.
func TestLeaseIsOver(t *testing.T) {
	dir := t.TempDir()
	h := newHost(t, func(c *Config) { chaosIn(c, dir) })
	held := WithLease(t.Context(), func() time.Time { return time.Now().Add(time.Minute) })
	if r := h.Execute(held, task("held", nil), nil); r.Outcome != proto.Outcome_OUTCOME_SUCCEEDED {
		t.Errorf("a lease that holds: %v", r)
	}
	over := WithLease(t.Context(), time.Now)
	if r := h.Execute(over, task("over", nil), nil); r.Outcome != proto.Outcome_OUTCOME_NOTHING_DONE ||
		!strings.Contains(r.Message, "not begun") {
		t.Errorf("a lease that is over: %v", r)
	}
	b, err := os.ReadFile(filepath.Join(dir, "calls.log"))
	if err != nil || !strings.Contains(string(b), "held") || strings.Contains(string(b), "over") {
		t.Errorf("the plugin was called: %v %s", err, b)
	}
}

func TestCancelAndTimeout(t *testing.T) {
	h := newHost(t, nil)
	cause := errors.New("the operator says so")
	run := func(fields map[string]any, timeoutMs int64, cancel bool) *proto.Result {
		ctx, stop := context.WithCancelCause(t.Context())
		defer stop(nil)
		x := task(fmt.Sprint(fields, timeoutMs), fields)
		x.TimeoutMs = timeoutMs
		if cancel {
			go func() {
				eventually(t, "a process", func() bool { return h.Processes() > 0 })
				stop(cause)
			}()
		}
		return h.Execute(ctx, x, nil)
	}
	sleep := map[string]any{"do": "sleep", "for": "1h"}
	h.Execute(t.Context(), task("warm", nil), nil)
	if r := run(sleep, 0, true); r.Outcome != proto.Outcome_OUTCOME_CANCELLED && r.Outcome != proto.Outcome_OUTCOME_NOTHING_DONE ||
		!strings.Contains(r.Message, cause.Error()) {
		t.Errorf("cancelled: %v", r)
	}
	if r := run(sleep, 50, false); r.Outcome != proto.Outcome_OUTCOME_RETRYABLE || !strings.Contains(r.Message, "timed out after 50ms") {
		t.Errorf("timed out: %v", r)
	}
	if r := run(map[string]any{"do": "hang"}, 50, false); r.Outcome != proto.Outcome_OUTCOME_UNKNOWN ||
		!strings.Contains(r.Message, "did not stop") {
		t.Errorf("hanging: %v", r)
	}
	if r := run(map[string]any{"do": "freeze"}, 50, false); r.Outcome != proto.Outcome_OUTCOME_UNKNOWN {
		t.Errorf("frozen: %v", r)
	}
}
