package host

import (
	"bytes"
	"log/slog"
	"sync"
)

// exitsAreNormal lowers the level at which go-plugin reports the end of a process: it
// reports every normal exit as an error.
func exitsAreNormal(l slog.Level, msg string) slog.Level {
	if msg == "plugin process exited" {
		return slog.LevelDebug
	}
	return l
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
