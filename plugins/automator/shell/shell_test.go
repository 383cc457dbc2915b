package shell

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/automator/kit"
	"github.com/coopr/coopr/plugins/sdk"
	"github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/testing/lab"
)

func TestMain(m *testing.M) {
	lab.Enter()
	goleak.VerifyTestMain(m)
}

// onNode returns an automator and a constructor of tasks for a node.
func onNode(t testing.TB) (*Automator, func(id string, fields map[string]any) *sdk.Task) {
	a := New(Config{Path: os.Getenv("PATH")})
	t.Cleanup(a.Close)
	dir := t.TempDir()
	return a, func(id string, fields map[string]any) *sdk.Task {
		in, err := json.Marshal(model.TaskInput{TaskID: id, Config: model.TaskConfig{
			Cluster: map[string]any{"web": map[string]any{"port": 80}},
			Service: &model.TaskService{Name: "s", Action: model.TaskAction{Type: "shell", Fields: fields}},
			Results: map[string]any{"transport": "local", "providerid": dir},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return sdk.NewTask(&proto.Task{Id: id, Fence: 1, Attempt: 1, Action: "START", Service: "s", Input: in}, nil, nil)
	}
}

// TestSplit checks that words survive quoting and splitting.
func TestSplit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOf(rapid.StringMatching(`[a-z "'\\$\t\n]{0,8}`)).Draw(t, "words")
		quote := rapid.SampledFrom([]func(string) string{
			func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" },
			func(s string) string {
				return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, `$`, `\$`).Replace(s) + `"`
			},
		})
		var line []string
		for _, w := range words {
			line = append(line, quote.Draw(t, "quote")(w))
		}
		got, err := split(strings.Join(line, " "))
		if err != nil || strings.Join(got, "\x00") != strings.Join(words, "\x00") || len(got) != len(words) {
			t.Fatalf("%q: %q %v", line, got, err)
		}
	})
	for _, bad := range []string{`'a`, `"a`, `a\`} {
		if _, err := split(bad); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
}

func FuzzSplit(f *testing.F) {
	f.Add(`a 'b c' "d\"e" \f`)
	f.Fuzz(func(t *testing.T, s string) {
		words, err := split(s)
		if err == nil && len(words) > len(s) {
			t.Errorf("%d words of %d bytes", len(words), len(s))
		}
	})
}

// TestFieldFaults checks that all faults are reported together, each with its path.
func TestFieldFaults(t *testing.T) {
	_, faults := parse(map[string]any{"script": "/abs", "args": "'", "env": map[string]any{"COOPR_X": "1", "a=b": "1", "l": []any{}},
		"shell":  3,
		"config": map[string]any{"COOPR_Y": "a.b", "N": 3.0}})
	var paths []string
	for _, f := range faults {
		paths = append(paths, f.Path)
	}
	if got := strings.Join(paths, " "); got != "script args env.COOPR_X env.a=b env.l config.COOPR_Y config.N shell" {
		t.Errorf("%s:\n%v", got, faults)
	}
	act, faults := parse(map[string]any{"script": "a.sh", "args": []any{"x", 1.0, 2.5, true}, "env": map[string]any{"N": 8080.0}})
	if len(faults) > 0 || strings.Join(act.args, " ") != "x 1 2.5 true" || act.env[0] != "N=8080" {
		t.Errorf("%+v %v", act, faults)
	}
}

// TestDoneLogIsBounded checks that the record does not grow for ever, and always contains the
// latest tasks.
func TestDoneLogIsBounded(t *testing.T) {
	a, task := onNode(t)
	first := task("t0", nil)
	_, node, err := a.Reach.Of(first)
	if err != nil {
		t.Fatal(err)
	}
	out := &sdk.Output{Result: map[string]any{"x": strings.Repeat("y", 1000)}}
	for i := range 1000 {
		line, err := kit.Line(task("t"+strconv.Itoa(i), nil), out)
		if err == nil {
			err = kit.Remember(t.Context(), node, line)
		}
		if err != nil {
			t.Fatal(err)
		}
		if d, err := kit.Recall(t.Context(), node, "t"+strconv.Itoa(max(0, i-100))); err != nil || d == nil {
			t.Fatalf("%d: %v %v", i, d, err)
		}
	}
	var total int64
	for _, name := range []string{kit.Record, kit.Record + ".1"} {
		if fi, err := os.Stat(node.Dir() + "/" + name); err == nil {
			total += fi.Size()
		}
	}
	if total > 3*256<<10 {
		t.Errorf("%d bytes", total)
	}
}

// BenchmarkRun measures the automator without a plugin process.
func BenchmarkRun(b *testing.B) {
	a, task := onNode(b)
	var n atomic.Int64
	fields := map[string]any{"script": "#!/bin/sh\n:"}
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := a.Run(b.Context(), task("t"+strconv.FormatInt(n.Add(1), 10), fields)); err != nil {
				b.Error(err)
			}
		}
	})
}
