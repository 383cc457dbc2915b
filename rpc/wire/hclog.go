package wire

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// HCLog bridges HashiCorp libraries' logger to slog. Their info is our debug: what they find worth telling at each
// election is noise to an operator, who has our own messages.
func HCLog(logger *slog.Logger, name string) hclog.Logger {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	// The logger itself is silent; the sink gets every message as it was called, unformatted.
	root := hclog.NewInterceptLogger(&hclog.LoggerOptions{Name: name, Level: hclog.Off, Output: io.Discard})
	root.RegisterSink(slogSink{logger})
	return root
}

type slogSink struct{ log *slog.Logger }

func (s slogSink) Accept(name string, level hclog.Level, msg string, args ...any) {
	to := slog.LevelDebug - 4
	switch level {
	case hclog.Error:
		to = slog.LevelError
	case hclog.Warn:
		to = slog.LevelWarn
	case hclog.Info:
		to = slog.LevelDebug
	}
	ctx := context.Background()
	if !s.log.Enabled(ctx, to) {
		return
	}
	attrs := make([]any, 0, len(args)+2)
	attrs = append(attrs, slog.String("library", name))
	for i := 0; i+1 < len(args); i += 2 {
		key, ok := args[i].(string)
		if !ok {
			key = fmt.Sprint(args[i])
		}
		value := args[i+1]
		if f, ok := value.(hclog.Format); ok && len(f) > 0 {
			if format, ok := f[0].(string); ok {
				value = fmt.Sprintf(format, f[1:]...)
			}
		}
		attrs = append(attrs, slog.Any(key, value))
	}
	s.log.Log(ctx, to, msg, attrs...)
}
