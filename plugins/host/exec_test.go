package host

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/proto"
)

// withExec returns a host with one "exec" automator, which runs this script.
func withExec(t testing.TB, script string) *Host {
	return newHost(t, func(c *Config) {
		writeExec(t, c.Dirs[0], "mine", "automator", script,
			"verbs: [validate]\nparameters:\n  admin:\n    fields:\n      package: {label: Package, type: text}\n    required: [[package]]\n")
	})
}

func execTask(id string, fields map[string]any) *proto.Task {
	x := task(id, fields)
	x.Plugin = "mine"
	return x
}

// TestExecOutcomes checks the outcomes for what a command prints and how it ends.
func TestExecOutcomes(t *testing.T) {
	for _, c := range []struct {
		script string
		want   proto.Outcome
		says   string
	}{
		{"exit 0", proto.Outcome_OUTCOME_SUCCEEDED, ""},
		{`echo '{"result":{"a":1},"hostname":"h"}'`, proto.Outcome_OUTCOME_SUCCEEDED, ""},
		{`echo '{"outcome":"fatal","message":"no such package"}'`, proto.Outcome_OUTCOME_FATAL, "no such package"},
		{`echo '{"outcome":"nothing-done","message":"m"}'; exit 1`, proto.Outcome_OUTCOME_NOTHING_DONE, "m"},
		{`echo '{"status":0}'`, proto.Outcome_OUTCOME_SUCCEEDED, ""},
		{`echo '{"status":1,"message":"old style"}'`, proto.Outcome_OUTCOME_RETRYABLE, "old style"},
		{`echo '{"outcome":"great"}'`, proto.Outcome_OUTCOME_UNKNOWN, `"great"`},
		{"echo oops >&2; exit 3", proto.Outcome_OUTCOME_RETRYABLE, "exit status 3"},
		{"exit 100", proto.Outcome_OUTCOME_FATAL, "exit status 100"},
		{"exit 101", proto.Outcome_OUTCOME_NOTHING_DONE, "exit status 101"},
		{"echo hello world", proto.Outcome_OUTCOME_UNKNOWN, "must be one JSON object"},
		{"echo '{} {}'", proto.Outcome_OUTCOME_UNKNOWN, "must be one JSON object"},
		{"kill -9 $$", proto.Outcome_OUTCOME_UNKNOWN, "signal: killed"},
	} {
		t.Run(c.script, func(t *testing.T) {
			h := withExec(t, "#!/bin/sh\n"+c.script+"\n")
			r := h.Execute(t.Context(), execTask("x", nil), nil)
			if r.Outcome != c.want || !strings.Contains(r.Message, c.says) || (r.Outcome == proto.Outcome_OUTCOME_SUCCEEDED) != (r.Message == "") {
				t.Errorf("got %v", r)
			}
		})
	}
}

// TestExecShell checks that a plugin in sh gets the task and streams its log.
func TestExecShell(t *testing.T) {
	h := withExec(t, `#!/bin/sh
in=$(cat)
echo "first" >&2
case $in in
*'"verb":"validate"'*) echo '{"faults":[{"path":"package","message":"is not for us"}]}'; exit;;
*'"verb":"run"'*'"fence":7'*'"taskId":"x"'*'"package":"nginx"'*) ;;
*) echo "$in" >&2; exit 100;;
esac
echo "task $COOPR_TASK fence $COOPR_FENCE" >&2
echo '{"save":{"k":[1]},"adopted":true,"result":{"version":"1.2"}}'
`)
	var rec recorder
	r := h.Execute(t.Context(), execTask("x", map[string]any{"package": "nginx"}), &rec)
	if r.Outcome != proto.Outcome_OUTCOME_SUCCEEDED || string(r.Output) != `{"result":{"version":"1.2"}}` || !r.Adopted ||
		rec.saves["k"] != "[1]" ||
		strings.Join(rec.lines, "|") != "first|task x fence 7" {
		t.Errorf("got %v %v %v", r, rec.lines, rec.saves)
	}
	faults, err := h.Validate(t.Context(), model.KindAutomatorType, "mine", "action", map[string]any{})
	if err != nil || len(faults) != 2 {
		t.Errorf("validate: %v %v", faults, err)
	}
}

