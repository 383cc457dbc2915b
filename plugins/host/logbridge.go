package host

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"sync"

	"github.com/hashicorp/go-hclog"
)

// bridge returns a logger for go-plugin that writes to ours. Standard error of plugins arrives here
// too, with its level where the line has one.
func bridge(to *slog.Logger) hclog.Logger {
	l := hclog.NewInterceptLogger(&hclog.LoggerOptions{Output: io.Discard, Level: hclog.Info})
	l.RegisterSink(sink{to})
	return l
}

type sink struct{ to *slog.Logger }

// Accept passes on one record. go-plugin reports every normal exit of a process as an error; that
// is logged as debug.
func (s sink) Accept(_ string, level hclog.Level, msg string, args ...any) {
	l := slog.LevelDebug
	switch {
	case level >= hclog.Error && msg != "plugin process exited":
		l = slog.LevelError
	case level == hclog.Warn:
		l = slog.LevelWarn
	case level == hclog.Info && msg != "plugin process exited":
		l = slog.LevelInfo
	}
	for i, a := range args {
		if f, ok := a.(hclog.Format); ok && len(f) > 0 {
			args[i] = f[0]
		}
	}
	s.to.Log(context.Background(), l, msg, args...)
}

// lineLogger logs what a plugin writes to its standard output, by lines.
type lineLogger struct {
	log *slog.Logger

	mu      sync.Mutex
	partial []byte
}

// maxLine bounds a line of a plugin's own output; the rest is dropped.
const maxLine = 4 << 10

func (w *lineLogger) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for n := len(p); ; {
		line, rest, whole := bytes.Cut(p, []byte{'\n'})
		if room := maxLine - len(w.partial); len(line) > room {
			line = line[:room]
		}
		w.partial = append(w.partial, line...)
		if !whole {
			return n, nil
		}
		w.log.Info(string(w.partial))
		w.partial, p = w.partial[:0], rest
	}
}
