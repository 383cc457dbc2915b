package act

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/coopr/coopr/agent/objects"
	"github.com/coopr/coopr/engine/change/builtin"
	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/plugins/provider/local/machine"
	"github.com/coopr/coopr/plugins/remote"
	"github.com/coopr/coopr/plugins/sdk/spawn"
	"github.com/coopr/coopr/testing/lab"
)

// TestMain is coopr-node too, when it is called so: what supervises processes in
// these tests.
func TestMain(m *testing.M) {
	if os.Getenv("COOPR_NODE_DIR") != "" {
		os.Exit(machine.Main(os.Args[1:], os.Stdout, os.Stderr))
	}
	lab.Enter()
	goleak.VerifyTestMain(m)
}

// bench is a performer on this machine, with one object.
type bench struct {
	t *testing.T
	p *Performer
	o site.Object
	n uint64 // generation
}

func newBench(t *testing.T, o site.Object, overSSH bool) *bench {
	t.Helper()
	dir := t.TempDir()
	s := spawn.New()
	t.Cleanup(s.Stop)
	work := filepath.Join(dir, "work")
	if err := os.MkdirAll(work, 0o700); err != nil {
		t.Fatal(err)
	}
	own, err := remote.NewLocal(work, s)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p, err := New(Config{Dir: dir, NodeProgram: self, Logger: slog.New(slog.DiscardHandler),
		Machine: func(context.Context, string, *site.Access) (*Machine, error) {
			return &Machine{Node: own, Local: !overSSH}, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	o.Name, o.Host = "part/of/it", "agent:a"
	b := &bench{t: t, p: p, o: o, n: 1}
	if faults := builtin.Check(&site.Document{Objects: []site.Object{o}}); len(faults) > 0 {
		t.Fatal(faults)
	}
	t.Cleanup(func() {
		if err := machine.Shutdown(context.Background(), filepath.Join(work, ".coopr-services"), time.Second); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *bench) job() *objects.Job {
	h := fnv.New64a()
	fmt.Fprint(h, b.o.Content)
	return &objects.Job{Tenant: "t", Site: "s", Object: &b.o, Stored: &b.o, Content: h.Sum64(), Generation: b.n}
}

// is checks that the object is found in a state, and returns the check's note.
func (b *bench) is(want string) string {
	b.t.Helper()
	got, note, err := b.p.Check(b.t.Context(), b.job())
	if err != nil || got != want {
		b.t.Fatalf("found %q (%s, %v), not %q", got, note, err, want)
	}
	return note
}

func (b *bench) run(action string) {
	b.t.Helper()
	if err := b.p.Run(b.t.Context(), b.job(), action); err != nil {
		b.t.Fatalf("%s: %v", action, err)
	}
}

// change changes one key of the object's content.
func (b *bench) change(key string, value any) {
	c := map[string]any{}
	for k, v := range b.o.Content {
		c[k] = v
	}
	c[key] = value
	b.o.Content = c
	b.n++
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestScript(t *testing.T) {
	file := filepath.Join(t.TempDir(), "it")
	b := newBench(t, site.Object{Type: "script", Content: map[string]any{
		"check": "test -e " + file, "start": "echo $COOPR_ACTION $WORD >" + file, "stop": "rm " + file, "env": map[string]any{"WORD": "hello"},
	}}, false)
	b.is("down")
	b.run("start")
	b.is("up")
	if got := read(t, file); got != "start hello\n" {
		t.Errorf("%q", got)
	}
	b.change("env", map[string]any{"WORD": "bye"})
	b.is("outdated")
	b.run("restart") // stops what is in place and starts the new one
	if got := read(t, file); b.is("up") != "" || got != "restart bye\n" {
		t.Errorf("%q", got)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	b.is("down")
	b.run("start")
	b.run("stop")
	b.is("down")
	b.change("start", "echo no such luck >&2; exit 7")
	if err := b.p.Run(t.Context(), b.job(), "start"); err == nil || !strings.Contains(err.Error(), "exit code 7: no such luck") {
		t.Error(err)
	}
	b.change("check", "exit 9")
	if _, _, err := b.p.Check(t.Context(), b.job()); err == nil {
		t.Error("a check that says nothing sensible is believed")
	}
}

// Without a check an object is as its last action left it.
func TestScriptWithoutCheck(t *testing.T) {
	b := newBench(t, site.Object{Type: "script", Content: map[string]any{"version": 1}}, false)
	b.is("down")
	b.run("start")
	b.is("up")
	b.change("version", 2)
	b.is("outdated")
	b.run("restart")
	b.is("up")
	b.run("stop")
	b.is("down")
}

// A script that is stopped ends with its children, and the next agent ends the scripts that a
// killed agent left running.
func TestScriptsEnd(t *testing.T) {
	dir := t.TempDir()
	begun := filepath.Join(dir, "begun")
	b := newBench(t, site.Object{Type: "script", Content: map[string]any{"start": "sleep 1000 & echo $! >" + begun + "; wait"}}, false)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- b.p.Run(ctx, b.job(), "start") }()
	await(t, func() bool { data, err := os.ReadFile(begun); return err == nil && len(data) > 1 })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	pid := strings.TrimSpace(read(t, begun))
	await(t, func() bool { return !alive(pid) })

	note := filepath.Join(b.p.notes(), "left")
	cmd := exec.Command("/bin/sh", "-c", `echo $$ >"$0"; sleep 1000`, note)
	cmd.Env = append(os.Environ(), noteVar+"="+note)
	cmd.SysProcAttr = newGroup()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, func() bool { data, err := os.ReadFile(note); return err == nil && len(data) > 1 })
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	if _, err := New(b.p.cfg); err != nil {
		t.Fatal(err)
	}
	<-ended
	if _, err := os.Stat(note); !os.IsNotExist(err) {
		t.Error("the note is still there")
	}
}

func alive(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func await(t *testing.T, ok func() bool) {
	t.Helper()
	for begin := time.Now(); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Since(begin) > 3*time.Minute {
			t.Fatal("it never came")
		}
	}
}

// A supervised process, here and where nothing of ours is installed.
func TestService(t *testing.T) {
	for _, remote := range []bool{false, true} {
		t.Run(fmt.Sprintf("remote=%v", remote), func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "pid")
			b := newBench(t, site.Object{Type: "service", Content: map[string]any{
				"manager": "process", "command": []any{"/bin/sh", "-c", "echo $$ >" + file + "; exec sleep 1000"}, "ready": "test -s " + file,
			}}, remote)
			b.is("down")
			b.run("start")
			b.is("up")
			first := strings.TrimSpace(read(t, file))
			b.run("start") // again: nothing happens
			if again := strings.TrimSpace(read(t, file)); again != first {
				t.Errorf("process %s became %s", first, again)
			}
			b.change("version", 2)
			b.is("outdated")
			b.run("restart")
			b.is("up")
			await(t, func() bool { return !alive(first) })
			b.run("stop")
			b.is("down")
			second := strings.TrimSpace(read(t, file))
			await(t, func() bool { return !alive(second) })
		})
	}
}

// TestEnvironmentNotInArguments checks that the variables of a supervised process reach it, and are on no command line.
func TestEnvironmentNotInArguments(t *testing.T) {
	dir := t.TempDir()
	out, node := filepath.Join(dir, "out"), filepath.Join(dir, "coopr-node")
	b := newBench(t, site.Object{Type: "service", Content: map[string]any{
		"manager": "process", "command": []any{"/bin/sh", "-c", "echo $PASSWORD $COOPR_NODE_DIR >" + out + "; exec sleep 1000"},
		"ready": "test -s " + out, "env": map[string]any{"PASSWORD": "canary", "COOPR_NODE_DIR": "own"},
	}}, false)
	write(t, node, "#!/bin/sh\necho \"$@\" >>"+filepath.Join(dir, "args")+"\nexec "+quote(b.p.cfg.NodeProgram)+" \"$@\"\n")
	if err := os.Chmod(node, 0o755); err != nil {
		t.Fatal(err)
	}
	b.p.cfg.NodeProgram = node
	b.run("start")
	b.is("up")
	if got := read(t, out); got != "canary own\n" {
		t.Errorf("the process has %q", got)
	}
	if args := read(t, filepath.Join(dir, "args")); strings.Contains(args, "canary") || !strings.Contains(args, "--env PASSWORD") {
		t.Errorf("coopr-node was called with %s", args)
	}
	b.run("stop")
	b.is("down")
}

func tree(root string) site.Object {
	return site.Object{Type: "filetree", Content: map[string]any{"root": root, "files": map[string]any{
		"app.conf":   map[string]any{"content": "a = 1\n\nb = 2\n\nc = 3\n", "mode": "0640"},
		"sub/link":   map[string]any{"link": "../app.conf"},
		"sub/empty":  map[string]any{"directory": true, "mode": "0700"},
		"other.conf": map[string]any{"content": "before\n"},
	}}}
}

func (b *bench) files(name, content string) {
	files := map[string]any{}
	for k, v := range b.o.Content["files"].(map[string]any) {
		files[k] = v
	}
	if files[name] = map[string]any{"content": content, "mode": "0640"}; content == "" {
		delete(files, name)
	}
	b.change("files", files)
}

func TestFileTree(t *testing.T) {
	for _, remote := range []bool{false, true} {
		t.Run(fmt.Sprintf("remote=%v", remote), func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "etc")
			if err := os.MkdirAll(root, 0o755); err != nil {
				t.Fatal(err)
			}
			conf := filepath.Join(root, "app.conf")
			write(t, filepath.Join(root, "other.conf"), "of the machine\n")
			b := newBench(t, tree(root), remote)
			b.is("down")
			b.run("start")
			b.is("up")
			if fi, err := os.Stat(conf); err != nil || fi.Mode().Perm() != 0o640 ||
				read(t, filepath.Join(root, "sub/link")) != "a = 1\n\nb = 2\n\nc = 3\n" {
				t.Fatal(fi, err)
			}
			// An edit by hand is seen, and kept.
			write(t, conf, "a = 1\n\nb = 2\n\nc = 3\n# mine\n")
			if note := b.is("outdated"); note != "changed by hand: app.conf" {
				t.Error(note)
			}
			b.run("restart")
			b.is("up")
			if got := read(t, conf); !strings.Contains(got, "# mine") {
				t.Errorf("the edit is lost: %q", got)
			}
			// The site's change is merged with it.
			b.files("app.conf", "a = 10\n\nb = 2\n\nc = 3\n")
			b.is("outdated")
			b.run("restart")
			if got := read(t, conf); got != "a = 10\n\nb = 2\n\nc = 3\n# mine\n" {
				t.Errorf("%q", got)
			}
			// If the site and an edit change the same line, the action fails with a conflict and writes
			// nothing to the file.
			write(t, conf, "a = 11\n\nb = 2\n\nc = 3\n# mine\n")
			b.files("app.conf", "a = 12\n\nb = 2\n\nc = 3\n")
			err := b.p.Run(t.Context(), b.job(), "restart")
			if err == nil || !strings.Contains(err.Error(), "conflict: "+conf) || read(t, conf) != "a = 11\n\nb = 2\n\nc = 3\n# mine\n" {
				t.Fatal(err, read(t, conf))
			}
			if marked := read(t, conf+mergeSuffix); !strings.Contains(marked, "<<<<<<< by hand") {
				t.Errorf("%q", marked)
			}
			write(t, conf+mergeSuffix, "a = 13\n\nb = 2\n\nc = 3\n# mine\n")
			b.run("restart")
			b.is("up")
			if got := read(t, conf); !strings.HasPrefix(got, "a = 13\n") {
				t.Errorf("%q", got)
			}
			if _, err := os.Stat(conf + mergeSuffix); !os.IsNotExist(err) {
				t.Error("the resolution is still there")
			}
			// A file that was removed by hand is written again, with the edits.
			if err := os.Remove(conf); err != nil {
				t.Fatal(err)
			}
			b.is("outdated")
			b.run("restart")
			if got := read(t, conf); !strings.Contains(got, "# mine") {
				t.Errorf("%q", got)
			}
			// A file that the site no longer has is removed. A file that was there before the site is
			// restored.
			b.files("app.conf", "")
			b.run("restart")
			if _, err := os.Stat(conf); !os.IsNotExist(err) {
				t.Error("a dropped file stays")
			}
			b.run("stop")
			b.is("down")
			var left []string
			if err := filepath.WalkDir(root, func(p string, _ os.DirEntry, err error) error { left = append(left, p); return err }); err != nil {
				t.Fatal(err)
			}
			if want := []string{root, filepath.Join(root, "other.conf")}; !slices.Equal(left, want) || read(t, want[1]) != "of the machine\n" {
				t.Errorf("left are %q", left)
			}
		})
	}
}

// With edits: restore the site's content wins; the repository has the edit.
func TestFileTreeRestores(t *testing.T) {
	root := filepath.Join(t.TempDir(), "etc")
	o := tree(root)
	o.Content["edits"] = "restore"
	b := newBench(t, o, false)
	b.run("start")
	conf := filepath.Join(root, "app.conf")
	write(t, conf, "all wrong\n")
	if err := os.Chmod(filepath.Join(root, "sub/empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	b.is("outdated")
	b.run("restart")
	b.is("up")
	if got := read(t, conf); got != "a = 1\n\nb = 2\n\nc = 3\n" {
		t.Errorf("%q", got)
	}
	cmd := exec.Command("git", "log", "-p", "--all", "--", "live/app.conf")
	cmd.Dir = filepath.Join(b.p.cfg.Dir, "trees", "t", "s", "part%of%it")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "+all wrong") {
		t.Errorf("%v: %s", err, out)
	}
}

// A played Pacemaker: a resource is a file with its state.
const played = `#!/bin/sh
dir=$(dirname "$0")/cluster; mkdir -p "$dir"
tool=$(basename "$0")
if [ $tool = crm_resource ]; then
	[ -e "$dir/$2" ] || exit 6
	case $3 in --query-xml) exit 0;; esac
	if [ "$(cat "$dir/$2")" = Started ]; then echo "resource $2 is running on: n1"; else echo "resource $2 is NOT running"; fi
	exit 0
fi
echo "$tool $*" >>"$dir.log"
case "$tool $1 $2" in
"pcs resource create") echo Stopped >"$dir/$3";;
"pcs resource enable"|"crm resource start") echo Started >"$dir/$3";;
"pcs resource disable"|"crm resource stop") echo Stopped >"$dir/$3";;
"pcs resource delete") rm "$dir/$3";;
"crm configure primitive") echo Stopped >"$dir/$3";;
"crm configure delete") rm "$dir/$3";;
*) echo "no such order" >&2; exit 1;;
esac
`

func TestResource(t *testing.T) {
	for _, tool := range []string{"pcs", "crm"} {
		t.Run(tool, func(t *testing.T) {
			bin := t.TempDir()
			for _, name := range []string{tool, "crm_resource"} {
				if err := os.WriteFile(filepath.Join(bin, name), []byte(played), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
			b := newBench(t, site.Object{Type: "ha-resource", Content: map[string]any{
				"resource": "ip", "agent": "ocf:heartbeat:IPaddr2", "parameters": map[string]any{"ip": "10.0.0.9"},
				"operations": []any{"monitor interval=10s"},
			}}, false)
			b.is("down")
			b.run("start")
			b.is("up")
			b.change("parameters", map[string]any{"ip": "10.0.0.10"})
			b.is("outdated")
			b.run("restart")
			b.is("up")
			if log := read(t, filepath.Join(bin, "cluster.log")); !strings.Contains(log, "ip=10.0.0.10") {
				t.Errorf("%s", log)
			}
			b.run("stop")
			b.is("down")
		})
	}
}