// TestExecPython checks a provider in Python that creates, lists and removes things.
func TestExecPython(t *testing.T) {
	if err := exec.Command("python3", "-c", "").Run(); err != nil {
		t.Skip("no python3: install it to run this test")
	}
	dir := t.TempDir()
	h := newHost(t, func(c *Config) {
		c.Env = append(c.Env, "MINE="+dir, "PATH="+os.Getenv("PATH"))
		c.Plugins = []Binary{{Path: filepath.Join(c.Dirs[0], "mine.yaml"), Writes: []string{dir}}}
		writeExec(t, c.Dirs[0], "mine", "provider", `#!/usr/bin/env python3
import json, os, sys
task = json.load(sys.stdin)
verb, root = task["verb"], os.environ["MINE"]
if verb == "list":
    print(json.dumps({"resources": [json.load(open(os.path.join(root, f))) for f in sorted(os.listdir(root))]}))
    sys.exit()
path = os.path.join(root, task["clusterId"] + "-" + str(task["config"]["nodenum"]))
print("doing", verb, path, file=sys.stderr)
answer = {"result": {"providerid": path}, "ipaddresses": {"access_v4": "127.0.0.1"}}
if verb == "create":
    if task.get("observe") and os.path.exists(path):
        answer["adopted"] = True
    json.dump({"cluster": task["clusterId"], "node": task["nodeId"], "fence": task["fence"], "id": path}, open(path, "w"))
elif verb == "delete":
    if os.path.exists(path): os.remove(path)
    answer = {}
print(json.dumps(answer))
`, "verbs: [list]\n")
	})
	run := func(action string, observe bool) *proto.Result {
		x := task("x", nil)
		x.Automator, x.Plugin, x.Action, x.Observe = false, "mine", action, observe
		x.Input = []byte(`{"clusterId":"c1","nodeId":"n1","config":{"nodenum":1000}}`)
		return h.Execute(t.Context(), x, nil)
	}
	if r := run("CREATE", true); r.Outcome != proto.Outcome_OUTCOME_SUCCEEDED || r.Adopted || len(r.Output) == 0 {
		t.Fatalf("create: %v", r)
	}
	if r := run("CREATE", true); r.Outcome != proto.Outcome_OUTCOME_SUCCEEDED || !r.Adopted {
		t.Errorf("create again: %v", r)
	}
	var listed []string
	err := h.List(t.Context(), "mine", &proto.ListRequest{}, func(r *proto.Resource) error {
		listed = append(listed, r.Cluster+" "+r.Node+" "+strconv.FormatUint(r.Fence, 10))
		return nil
	})
	if err != nil || strings.Join(listed, "|") != "c1 n1 7" {
		t.Errorf("listed %v: %v", listed, err)
	}
	if r := run("DELETE", false); r.Outcome != proto.Outcome_OUTCOME_SUCCEEDED || len(r.Output) != 0 {
		t.Errorf("delete: %v", r)
	}
}

// TestExecStops checks that a command gets TERM and then KILL, together with its children.
func TestExecStops(t *testing.T) {
	h := withExec(t, "#!/bin/sh\ntrap '' TERM\nsleep 1000 &\necho $! >&2\nwhile :; do sleep 1000; done\n")
	child := 0
	run := func(ms int64, f func()) *proto.Result {
		x := execTask("x", nil)
		x.TimeoutMs = ms
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		return h.Execute(ctx, x, &recorder{each: func(s string) {
			child, _ = strconv.Atoi(s)
			if f != nil {
				go f()
			} else if ms == 0 {
				cancel(errors.New("enough"))
			}
		}})
	}
	gone := func() {
		t.Helper()
		eventually(t, "the child's end", func() bool { _, alive := startTime(child); return !alive })
	}
	if r := run(0, nil); r.Outcome != proto.Outcome_OUTCOME_CANCELLED || r.Message != "enough" {
		t.Errorf("cancelled: %v", r)
	}
	gone()
	if r := run(200, nil); r.Outcome != proto.Outcome_OUTCOME_RETRYABLE || !strings.Contains(r.Message, "timed out after 200ms") {
		t.Errorf("timed out: %v", r)
	}
	gone()
	if r := run(0, func() { h.Close() }); r.Outcome != proto.Outcome_OUTCOME_UNKNOWN {
		t.Errorf("closed: %v", r)
	}
	gone()
}

