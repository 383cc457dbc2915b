package loglimit

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// page is a handler that keeps what is printed.
type page struct {
	*printed
	level slog.Level
	with  string
}

type printed struct {
	mu    sync.Mutex
	at    []time.Time
	lines []string
	stood int // how many lines stand there, with those that were summed up
}

func (p page) Enabled(_ context.Context, l slog.Level) bool { return l >= p.level }
func (p page) WithGroup(string) slog.Handler                { return p }

func (p page) WithAttrs(attrs []slog.Attr) slog.Handler {
	p.with += fmt.Sprint(attrs)
	return p
}

func (p page) Handle(_ context.Context, r slog.Record) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at, p.stood = append(p.at, time.Now()), p.stood+1
	text := p.with + r.Message
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "repeated", "others_left_out":
			p.stood += int(a.Value.Int64())
		}
		text += " " + a.String()
		return true
	})
	p.lines = append(p.lines, text)
	return nil
}

// check expects at most ten lines in any second, and that lines stand for this many.
func (p page) check(t *testing.T, stood int) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.at {
		if i >= Lines && p.at[i].Sub(p.at[i-Lines]) < time.Second {
			t.Fatalf("more than %d lines in the second up to line %d: %s", Lines, i, p.lines[i])
		}
	}
	if p.stood != stood {
		t.Errorf("the log stands for %d lines, not %d", p.stood, stood)
	}
}

func (p page) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.lines)
}

func (p page) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.lines, "\n")
}

// TestFlood: a disk that is full, peers that are absent and a queue that overflows write thousands of
// lines a second from many goroutines for a minute.
func TestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := page{printed: &printed{}, level: slog.LevelInfo}
		out, l := New(p)
		log := slog.New(out)
		var wg sync.WaitGroup
		for i, text := range []string{"the disk is full: write %d failed", "peer %d cannot be reached", "queue is full"} {
			mine := log.With("source", i)
			for range 4 {
				wg.Go(func() {
					for n := range 6000 {
						if strings.Contains(text, "%") {
							mine.Error(fmt.Sprintf(text, n))
						} else {
							mine.Warn(text, "n", n)
						}
						time.Sleep(10 * time.Millisecond)
					}
				})
			}
		}
		time.Sleep(30 * time.Second)
		log.Info("one line among them")
		time.Sleep(2 * time.Second)
		if !strings.Contains(p.text(), "one line among them") {
			t.Error("a single line drowned")
		}
		wg.Wait()
		time.Sleep(3 * time.Second)
		p.check(t, 3*4*6000+1)
		if n := p.count(); n > 10+62*4 {
			t.Errorf("%d lines for four kinds of lines in a minute", n)
		}
		// The log is as before.
		for i := range 5 {
			log.Info("calm", "i", i)
		}
		if got := p.text(); !strings.HasSuffix(got, "calm i=3\ncalm i=4") {
			t.Errorf("lines after the flood do not come at once:\n%s", got)
		}
		l.Close()
	})
}

// TestBurst: a burst of different lines is printed whole and in order, a few each second.
func TestBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := page{printed: &printed{}, level: slog.LevelInfo}
		out, l := New(p)
		log := slog.New(out)
		var want []string
		for i := range 35 {
			text := "line " + strings.Repeat("x", i)
			log.Info(text)
			want = append(want, text)
		}
		if n := p.count(); n != Lines {
			t.Errorf("%d lines at once", n)
		}
		time.Sleep(10 * time.Second)
		p.check(t, 35)
		if got := p.text(); got != strings.Join(want, "\n") {
			t.Errorf("printed:\n%s", got)
		}
		l.Close()
	})
}

// TestKinds: far more kinds of lines than may wait take no more memory, and are counted.
func TestKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := page{printed: &printed{}, level: slog.LevelInfo}
		out, l := New(p)
		log := slog.New(out)
		for i := range 5000 {
			log.Info(strings.Repeat("x", i))
		}
		wait := func(want int) {
			t.Helper()
			l.mu.Lock()
			defer l.mu.Unlock()
			if len(l.waiting) != want || len(l.byKind) != want || (l.timer != nil) != (want > 0) {
				t.Errorf("%d lines of %d kinds wait, not %d", len(l.waiting), len(l.byKind), want)
			}
		}
		wait(kinds)
		time.Sleep(time.Minute)
		p.check(t, 5000)
		wait(0)
		l.Close()
	})
}

// TestClose: an agent that ends prints what waits.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := page{printed: &printed{}, level: slog.LevelInfo}
		out, l := New(p)
		log := slog.New(out)
		for range 100 {
			log.Info("again")
		}
		log.Error("the last word")
		l.Close()
		log.Info("after the end")
		if got := p.text(); !strings.HasSuffix(got, "again repeated=89\nthe last word\nafter the end") {
			t.Errorf("printed:\n%s", got)
		}
		l.Close()
	})
}

// TestDebug: at level debug every line is printed.
func TestDebug(t *testing.T) {
	p := page{printed: &printed{}, level: slog.LevelDebug}
	out, l := New(p)
	defer l.Close()
	for range 100 {
		slog.New(out).Debug("x")
	}
	if n := p.count(); n != 100 {
		t.Errorf("%d lines", n)
	}
}

func TestAttributes(t *testing.T) {
	p := page{printed: &printed{}, level: slog.LevelInfo}
	out, l := New(p)
	log := slog.New(out)
	for i := range 12 {
		log.With("n", i).Info("x", "i", i)
	}
	l.Close()
	if got := p.text(); !strings.HasSuffix(got, "[n=9]x i=9\n[n=11]x i=11 repeated=1") {
		t.Errorf("printed:\n%s", got)
	}
}
