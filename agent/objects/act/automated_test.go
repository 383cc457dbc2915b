package act

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/agent/objects"
	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/automator/shell"
	"github.com/coopr/coopr/plugins/host"
	"github.com/coopr/coopr/plugins/sdk"
	pb "github.com/coopr/coopr/rpc/proto"
)

// TestAutomated checks that the shell automator carries out the transitions of an object of its
// type, and that an object whose check failed does not count as down.
func TestAutomated(t *testing.T) {
	file := filepath.Join(t.TempDir(), "it")
	do := func(script string) map[string]any { return map[string]any{"script": script + "\n"} }
	b := newBench(t, site.Object{Type: "automator:shell", Content: map[string]any{
		"check": do("test -e " + file), "start": do("echo $COOPR_ACTION >" + file + "; echo $COOPR_SERVICE $COOPR_NODE >&2"),
		"stop": do("rm " + file),
	}}, false)
	a := shell.New(shell.Config{Path: os.Getenv("PATH")})
	t.Cleanup(a.Close)
	away := false
	b.p.cfg.Automate = func(ctx context.Context, x *pb.Task, sink host.Sink) *pb.Result {
		if x.TimeoutMs <= 0 || x.Plugin != "shell" || !x.Automator {
			t.Errorf("the task is %v", x)
		}
		if away {
			return &pb.Result{Outcome: pb.Outcome_OUTCOME_NOTHING_DONE, Message: "nobody is there"}
		}
		task := sdk.NewTask(x, func(line string, stderr bool) { sink.Log(&pb.LogLine{Text: line, Stderr: stderr}) }, nil)
		var err error
		if x.Action == model.Check.String() {
			_, _, err = a.Check(ctx, task)
		} else {
			_, err = a.Run(ctx, task)
		}
		return &pb.Result{Outcome: sdk.OutcomeOf(err), Message: fmt.Sprint(err)}
	}
	b.is("down")
	b.run("start")
	b.is("up")
	if got := read(t, file); got != "START\n" {
		t.Errorf("it wrote %q", got)
	}
	b.change("stop", do("rm "+file+".other"))
	b.is("outdated")
	b.run("restart") // stops it as it was started
	b.is("up")
	if err := b.p.Run(t.Context(), b.job(), "stop"); err == nil {
		t.Error("its stop script fails, and the action does not")
	}
	write(t, file+".other", "")
	b.run("stop")
	b.is("up")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	b.is("down")
	away = true
	if state, _, err := b.p.Check(t.Context(), b.job()); err == nil {
		t.Errorf("a check that could not be run returned %q", state)
	}
}

// TestStopWithSecretOfBefore checks that the stamp has references in place of secrets, that what is in place is stopped with the secret
// that it was started with, and that messages do not have it.
func TestStopWithSecretOfBefore(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	content := func(pin string) map[string]any {
		return map[string]any{"start": "echo start $PIN >>" + out, "stop": "echo stop $PIN >>" + out + "; echo it was $PIN; test ! -e " + out + ".fail",
			"env": map[string]any{"PIN": pin}}
	}
	b := newBench(t, site.Object{Type: "script", Content: content("plain")}, false)
	values := map[string]json.RawMessage{"coopr-sealed:aaa@1": json.RawMessage(`"canary-one"`), "coopr-sealed:bbb@1": json.RawMessage(`"canary-two"`)}
	job := func(ref string) *objects.Job {
		b.o.Content = content(ref)
		j := b.job()
		stored := b.o
		j.Stored, j.Values = &stored, values
		var err error
		if j.Object, err = stored.Open(values, func(v any) { j.Secrets = append(j.Secrets, fmt.Sprint(v)) }); err != nil {
			t.Fatal(err)
		}
		return j
	}
	act := func(ref, action string) error {
		j := job(ref)
		err := b.p.Run(t.Context(), j, action)
		if err != nil && strings.Contains(err.Error(), "canary") {
			t.Errorf("the error of %s has the secret", action)
		}
		return err
	}
	if err := act("coopr-sealed:aaa@1", "start"); err != nil {
		t.Fatal(err)
	}
	var stamped []string
	err := filepath.WalkDir(b.p.cfg.Dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "stamp.json" {
			stamped = append(stamped, read(t, path))
		}
		return err
	})
	if err != nil || len(stamped) != 1 || strings.Contains(stamped[0], "canary") || !strings.Contains(stamped[0], "coopr-sealed:aaa@1") {
		t.Errorf("the stamp is %q, %v", stamped, err)
	}
	write(t, out+".fail", "")
	if err := act("coopr-sealed:bbb@1", "restart"); err == nil {
		t.Error("its stop script fails, and the restart does not")
	}
	if err := os.Remove(out + ".fail"); err != nil {
		t.Fatal(err)
	}
	if err := act("coopr-sealed:bbb@1", "restart"); err != nil {
		t.Fatal(err)
	}
	if got := read(t, out); got != "start canary-one\nstop canary-one\nstop canary-one\nstart canary-two\n" {
		t.Errorf("it did %q", got)
	}
	if _, err := b.o.Open(nil, func(any) {}); !errors.Is(err, site.ErrNoValue) {
		t.Errorf("without the value it is opened: %v", err)
	}
}

// TestHandover: on a node that another agent may have worked on a moment ago an automator
// begins when that agent's plugins have surely ended.
func TestHandover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Performer{Config{Automate: func(_ context.Context, x *pb.Task, _ host.Sink) *pb.Result {
			in := &model.TaskInput{}
			if err := json.Unmarshal(x.Input, in); err != nil || in.Config.Results["transport"] != "ssh" ||
				in.Config.Service.Action.Fields["script"] != "true" {
				t.Errorf("the input is %s", x.Input)
			}
			return &pb.Result{Outcome: pb.Outcome_OUTCOME_SUCCEEDED}
		}, Machine: func(context.Context, string, *site.Access) (*Machine, error) { return &Machine{}, nil }}}
		for _, held := range []time.Duration{0, handover - time.Second, time.Hour} {
			j := &objects.Job{Object: &site.Object{Name: "x", Host: "node:c/n", Type: "automator:shell",
				Content: map[string]any{"check": map[string]any{"script": "true"}}},
				Node: &site.Access{Results: map[string]any{"transport": "ssh"}}, Held: held}
			began := time.Now()
			d := &automated{object: &object{p: p, m: &Machine{}, job: j}, plugin: "shell"}
			if _, _, err := d.do(t.Context(), model.Check, j.Object.Content["check"].(map[string]any)); err != nil {
				t.Error(err)
			}
			if waited := time.Since(began); waited != max(handover-held, 0) {
				t.Errorf("held for %s, it waited for %s", held, waited)
			}
		}
	})
}
