// Package logtap lets others read a program's log: its latest lines, and new ones as they are written.
package logtap

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
)

const (
	// kept is how many bytes of the log are kept.
	kept = 1 << 20
	// waiting is the number of lines that wait for a follower that is slow. Further ones are counted only.
	waiting = 1000
)

// nobody is the level while there is no follower.
const nobody = math.MaxInt64

// Tap reads a log.
type Tap struct {
	level atomic.Int64 // the lowest level that a follower wants

	mu        sync.Mutex
	tail      []byte
	followers map[*Follower]bool
	now       slog.Level // of the line that is being written
}

// New returns a tap that nothing flows through yet.
func New() *Tap {
	t := &Tap{followers: map[*Follower]bool{}}
	t.level.Store(nobody)
	return t
}

// Printed returns a writer that keeps the latest lines, which Tail returns, and passes them on to out.
func (t *Tap) Printed(out io.Writer) io.Writer { return printed{t, out} }

type printed struct {
	t   *Tap
	out io.Writer
}

func (p printed) Write(line []byte) (int, error) {
	p.t.mu.Lock()
	if len(p.t.tail)+len(line) > 2*kept {
		p.t.tail = append(p.t.tail[:0], last(p.t.tail, kept)...)
	}
	p.t.tail = append(p.t.tail, line...)
	p.t.mu.Unlock()
	return p.out.Write(line)
}

// last returns the whole lines at the end of a text, n bytes of them at most.
func last(text []byte, n int) []byte {
	if len(text) <= n {
		return text
	}
	text = text[len(text)-n:]
	return text[bytes.IndexByte(text, '\n')+1:]
}

// Tail returns the latest lines that were printed, n bytes of them at most.
func (t *Tap) Tail(n int) []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return bytes.Clone(last(t.tail, min(n, kept)))
}

// Handler returns a handler that passes records on to next, and to followers those that they want, whatever the level of next is.
func (t *Tap) Handler(next slog.Handler) slog.Handler {
	return handler{t, next, slog.NewTextHandler(lines{t}, &slog.HandlerOptions{Level: slog.Level(math.MinInt)})}
}

// Of returns the tap that a logger's records flow through, or nil.
func Of(l *slog.Logger) *Tap {
	if h, ok := l.Handler().(handler); ok {
		return h.t
	}
	return nil
}

type handler struct {
	t    *Tap
	next slog.Handler
	text slog.Handler // writes to lines
}

func (h handler) Enabled(ctx context.Context, level slog.Level) bool {
	return int64(level) >= h.t.level.Load() || h.next.Enabled(ctx, level)
}

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.t, h.next.WithAttrs(attrs), h.text.WithAttrs(attrs)}
}

func (h handler) WithGroup(name string) slog.Handler {
	return handler{h.t, h.next.WithGroup(name), h.text.WithGroup(name)}
}

func (h handler) Handle(ctx context.Context, r slog.Record) error {
	if int64(r.Level) >= h.t.level.Load() {
		h.t.mu.Lock()
		h.t.now = r.Level
		_ = h.text.Handle(ctx, r) // lines takes everything
		h.t.mu.Unlock()
	}
	if !h.next.Enabled(ctx, r.Level) {
		return nil
	}
	return h.next.Handle(ctx, r)
}

// lines sends lines to followers. The tap is locked.
type lines struct{ t *Tap }

func (l lines) Write(line []byte) (int, error) {
	var own []byte
	for f := range l.t.followers {
		if l.t.now < f.level {
			continue
		}
		if own == nil {
			own = bytes.Clone(line) // the handler uses its buffer again
		}
		select {
		case f.lines <- own:
		default:
			f.dropped++
		}
	}
	return len(line), nil
}

// Follower gets the lines of a log from a level on.
type Follower struct {
	t       *Tap
	level   slog.Level
	lines   chan []byte
	dropped int // under the lock of t
}

// Follow returns a follower of the lines from now on. The caller closes it.
func (t *Tap) Follow(level slog.Level) *Follower {
	f := &Follower{t: t, level: level, lines: make(chan []byte, waiting)}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.followers[f] = true
	t.adjust()
	return f
}

// adjust computes the lowest level that a follower wants. The tap is locked.
func (t *Tap) adjust() {
	lowest := int64(nobody)
	for f := range t.followers {
		lowest = min(lowest, int64(f.level))
	}
	t.level.Store(lowest)
}

// Close ends the follower.
func (f *Follower) Close() {
	f.t.mu.Lock()
	defer f.t.mu.Unlock()
	delete(f.t.followers, f)
	f.t.adjust()
}

// Next waits for lines and returns them. If some did not fit, the last line has their number. It returns an error when ctx ends.
func (f *Follower) Next(ctx context.Context) ([]byte, error) {
	var out []byte
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case line := <-f.lines:
		out = append(out, line...)
	}
	for len(out) < 32<<10 {
		select {
		case line := <-f.lines:
			out = append(out, line...)
			continue
		default:
		}
		break
	}
	f.t.mu.Lock()
	defer f.t.mu.Unlock()
	if f.dropped > 0 {
		out = fmt.Appendf(out, "level=WARN msg=\"the reader of this log is too slow: lines were left out\" lines=%d\n", f.dropped)
		f.dropped = 0
	}
	return out, nil
}
