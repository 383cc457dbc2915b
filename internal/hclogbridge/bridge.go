// Package hclogbridge lets the HashiCorp libraries (raft, raft-wal, autopilot,
// go-plugin) write their logs to a slog.Logger.
package hclogbridge

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"strings"

	"github.com/hashicorp/go-hclog"
)

// levelTrace is below slog.LevelDebug: the libraries have a level that slog lacks.
const levelTrace = slog.LevelDebug - 4

// New returns a hclog.Logger that writes to l. A nil l discards everything.
func New(l *slog.Logger) hclog.Logger { return NewLeveled(l, nil) }

// NewLeveled returns a logger like that of New. The function adjust chooses the
// level at which a message is written: it is given the library's level and the
// message. It lets an operator's log leave out what only the library's authors
// find worth a warning.
func NewLeveled(l *slog.Logger, adjust func(slog.Level, string) slog.Level) hclog.Logger {
	if l == nil {
		l = slog.New(slog.DiscardHandler)
	}
	return &bridge{out: l, adjust: adjust}
}

type bridge struct {
	out     *slog.Logger
	name    string
	implied []any
	adjust  func(slog.Level, string) slog.Level // or nil
}

var _ hclog.Logger = (*bridge)(nil)

func level(l hclog.Level) slog.Level {
	switch l {
	case hclog.Trace:
		return levelTrace
	case hclog.Debug:
		return slog.LevelDebug
	case hclog.Warn:
		return slog.LevelWarn
	case hclog.Error:
		return slog.LevelError
	default:
		return slog.LevelInfo
	}
}

func (b *bridge) enabled(l slog.Level) bool { return b.out.Enabled(context.Background(), l) }

func (b *bridge) emit(l slog.Level, msg string, args []any) {
	if b.adjust != nil {
		l = b.adjust(l, msg)
	}
	if !b.enabled(l) {
		return
	}
	all := make([]any, 0, len(args)+2)
	if b.name != "" {
		all = append(all, "component", b.name)
	}
	all = append(all, plain(args)...)
	b.out.Log(context.Background(), l, msg, all...)
}

// plain converts hclog's own value types, which only its printer understands, to
// values that every slog handler prints well.
func plain(args []any) []any {
	out := make([]any, len(args))
	for i, a := range args {
		switch v := a.(type) {
		case hclog.Format:
			if len(v) > 0 {
				if format, ok := v[0].(string); ok {
					out[i] = fmt.Sprintf(format, v[1:]...)
					continue
				}
			}
			out[i] = fmt.Sprint(v...)
		case hclog.Hex, hclog.Octal, hclog.Binary, hclog.Quote:
			out[i] = fmt.Sprint(v)
		case error:
			out[i] = v.Error()
		default:
			out[i] = a
		}
	}
	return out
}

func (b *bridge) Log(l hclog.Level, msg string, args ...any) {
	if l == hclog.Off {
		return
	}
	b.emit(level(l), msg, args)
}
func (b *bridge) Trace(msg string, args ...any) { b.emit(levelTrace, msg, args) }
func (b *bridge) Debug(msg string, args ...any) { b.emit(slog.LevelDebug, msg, args) }
func (b *bridge) Info(msg string, args ...any)  { b.emit(slog.LevelInfo, msg, args) }
func (b *bridge) Warn(msg string, args ...any)  { b.emit(slog.LevelWarn, msg, args) }
func (b *bridge) Error(msg string, args ...any) { b.emit(slog.LevelError, msg, args) }

func (b *bridge) IsTrace() bool { return b.enabled(levelTrace) }
func (b *bridge) IsDebug() bool { return b.enabled(slog.LevelDebug) }
func (b *bridge) IsInfo() bool  { return b.enabled(slog.LevelInfo) }
func (b *bridge) IsWarn() bool  { return b.enabled(slog.LevelWarn) }
func (b *bridge) IsError() bool { return b.enabled(slog.LevelError) }

func (b *bridge) ImpliedArgs() []any { return b.implied }

func (b *bridge) With(args ...any) hclog.Logger {
	implied := append(append([]any(nil), b.implied...), args...)
	return &bridge{out: b.out.With(plain(args)...), name: b.name, implied: implied, adjust: b.adjust}
}

func (b *bridge) Name() string { return b.name }

func (b *bridge) Named(name string) hclog.Logger {
	if b.name != "" {
		name = b.name + "." + name
	}
	return &bridge{out: b.out, name: name, implied: b.implied, adjust: b.adjust}
}

func (b *bridge) ResetNamed(name string) hclog.Logger {
	return &bridge{out: b.out, name: name, implied: b.implied, adjust: b.adjust}
}

// SetLevel does nothing: the slog handler decides what is printed.
func (b *bridge) SetLevel(hclog.Level) {}

func (b *bridge) GetLevel() hclog.Level {
	switch {
	case b.IsTrace():
		return hclog.Trace
	case b.IsDebug():
		return hclog.Debug
	case b.IsInfo():
		return hclog.Info
	case b.IsWarn():
		return hclog.Warn
	default:
		return hclog.Error
	}
}

func (b *bridge) StandardLogger(opts *hclog.StandardLoggerOptions) *log.Logger {
	return log.New(b.StandardWriter(opts), "", 0)
}

// StandardWriter returns a writer for lines such as "[WARN] text". It logs each
// line at the level that the line names.
func (b *bridge) StandardWriter(*hclog.StandardLoggerOptions) io.Writer { return lineWriter{b} }

type lineWriter struct{ to *bridge }

func (w lineWriter) Write(p []byte) (int, error) {
	text := strings.TrimRight(string(p), " \t\r\n")
	at := slog.LevelInfo
	if strings.HasPrefix(text, "[") {
		if name, rest, ok := strings.Cut(text[1:], "]"); ok {
			if l := hclog.LevelFromString(name); l != hclog.NoLevel {
				if l == hclog.Off {
					return len(p), nil
				}
				at, text = level(l), strings.TrimLeft(rest, ": ")
			}
		}
	}
	w.to.emit(at, text, nil)
	return len(p), nil
}
