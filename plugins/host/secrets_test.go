package host

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/coopr/coopr/rpc/proto"
)

// logged is a log that tests read while it is written.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestOwnOutput has plugins print secrets that they were given, outside of any task's log. The agent's log does not have them.
func TestOwnOutput(t *testing.T) {
	var log logged
	var dir string
	h := newHost(t, func(c *Config) {
		c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		dir = c.Dirs[0]
		writeExec(t, dir, "talks", "provider", "#!/bin/sh\ncat >&2\nexit 1\n",
			"verbs: [list, validate]\nparameters: {admin: {fields: {seed: {label: Seed, type: text, sensitive: true}}}}\n")
		c.Plugins = append(c.Plugins, Binary{Path: filepath.Join(dir, "talks.yaml"), Settings: json.RawMessage(`{"token":"canary-settings"}`)})
	})
	x := task("print", map[string]any{"do": "print", "text": "it is canary-printed."})
	x.Secrets = []string{"canary-printed", "canary-cut-short-by-a-limit"}
	h.Execute(t.Context(), x, nil)
	x = task("long", map[string]any{"do": "print", "text": strings.Repeat(".", maxLine-10) + "canary-cut-short-by-a-limit"})
	h.Execute(t.Context(), x, nil)
	fields, err := json.Marshal(map[string]any{"password": "canary-password", "seed": "canary-seed", "region": "the moon"})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.List(t.Context(), "talks", &proto.ListRequest{Fields: fields}, nil); err == nil {
		t.Error("the list has no fault")
	}
	eventually(t, "the lines to be logged", func() bool {
		text := log.String()
		return strings.Contains(text, "it is [redacted].") && strings.Contains(text, "......") && strings.Contains(text, "the moon")
	})
	if strings.Contains(log.String(), "canary") {
		t.Errorf("the log has a secret:\n%s", log.String())
	}
}

// TestSettingsInTasks has a plugin print its settings to the log of a task, and as its message.
func TestSettingsInTasks(t *testing.T) {
	h := newHost(t, func(c *Config) {
		writeExec(t, c.Dirs[0], "talks", "automator", "#!/bin/sh\nin=$(cat)\necho \"$in\" >&2\nexit 1\n", "actions: {run: idempotent}\n")
		c.Plugins = append(c.Plugins, Binary{Path: filepath.Join(c.Dirs[0], "talks.yaml"),
			Settings: json.RawMessage(`{"api_token":"canary-settings","region":"the moon"}`)})
	})
	x := task("talk", nil)
	x.Plugin = "talks"
	var rec recorder
	r := h.Execute(t.Context(), x, &rec)
	said := r.Message + r.LogTail + strings.Join(rec.lines, "\n")
	if strings.Contains(said, "canary") || !strings.Contains(said, "the moon") {
		t.Errorf("it says %s", said)
	}
}

// TestSecretsAreBounded passes more secrets than are kept.
func TestSecretsAreBounded(t *testing.T) {
	s := &secrets{settings: []string{"of the settings"}}
	for i := range 2 * maxSecrets {
		s.add(fmt.Sprintf("secret-%04d", i), "secret-again")
	}
	if len(s.latest) != maxSecrets {
		t.Errorf("%d secrets are kept", len(s.latest))
	}
	if got := s.text(fmt.Sprintf("of the settings, secret-again, secret-%04d", 2*maxSecrets-1)); got != "[redacted], [redacted], [redacted]" {
		t.Error(got)
	}
}

// A number among the settings is a secret, too.
func TestNumbers(t *testing.T) {
	if got := settingTexts(json.RawMessage(`{"api_token":12345678,"port":7,"all":[{"password":1234567890}]}`)); len(got) != 2 ||
		!slices.Contains(got, "12345678") || !slices.Contains(got, "1234567890") {
		t.Errorf("the secrets are %q", got)
	}
}

// TestHiding logs secrets as messages and attributes of every kind.
func TestHiding(t *testing.T) {
	var out bytes.Buffer
	s := &secrets{}
	s.add("canary-in-a-mine")
	log := slog.New(hiding{slog.NewTextHandler(&out, nil), s})
	log.With("a", "canary-in-a-mine").WithGroup("g").Warn("canary-in-a-mine", "b", "x canary-in-a-mine", "c", errors.New("canary-in-a-mine"), "n", 7)
	if text := out.String(); strings.Contains(text, "canary") || strings.Count(text, "[redacted]") != 4 || !strings.Contains(text, "g.n=7") {
		t.Error(text)
	}
	// A plugin may log in JSON, whose values have any shape.
	out.Reset()
	log.Warn("x", "d", map[string]any{"all": []any{"canary-in-a-mine", 7}}, slog.Group("e", "f", "canary-in-a-mine"), "h", []byte("canary-in-a-mine"),
		"i", map[string]any{"k": 7}, "l", &struct{ Password string }{"canary-in-a-mine"})
	if text := out.String(); strings.Contains(text, "canary") || strings.Count(text, "[redacted]") != 4 || !strings.Contains(text, "i=map[k:7]") {
		t.Error(text)
	}
}
