package host

import (
	"bytes"
	"log/slog"
	"strings"
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
	log  *slog.Logger
	hide func(text string) string // of secrets

	mu      sync.Mutex
	partial []byte
}

// maxLine bounds a line of a plugin's own output; the rest is dropped. Secrets are hidden in the first maxRead bytes before that, as
// a line must not end within one.
const (
	maxLine = 4 << 10
	maxRead = 64 << 10
)

func (w *lineLogger) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for n := len(p); ; {
		line, rest, whole := bytes.Cut(p, []byte{'\n'})
		if room := maxRead - len(w.partial); len(line) > room {
			line = line[:room]
		}
		w.partial = append(w.partial, line...)
		if !whole {
			return n, nil
		}
		text := w.hide(string(w.partial))
		w.log.Info(strings.ToValidUTF8(text[:min(len(text), maxLine)], ""))
		w.partial, p = w.partial[:0], rest
	}
}