// TestExecDescriptorFaults checks that all faults are reported, by path, and that other files of
// the folder are ignored.
func TestExecDescriptorFaults(t *testing.T) {
	h := newHost(t, func(c *Config) {
		for name, text := range map[string]string{
			"bad.json": `{"protocol":"exec","kind":"provider","name":"BAD","parameters":{"admin":{"fields":{"f":{"type":"blob"},` +
				`"s":{"type":"select"}},"required":[["g"]]}},"actions":{"create":"sometimes","run":"observe"},"verbs":["dance"],` +
				`"resourceTypes":{"r":{"format":"zip","permissions":"9"}}}`,
			"other.json": `{"name":"chef","providertypes":["x"]}`,
			"notes.yaml": "- a list\n",
		} {
			if err := os.WriteFile(filepath.Join(c.Dirs[0], name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	})
	if err := h.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	err := h.Faults()
	if err == nil {
		t.Fatal("no faults")
	}
	for _, path := range []string{"name:", "plugin:", "parameters.admin.fields.f.type:", "parameters.admin.fields.s.options:",
		"parameters.admin.required[0][0]:",
		"resourceTypes.r.format:", "resourceTypes.r.permissions:", "actions.create:", "actions.run:", "verbs[0]:", "command:"} {
		if !strings.Contains(err.Error(), path) {
			t.Errorf("nothing is said of %s:\n%v", path, err)
		}
	}
	if len(h.Types()) != 2 {
		t.Errorf("types: %v", h.Types())
	}
	r := h.Execute(t.Context(), execTask("x", nil), nil)
	if r.Outcome != proto.Outcome_OUTCOME_NOTHING_DONE || !strings.Contains(r.Message, "no plugin here offers automator type mine") {
		t.Errorf("got %v", r)
	}
}

// TestNewPluginIsFound checks that a plugin that is installed later is found by the first task that
// asks for it, within some seconds.
func TestNewPluginIsFound(t *testing.T) {
	h := newHost(t, nil)
	if err := h.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	writeExec(t, h.cfg.Dirs[0], "mine", "automator", "#!/bin/sh\n", "")
	eventually(t, "the new plugin", func() bool {
		return h.Execute(t.Context(), execTask("x", nil), nil).Outcome == proto.Outcome_OUTCOME_SUCCEEDED
	})
	if err := os.Remove(filepath.Join(h.cfg.Dirs[0], "mine.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := h.Rescan(); err != nil {
		t.Fatal(err)
	}
	if len(h.Types()) != 2 {
		t.Errorf("types: %v", h.Types())
	}
}

// TestExecChecksum checks that a configured checksum covers the descriptor and the program, whenever
// the program is started.
func TestExecChecksum(t *testing.T) {
	for _, c := range []struct {
		name, change string // the file that is changed before the host starts
		sum          func(descriptor, program string) string
		want         proto.Outcome
	}{
		{"right", "", func(d, p string) string { return d + p }, proto.Outcome_OUTCOME_SUCCEEDED},
		{"of the descriptor alone", "", func(d, _ string) string { return d }, proto.Outcome_OUTCOME_NOTHING_DONE},
		{"another program", "mine.run", func(d, p string) string { return d + p }, proto.Outcome_OUTCOME_NOTHING_DONE},
		{"another descriptor", "mine.yaml", func(d, p string) string { return d + p }, proto.Outcome_OUTCOME_NOTHING_DONE},
	} {
		t.Run(c.name, func(t *testing.T) {
			var dir string
			h := newHost(t, func(cfg *Config) {
				dir = cfg.Dirs[0]
				writeExec(t, dir, "mine", "automator", "#!/bin/sh\nexit 0\n", "")
				d, p := readFile(t, filepath.Join(dir, "mine.yaml")), readFile(t, filepath.Join(dir, "mine.run"))
				sum := sha256.Sum256([]byte(c.sum(d, p)))
				cfg.Dirs, cfg.Plugins = nil, []Binary{{Path: filepath.Join(dir, "mine.yaml"), SHA256: hex.EncodeToString(sum[:])}}
				if c.change != "" {
					appendTo(t, filepath.Join(dir, c.change), "# changed\n")
				}
			})
			r := h.Execute(t.Context(), execTask("x", nil), nil)
			if r.Outcome != c.want || r.Outcome != proto.Outcome_OUTCOME_SUCCEEDED && !strings.Contains(r.Message, "is configured") {
				t.Errorf("got %v", r)
			}
			// The program is compared again each time.
			appendTo(t, filepath.Join(dir, "mine.run"), "# changed later\n")
			if r := h.Execute(t.Context(), execTask("y", nil), nil); r.Outcome != proto.Outcome_OUTCOME_NOTHING_DONE ||
				!strings.Contains(r.Message, "is configured") {
				t.Errorf("after a change: %v", r)
			}
		})
	}
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func appendTo(t *testing.T, name, text string) {
	t.Helper()
	fi, err := os.Stat(name)
	if err == nil {
		err = os.WriteFile(name, []byte(readFile(t, name)+text), fi.Mode().Perm())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// FuzzParseAnswer checks that an accepted answer is one JSON object or nothing at all, and that its
// output can be encoded for the agent.
func FuzzParseAnswer(f *testing.F) {
	for _, s := range []string{``, ` `, `{}`, `{}}`, `{}{}`, `{} text`, `[]`, `null`, `{"status": "0", "hostname": "a"}`, `{"status": "x"}`,
		`{"outcome": "fatal", "message": "no quota", "save": {"id": 7}}`, `{"result": {"a": {"b": [1, null]}}, "ip_addresses": {"x": 1}}`,
		`{"resources": [{"id": "i-1", "fence": 18446744073709551615}], "faults": [{}], "ranking": {}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := parseAnswer(b)
		if err != nil {
			return
		}
		if b = bytes.TrimSpace(b); len(b) > 0 && !json.Valid(b) {
			t.Errorf("%q was accepted", b)
		}
		if _, err := json.Marshal(a.TaskOutput); err != nil {
			t.Errorf("the output of %q: %v", b, err)
		}
	})
}
