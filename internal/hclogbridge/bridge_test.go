package hclogbridge

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
)

func TestBridge(t *testing.T) {
	var buf bytes.Buffer
	out := slog.New(slog.NewTextHandler(&buf, &slog.HandlerOptions{Level: slog.LevelDebug}))
	l := New(out).Named("raft").With("peer", "a")

	cases := []struct {
		name string
		do   func()
		want []string
	}{
		{"names and pairs", func() { l.Warn("slow", "time", 3) }, []string{"level=WARN", "msg=slow", "component=raft", "peer=a", "time=3"}},
		{"nested name", func() { l.Named("wal").Info("x") }, []string{"component=raft.wal"}},
		{"hclog format values", func() { l.Info("x", "servers", hclog.Fmt("%+v!", []int{1})) }, []string{`servers=[1]!`}},
		{"errors", func() { l.Error("x", "error", errors.New("boom")) }, []string{"level=ERROR", "error=boom"}},
		{"below the level", func() { l.Trace("hidden") }, nil},
		{"standard line with level", func() { l.StandardLogger(nil).Print("[WARN] old style") }, []string{"level=WARN", `msg="old style"`}},
		{"standard line without level", func() { l.StandardLogger(nil).Print("plain [x] line") }, []string{"level=INFO", `msg="plain [x] line"`}},
		{"Log at level", func() { l.Log(hclog.Debug, "d") }, []string{"level=DEBUG"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			buf.Reset()
			c.do()
			if c.want == nil && buf.Len() > 0 {
				t.Fatalf("expected silence, got %q", buf.String())
			}
			for _, w := range c.want {
				if !strings.Contains(buf.String(), w) {
					t.Errorf("missing %q in %q", w, buf.String())
				}
			}
		})
	}
	if got := l.GetLevel(); got != hclog.Debug {
		t.Errorf("level is %v", got)
	}
	New(nil).Error("goes nowhere")
	buf.Reset()
	quiet := NewLeveled(out, func(l slog.Level, msg string) slog.Level {
		if msg == "exit" {
			return slog.LevelDebug
		}
		return l
	}).Named("plugin").With("pid", 7)
	quiet.Error("exit")
	if got := buf.String(); !strings.Contains(got, "level=DEBUG") || !strings.Contains(got, "pid=7") {
		t.Errorf("%q", got)
	}
}
