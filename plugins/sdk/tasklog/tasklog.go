// Package tasklog splits the output of a task into lines of bounded length and remembers the last
// part.
package tasklog

import (
	"bytes"
	"io"
	"strings"
	"sync"

	"github.com/coopr/coopr/plugins/sdk/wire"
)

// Log is the log of one task. It is safe for concurrent use.
type Log struct {
	emit func(text string, stderr bool)

	mu      sync.Mutex
	partial [2][]byte // stdout, stderr
	tail    []byte    // at least the last MaxLogTail bytes
}

// New returns a log that calls emit for each line, one call at a time.
func New(emit func(text string, stderr bool)) *Log { return &Log{emit: emit} }

type writer struct {
	log    *Log
	stderr bool
}

// Writer returns a writer for the output of a program.
func (l *Log) Writer(stderr bool) io.Writer { return writer{l, stderr} }

// Write emits the complete lines of p. A line longer than wire.MaxLogLine is split.
func (w writer) Write(p []byte) (int, error) {
	n, l, i := len(p), w.log, 0
	if w.stderr {
		i = 1
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(p) > 0 {
		room := wire.MaxLogLine - len(l.partial[i])
		end := bytes.IndexByte(p[:min(len(p), room)], '\n')
		switch {
		case end >= 0:
			l.send(string(append(l.partial[i], p[:end]...)), w.stderr)
			l.partial[i], p = l.partial[i][:0], p[end+1:]
		case len(p) >= room:
			l.send(string(append(l.partial[i], p[:room]...)), w.stderr)
			l.partial[i], p = l.partial[i][:0], p[room:]
		default:
			l.partial[i], p = append(l.partial[i], p...), nil
		}
	}
	return n, nil
}

// Line adds one line.
func (l *Log) Line(text string, stderr bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(text) > wire.MaxLogLine {
		l.send(text[:wire.MaxLogLine], stderr)
		text = text[wire.MaxLogLine:]
	}
	l.send(text, stderr)
}

// send emits one line. It is called with mu held, so that lines keep their order.
func (l *Log) send(text string, stderr bool) {
	text = strings.ToValidUTF8(strings.TrimSuffix(text, "\r"), "\uFFFD")
	l.tail = append(append(l.tail, text...), '\n')
	if len(l.tail) > 4*wire.MaxLogTail {
		l.tail = append(l.tail[:0], l.tail[len(l.tail)-wire.MaxLogTail:]...)
	}
	l.emit(text, stderr)
}

// Close emits an incomplete last line and returns the end of the log, at most wire.MaxLogTail
// bytes.
func (l *Log) Close() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.partial {
		if len(l.partial[i]) > 0 {
			l.send(string(l.partial[i]), i == 1)
			l.partial[i] = nil
		}
	}
	tail := l.tail[max(0, len(l.tail)-wire.MaxLogTail):]
	return strings.ToValidUTF8(string(tail), "")
}
