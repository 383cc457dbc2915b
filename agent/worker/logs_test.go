package worker

import (
	"os"
	"strings"
	"testing"

	"github.com/coopr/coopr/internal/mask"
	"github.com/coopr/coopr/plugins/host"
	pb "github.com/coopr/coopr/rpc/proto"
)

// TestCutLines has a program print one line that is so long that it comes in pieces, with a secret at each place of the cut. The log has
// the line without the secret.
func TestCutLines(t *testing.T) {
	const secret = "canary 'in' a mine"
	for at := range len(secret) + 2 {
		logs := NewLogs(LogsConfig{Dir: t.TempDir()})
		a := &attemptLog{logs: logs, key: Key{task(1, 0), 7}, mask: mask.New(secret)}
		line := strings.Repeat("x", host.MaxLogLine-at) + secret + strings.Repeat("y", host.MaxLogLine) + secret
		for line := line; line != ""; line = line[min(len(line), host.MaxLogLine):] {
			a.Log(&pb.LogLine{Text: line[:min(len(line), host.MaxLogLine)], Stderr: true})
		}
		a.Log(&pb.LogLine{Text: "the end", Stderr: true})
		name := a.f.Name()
		a.end()
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		for line := range strings.Lines(string(text)) {
			_, said, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ! ")
			if !ok {
				t.Fatalf("a line is %.100q", line)
			}
			got.WriteString(said)
		}
		if got.String() != strings.ReplaceAll(line, secret, mask.Mark)+"the end" {
			t.Errorf("%d bytes before the cut: %d bytes, of which %q", at, got.Len(), strings.Trim(got.String(), "xy"))
		}
	}
}

// A secret that is longer than the pieces of a line leaves no empty lines.
func TestLongSecretInCutLines(t *testing.T) {
	secret := strings.Repeat("0123456789abcdef", host.MaxLogLine/8)
	a := &attemptLog{logs: NewLogs(LogsConfig{}), mask: mask.New(secret)}
	line := "it is " + secret
	for ; len(line) > host.MaxLogLine; line = line[host.MaxLogLine:] {
		a.Log(&pb.LogLine{Text: line[:host.MaxLogLine]})
	}
	a.Log(&pb.LogLine{Text: line})
	if tail := a.end(); tail != "it is "+mask.Mark+"\n" {
		t.Errorf("the log is %.100q", tail)
	}
}

// TestHeldAtTheEnd has a log end where a line was cut.
func TestHeldAtTheEnd(t *testing.T) {
	a := &attemptLog{logs: NewLogs(LogsConfig{}), mask: mask.New("canary in a mine")}
	a.Log(&pb.LogLine{Text: strings.Repeat("x", host.MaxLogLine-8) + "12345678"})
	if tail := a.end(); !strings.Contains(tail, "x12345678") && !strings.HasSuffix(strings.ReplaceAll(tail, "\n", ""), "12345678") {
		t.Errorf("the tail is %q", tail[max(0, len(tail)-50):])
	}
}

// TestSecretSaves has plugins save secrets that they were given. Those of automators are hidden where the leader would not encrypt them.
func TestSecretSaves(t *testing.T) {
	for name, x := range map[string]struct {
		task *pb.Task
		key  string
		want string
	}{
		"an automator":                     {&pb.Task{Automator: true, Encrypts: true}, "note", `{"all":["[redacted]"],"password":"canary-in-a-mine"}`},
		"an automator, as a secret":        {&pb.Task{Automator: true, Encrypts: true}, "token", `{"all":["canary-in-a-mine"],"password":"canary-in-a-mine"}`},
		"an automator, as a marked secret": {&pb.Task{Automator: true, Encrypts: true, Sensitive: []string{"note"}}, "note", `{"all":["canary-in-a-mine"],"password":"canary-in-a-mine"}`},
		"with a leader that encrypts not":  {&pb.Task{Automator: true}, "token", `{"all":["[redacted]"],"password":"[redacted]"}`},
		"a provider":                       {&pb.Task{Encrypts: true}, "note", `{"all":["canary-in-a-mine"],"password":"canary-in-a-mine"}`},
	} {
		var got *pb.SaveState
		a := &attemptLog{logs: NewLogs(LogsConfig{}), task: x.task, mask: mask.New("canary-in-a-mine"), save: func(s *pb.SaveState) { got = s }}
		a.Save(&pb.SaveState{Task: "1-1/1", Fence: 7, Key: x.key, Value: []byte(`{"all":["canary-in-a-mine"],"password":"canary-in-a-mine"}`)})
		if got == nil || string(got.Value) != x.want || got.Key != x.key || got.Task != "1-1/1" || got.Fence != 7 {
			t.Errorf("%s: saves %v", name, got)
		}
	}
}
