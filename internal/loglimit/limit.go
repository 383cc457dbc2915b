// Package loglimit keeps a log readable while something fails all the time: it limits the lines of a
// slog.Handler to a number in every second, and sums up those that are alike.
package loglimit

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// Lines is the largest number of lines in any second.
	Lines = 10
	// kinds is the largest number of kinds of lines that wait.
	kinds = 100
)

// Limiter limits the lines of a handler and of all handlers that are derived from it. If there are too
// many lines, they wait, and those of the same level whose messages differ in numbers only are summed up
// in the latest of them. Lines that wait are printed once a second, until no line came for a second. At
// level debug nothing is limited.
type Limiter struct {
	mu      sync.Mutex
	printed [Lines]time.Time // when the latest lines were printed, a ring
	next    int              // the oldest of them
	waiting []*line
	byKind  map[string]*line
	left    int         // the lines of further kinds
	timer   *time.Timer // set while lines wait
	closed  bool
}

// line is a line that waits. It stands for more lines of its kind.
type line struct {
	kind   string
	out    slog.Handler
	record slog.Record
	more   int
}

// New returns a handler that prints to out, and its limiter.
func New(out slog.Handler) (slog.Handler, *Limiter) {
	l := &Limiter{byKind: map[string]*line{}}
	return handler{l, out}, l
}

// Close prints the lines that wait. Later lines are not limited.
func (l *Limiter) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	for len(l.waiting) > 0 {
		l.printNext()
	}
}

type handler struct {
	l   *Limiter
	out slog.Handler
}

func (h handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.out.Enabled(ctx, level)
}
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.l, h.out.WithAttrs(attrs)}
}
func (h handler) WithGroup(name string) slog.Handler { return handler{h.l, h.out.WithGroup(name)} }

func (h handler) Handle(ctx context.Context, r slog.Record) error {
	l := h.l
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	switch {
	case l.closed || h.out.Enabled(ctx, slog.LevelDebug):
		return h.out.Handle(ctx, r)
	case l.timer == nil && now.Sub(l.printed[l.next]) >= time.Second:
		l.note(now)
		return h.out.Handle(ctx, r)
	}
	l.wait(h.out, r)
	if l.timer == nil {
		l.timer = time.AfterFunc(time.Second, l.flush)
	}
	return nil
}

func (l *Limiter) note(now time.Time) {
	l.printed[l.next] = now
	l.next = (l.next + 1) % Lines
}

// wait adds a line to those that wait.
func (l *Limiter) wait(out slog.Handler, r slog.Record) {
	kind := kindOf(r)
	have := l.byKind[kind]
	switch {
	case have != nil:
		have.out, have.record, have.more = out, r.Clone(), have.more+1
	case len(l.waiting) == kinds:
		l.left++
	default:
		have = &line{kind: kind, out: out, record: r.Clone()}
		l.byKind[kind], l.waiting = have, append(l.waiting, have)
	}
}

// flush prints lines that wait. It is called a second after the latest line was printed, at the earliest.
func (l *Limiter) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.timer = nil
	if len(l.waiting) == 0 {
		return
	}
	now := time.Now()
	for range min(Lines, len(l.waiting)) {
		l.printNext()
		l.note(now)
	}
	l.timer = time.AfterFunc(time.Second, l.flush)
}

// printNext prints the line that waited longest. The last one has the number of lines that were left out.
func (l *Limiter) printNext() {
	x := l.waiting[0]
	l.waiting = l.waiting[1:]
	delete(l.byKind, x.kind)
	if x.more > 0 {
		x.record.AddAttrs(slog.Int("repeated", x.more))
	}
	if len(l.waiting) == 0 && l.left > 0 {
		x.record.AddAttrs(slog.Int("others_left_out", l.left))
		l.left = 0
	}
	_ = x.out.Handle(context.Background(), x.record) // nobody is left to hear of it
}

// kindOf returns the level and the message of a line without the numbers in it.
func kindOf(r slog.Record) string {
	b := append(make([]byte, 0, len(r.Message)+8), r.Level.String()...)
	number := false
	for _, c := range []byte(r.Message) {
		if digit := c >= '0' && c <= '9'; !digit {
			b, number = append(b, c), false
		} else if !number {
			b, number = append(b, '#'), true
		}
	}
	return string(b)
}
