package mesh

import (
	"bytes"
	"context"
	"log"
	"log/slog"
)

// logBridge makes slog records of the libraries' lines, which look like "[WARN] memberlist: ...". They call a probe
// that went unanswered an error; to an operator a death is told once, by us. So levels go down by one: what they call
// an error is a warning, their warnings and the rest are debug.
type logBridge struct{ log *slog.Logger }

func newLogBridge(logger *slog.Logger) *log.Logger { return log.New(logBridge{logger}, "", 0) }

func (b logBridge) Write(line []byte) (int, error) {
	level, text := slog.LevelDebug, bytes.TrimSpace(line)
	if rest, ok := bytes.CutPrefix(text, []byte("[")); ok {
		if name, message, ok := bytes.Cut(rest, []byte("] ")); ok {
			text = message
			switch string(name) {
			case "ERR", "ERROR":
				level = slog.LevelWarn
			case "DEBUG":
				level = slog.LevelDebug - 4
			}
		}
	}
	ctx := context.Background()
	if b.log.Enabled(ctx, level) {
		library := "serf"
		if name, message, ok := bytes.Cut(text, []byte(": ")); ok && (string(name) == "serf" || string(name) == "memberlist") {
			library, text = string(name), message
		}
		b.log.LogAttrs(ctx, level, string(text), slog.String("library", library))
	}
	return len(line), nil
}
