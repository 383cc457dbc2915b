package logtap_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/coopr/coopr/internal/logtap"
)

func TestFollowersGetTheLevelsThatTheyWant(t *testing.T) {
	t.Parallel()
	var printed bytes.Buffer
	tap := logtap.New()
	log := slog.New(tap.Handler(slog.NewTextHandler(tap.Printed(&printed), &slog.HandlerOptions{Level: slog.LevelInfo}))).With("agent", "a")
	if logtap.Of(log) != tap || logtap.Of(slog.New(slog.DiscardHandler)) != nil {
		t.Error("a logger does not know its tap")
	}
	if log.Enabled(t.Context(), slog.LevelDebug) {
		t.Error("debug is on, and nobody follows")
	}
	debug, warn := tap.Follow(slog.LevelDebug), tap.Follow(slog.LevelWarn)
	log.Debug("one")
	log.WithGroup("g").Info("two", "x", 1)
	log.Warn("three")
	read := func(f *logtap.Follower) string {
		t.Helper()
		text, err := f.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if got := read(debug); strings.Count(got, "\n") != 3 || !strings.Contains(got, "msg=two agent=a g.x=1") || !strings.Contains(got, "msg=one agent=a") {
		t.Errorf("the follower of debug got %q", got)
	}
	if got := read(warn); strings.Count(got, "\n") != 1 || !strings.Contains(got, "msg=three") {
		t.Errorf("the follower of warn got %q", got)
	}
	if got := string(tap.Tail(1 << 20)); got != printed.String() || strings.Contains(got, "one") || !strings.Contains(got, "two") {
		t.Errorf("the tail is %q, and printed was %q", got, printed.String())
	}
	debug.Close()
	if log.Enabled(t.Context(), slog.LevelDebug) {
		t.Error("debug stays on")
	}
	ended, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	if _, err := warn.Next(ended); !errors.Is(err, why) {
		t.Error(err)
	}
	warn.Close()
}

func TestSlowFollowersLearnWhatTheyMissed(t *testing.T) {
	t.Parallel()
	tap := logtap.New()
	log := slog.New(tap.Handler(slog.DiscardHandler))
	f := tap.Follow(slog.LevelInfo)
	defer f.Close()
	for i := range 1003 {
		log.Info(fmt.Sprint("line ", i))
	}
	var all strings.Builder
	for !strings.Contains(all.String(), "line 999") {
		text, err := f.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	if got := all.String(); !strings.Contains(got, "left out\" lines=3") || strings.Contains(got, "line 1000") {
		t.Errorf("%.200s", got[max(0, len(got)-200):])
	}
}

// The tail is bounded, and begins with a whole line.
func TestTailIsBounded(t *testing.T) {
	t.Parallel()
	tap := logtap.New()
	out := tap.Printed(io.Discard)
	for i := range 100_000 {
		fmt.Fprintf(out, "%06d a line of some length, which is printed again and again\n", i)
	}
	tail := tap.Tail(1 << 30)
	if len(tail) > 1<<20 || len(tail) < 1<<19 || !bytes.HasSuffix(tail, []byte("again\n")) || !bytes.Contains(tail, []byte("099999 ")) {
		t.Errorf("%d bytes: %.30q … %.30q", len(tail), tail, tail[len(tail)-30:])
	}
	if short := tap.Tail(100); len(short) > 100 || !bytes.HasPrefix(short, []byte("099999 ")) {
		t.Errorf("%q", short)
	}
}
