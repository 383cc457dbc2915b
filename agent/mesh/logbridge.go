package mesh

import (
	"bytes"
	"context"
	"log"
	"log/slog"
)

// logBridge converts the lines of serf and memberlist, such as "[WARN] memberlist: ...", to slog records. The libraries
// report every unanswered probe as an error, while this package reports each failure of an agent once. So their errors
// become warnings, and everything else becomes debug messages.
type logBridge struct{ log *slog.Logger }

func newLogBridge(logger *slog.Logger) *log.Logger { return log.New(logBridge{logger}, "", 0) }

// Write implements io.Writer.
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
