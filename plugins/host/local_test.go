package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/provider/local/machine"
	"github.com/coopr/coopr/rpc/proto"
)

// lab is a host with the plugins local and shell, and a folder for nodes.
type lab struct {
	*Host
	t       testing.TB
	root    string
	scripts string
}

func newLab(t testing.TB, change func(*Config)) *lab {
	l := &lab{t: t, root: filepath.Join(t.TempDir(), "nodes"), scripts: t.TempDir()}
	l.Host = newHost(t, func(c *Config) {
		c.Dirs = []string{built.bin}
		// as in the agent's configuration
		c.Plugins = []Binary{{
			Path:     filepath.Join(built.bin, "coopr-automator-shell"),
			Settings: json.RawMessage(fmt.Sprintf(`{"scripts":[%q]}`, l.scripts)),
		}}
		c.Local = []string{l.root}
		c.Env = []string{"COOPR_LOCAL_ROOT=" + l.root, "PATH=" + os.Getenv("PATH")}
		if change != nil {
			change(c)
		}
	})
	return l
}

// node is the leader's knowledge of a node.
type node struct {
	lab     *lab
	cluster string
	number  int
	fence   uint64
	results map[string]any
	addrs   map[string]string
	host    string
}

func (l *lab) node(cluster string, number int) *node {
	return &node{lab: l, cluster: cluster, number: number, results: map[string]any{}, host: fmt.Sprintf("%s-%d.local", cluster, number)}
}

func (n *node) id() string  { return fmt.Sprintf("node-%s-%d", n.cluster, n.number) }
func (n *node) dir() string { s, _ := n.results["providerid"].(string); return s }

// task returns a task as the leader builds it.
func (n *node) task(action string, service string, fields map[string]any) *proto.Task {
	n.fence++
	in := model.TaskInput{TaskID: n.id() + "/" + action + "/" + service, Job: "op1", Cluster: n.cluster, TaskName: action, NodeID: n.id(),
		Config: model.TaskConfig{
			Cluster:     map[string]any{"web": map[string]any{"port": 8080, "name": "shop", "fs.default": "hdfs://x"}},
			ClusterName: "test cluster", Hostname: n.host, IPAddresses: n.addrs, NodeNum: model.Int(n.number), Results: n.results,
			Provider: model.TaskProvider{Name: "here", ProviderType: "local", Provisioner: map[string]any{"api_password": "s3cret"}},
		}}
	t := &proto.Task{
		Id: in.TaskID, Fence: n.fence, Attempt: 1, Tenant: "t1", Cluster: n.cluster, Operation: "op1", Node: n.id(),
		Action: action, Service: service, Plugin: "local", TimeoutMs: 60_000,
	}
	if service != "" || action == "BOOTSTRAP" {
		t.Automator, t.Plugin = true, "shell"
	}
	if service != "" {
		in.Config.Service = &model.TaskService{Name: service, Action: model.TaskAction{Type: "shell", Fields: fields}}
	}
	var err error
	if t.Input, err = json.Marshal(in); err != nil {
		n.lab.t.Fatal(err)
	}
	return t
}

// do carries out a task and keeps its results, as the leader does.
func (n *node) do(t *proto.Task, sink Sink) *proto.Result {
	n.lab.t.Helper()
	r := n.lab.Execute(n.lab.t.Context(), t, sink)
	for r.Outcome == proto.Outcome_OUTCOME_NOTHING_DONE && strings.Contains(r.Message, "signal: killed") {
		// The test has just killed the plugin, so the task is repeated, as the leader does.
		r = n.lab.Execute(n.lab.t.Context(), t, sink)
	}
	if len(r.Output) > 0 {
		var out model.TaskOutput
		if err := json.Unmarshal(r.Output, &out); err != nil {
			n.lab.t.Errorf("output %s: %v", r.Output, err)
		}
		maps.Copy(n.results, out.Result)
		if out.IPAddresses != nil {
			n.addrs = out.IPAddresses
		}
	}
	return r
}

// must is do for a task that has to succeed.
func (n *node) must(t *proto.Task) []string {
	n.lab.t.Helper()
	var rec recorder
	if r := n.do(t, &rec); r.Outcome != proto.Outcome_OUTCOME_SUCCEEDED {
		n.lab.t.Fatalf("%s: %v\n%s", t.Id, r, strings.Join(rec.lines, "\n"))
	}
	return rec.lines
}

func (n *node) up() {
	n.lab.t.Helper()
	n.must(n.task("CREATE", "", nil))
	n.must(n.task("CONFIRM", "", nil))
	n.must(n.task("BOOTSTRAP", "", nil))
}

func (n *node) down() {
	n.lab.t.Helper()
	n.must(n.task("DELETE", "", nil))
}

// sh runs an inline script on the node.
func (n *node) sh(script string) []string {
	n.lab.t.Helper()
	return n.must(n.task("INSTALL", "s", map[string]any{"script": "#!/bin/sh -e\n" + script}))
}

func TestLocalNodeLife(t *testing.T) {
	l := newLab(t, nil)
	n := l.node("00000001", 1000)
	n.up()
	if n.dir() != filepath.Join(l.root, "00000001", "1000") || !strings.HasPrefix(n.addrs["bind_v4"], "127.") ||
		n.addrs["access_v4"] != n.addrs["bind_v4"] {
		t.Fatalf("created: %v %v", n.results, n.addrs)
	}

	// The environment of a script.
	lines := n.sh(`
		echo "$COOPR_CLUSTER $COOPR_CLUSTER_NAME $COOPR_NODE $COOPR_NODE_NUM $COOPR_HOSTNAME $COOPR_IP $COOPR_SERVICE $COOPR_ACTION"
		pwd
		coopr-node config web.port
		coopr-node config web
		coopr-node config web.fs.default
		coopr-node config nothing here
		stat -L -c %a "$COOPR_CONFIG"
		echo oops >&2
		env; cat "$COOPR_CONFIG"`)
	want := []string{
		"00000001 test cluster node-00000001-1000 1000 00000001-1000.local " + n.addrs["bind_v4"] + " s INSTALL", n.dir(),
		"8080", `{"fs.default":"hdfs://x","name":"shop","port":8080}`, "hdfs://x", "here", "600",
	}
	for _, w := range append(want, "oops") {
		found := false
		for _, l := range lines {
			found = found || l == w
		}
		if !found {
			t.Errorf("the script did not print %q:\n%s", w, strings.Join(lines, "\n"))
		}
	}
	if all := strings.Join(lines, "\n"); strings.Contains(all, "s3cret") || strings.Contains(all, "COOPR_PLUGIN") ||
		strings.Contains(all, "PLUGIN_CLIENT_CERT") {
		t.Errorf("a script can see what it must not:\n%s", all)
	}

	// Processes that outlive the plugins.
	n.sh(`coopr-node start web --env GREETING=hello -- sh -c 'echo $GREETING; sleep 1000 & sleep 1000'`)
	pid := pidOf(t, n, "web")
	var pids []int
	eventually(t, "the process and its children", func() bool { pids = machine.Processes(n.dir()); return len(pids) >= 4 })
	killPlugins(t, l.Host)
	if again := pidOf(t, n, "web"); again != pid {
		t.Errorf("web was process %d and is %d", pid, again)
	}
	eventually(t, "the log", func() bool { return strings.Join(n.sh(`coopr-node logs web`), "") == "hello" })

	// A killed process is restarted.
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a restart", func() bool { p := pidOf(t, n, "web"); return p != 0 && p != pid })

	n.sh(`coopr-node stop web; ! coopr-node status web`)
	n.sh(`coopr-node start web -- sleep 1000`)
	n.down()
	if left := machine.Processes(n.dir()); len(left) != 0 {
		t.Errorf("processes %v are left", left)
	}
	nothingLeft(t, l.root)
	n.down() // a repetition has no effect
}

// pidOf returns the pid of a node's named process, or 0.
func pidOf(t testing.TB, n *node, name string) int {
	t.Helper()
	list, err := machine.List(t.Context(), n.dir())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		if s.Name == name {
			return s.PID
		}
	}
	return 0
}

// killPlugins kills all plugin processes of a host and waits until the host gives them no more tasks.
func killPlugins(t testing.TB, h *Host) {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(h.left.dir, "*.json"))
	var killed []int
	for _, f := range files {
		pid, err := strconv.Atoi(strings.TrimSuffix(filepath.Base(f), ".json"))
		if err != nil {
			t.Fatal(err)
		}
		_ = syscall.Kill(pid, syscall.SIGKILL)
		killed = append(killed, pid)
	}
	h.mu.Lock()
	plugs := slices.Collect(maps.Values(h.plugs))
	h.mu.Unlock()
	eventually(t, "the host to notice", func() bool {
		for _, f := range files {
			if _, err := os.Stat(f); err == nil {
				return false
			}
		}
		// The record of a process goes before the host gives up its stream.
		return !slices.ContainsFunc(plugs, func(p *plug) bool { return p.sup != nil && p.sup.has(killed) })
	})
}

// has reports whether the current process is one of these, and still gets tasks.
func (s *supervisor) has(pids []int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cur != nil && slices.Contains(pids, s.cur.run.cmd.Process.Pid) && s.cur.alive()
}

// nothingLeft checks that a root holds no node, no address and no remains.
func nothingLeft(t testing.TB, root string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if rel, _ := filepath.Rel(root, path); rel != "." && rel != ".addresses" && rel != ".work" {
			t.Errorf("%s is left", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestThirtyNodes creates thirty nodes with processes concurrently, each with an address of its
// own, and removes them without leaving anything.
func TestThirtyNodes(t *testing.T) {
	l := newLab(t, nil)
	nodes := make([]*node, 30)
	var wg sync.WaitGroup
	for i := range nodes {
		nodes[i] = l.node(fmt.Sprintf("%08d", i/10), 1000+i%10)
		wg.Go(func() {
			nodes[i].up()
			nodes[i].sh(`coopr-node start a -- sh -c 'sleep 1000 & setsid sleep 1000 & env -i sleep 1000 & wait'
				coopr-node start b -- sh -c 'trap "" TERM; sleep 1000 & wait; sleep 1000'
				sleep 1000 >/dev/null 2>&1 &`)
		})
	}
	wg.Wait()
	seen := map[string]bool{}
	for _, n := range nodes {
		if a := n.addrs["bind_v4"]; a == "" || seen[a] {
			t.Errorf("address %q", a)
		} else {
			seen[a] = true
		}
		eventually(t, "all processes of the node", func() bool { return len(machine.Processes(n.dir())) >= 8 })
	}
	var listed int
	err := l.List(t.Context(), "local", &proto.ListRequest{Cluster: "00000001"}, func(r *proto.Resource) error {
		listed++
		if r.Cluster != "00000001" || r.Fence != 1 || !strings.HasPrefix(r.Id, l.root) || len(r.Output) == 0 {
			t.Errorf("listed %v", r)
		}
		return nil
	})
	if err != nil || listed != 10 {
		t.Errorf("listed %d: %v", listed, err)
	}
	for _, n := range nodes {
		wg.Go(n.down)
	}
	wg.Wait()
	for _, n := range nodes {
		if left := machine.Processes(n.dir()); len(left) != 0 {
			t.Errorf("%s: processes %v are left", n.dir(), left)
		}
	}
	nothingLeft(t, l.root)
}

func TestCreateObserveAdopt(t *testing.T) {
	l := newLab(t, nil)
	n := l.node("00000001", 1000)
	x := n.task("CREATE", "", nil)
	x.Observe = true
	if r := n.do(x, nil); r.Outcome != proto.Outcome_OUTCOME_SUCCEEDED || r.Adopted {
		t.Errorf("nothing to find: %v", r)
	}
	x = n.task("CREATE", "", nil)
	x.Observe = true
	before := n.addrs["bind_v4"]
	if r := n.do(x, nil); r.Outcome != proto.Outcome_OUTCOME_SUCCEEDED || !r.Adopted || n.addrs["bind_v4"] != before {
		t.Errorf("found: %v", r)
	}
	// Another node in its place is neither adopted nor deleted.
	other := n.task("CREATE", "", nil)
	other.Node = "somebody-else"
	if r := n.do(other, nil); r.Outcome != proto.Outcome_OUTCOME_NOTHING_DONE {
		t.Errorf("another's folder: %v", r)
	}
	other = n.task("DELETE", "", nil)
	other.Node = "somebody-else"
	if r := n.do(other, nil); r.Outcome != proto.Outcome_OUTCOME_SUCCEEDED {
		t.Errorf("delete: %v", r)
	}
	if _, err := os.Stat(n.dir()); err != nil {
		t.Errorf("another's delete removed the node: %v", err)
	}
	n.down()
	nothingLeft(t, l.root)
}

// TestDeleteStaysInside checks that no link and no name lets a delete leave the root.
func TestDeleteStaysInside(t *testing.T) {
	l := newLab(t, nil)
	outside := t.TempDir()
	precious := filepath.Join(outside, "1000", "precious")
	if err := errors.Join(os.Mkdir(filepath.Dir(precious), 0o755), os.WriteFile(precious, nil, 0o600),
		os.WriteFile(filepath.Join(outside, "1000", "node.json"), []byte(`{"node":"node-evil-1000"}`), 0o600),
		os.MkdirAll(l.root, 0o755), os.Symlink(outside, filepath.Join(l.root, "evil"))); err != nil {
		t.Fatal(err)
	}
	if r := l.node("evil", 1000).do(l.node("evil", 1000).task("DELETE", "", nil), nil); r.Outcome == proto.Outcome_OUTCOME_SUCCEEDED {
		t.Errorf("a link for a cluster: %v", r)
	}
	for _, cluster := range []string{"..", "../" + filepath.Base(outside), "/", "a/b", ""} {
		n := l.node(cluster, 1000)
		if r := n.do(n.task("DELETE", "", nil), nil); r.Outcome == proto.Outcome_OUTCOME_SUCCEEDED {
			t.Errorf("cluster %q: %v", cluster, r)
		}
	}
	// A link inside a node is removed, its target is not.
	n := l.node("00000001", 1000)
	n.up()
	if err := os.Symlink(outside, filepath.Join(n.dir(), "link")); err != nil {
		t.Fatal(err)
	}
	n.down()
	if _, err := os.Stat(precious); err != nil {
		t.Error(err)
	}
}

func TestShellOutcomes(t *testing.T) {
	l := newLab(t, nil)
	n := l.node("00000001", 1000)
	n.up()
	defer n.down()
	for name, content := range map[string]string{"plain.sh": "echo plain $1", "exec.sh": "#!/bin/sh\necho \"exec <$1> <$2> $COLOR\"\n"} {
		mode := fs.FileMode(0o644)
		if name == "exec.sh" {
			mode = 0o755
		}
		if err := os.WriteFile(filepath.Join(l.scripts, name), []byte(content), mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		fields map[string]any
		want   proto.Outcome
		says   string // in the message or the log
	}{
		{map[string]any{"script": "plain.sh", "args": "x"}, proto.Outcome_OUTCOME_SUCCEEDED, "plain x"},
		{map[string]any{"script": "exec.sh", "args": `'a b' "c\"d"`, "env": map[string]any{"COLOR": "red"}}, proto.Outcome_OUTCOME_SUCCEEDED,
			`exec <a b> <c"d> red`},
		{map[string]any{"script": "exec.sh", "args": []any{"$HOME `x`", 3}}, proto.Outcome_OUTCOME_SUCCEEDED, "exec <$HOME `x`> <3> "},
		{map[string]any{"script": "echo $0 $1\n", "args": "y"}, proto.Outcome_OUTCOME_SUCCEEDED, "script y"},
		{map[string]any{"script": "#!/usr/bin/env -S cat\nnot a shell"}, proto.Outcome_OUTCOME_SUCCEEDED, "not a shell"},
		{map[string]any{"script": "#!/bin/sh\n# " + strings.Repeat("x", 200_000) + "\necho long $1", "args": "z"},
			proto.Outcome_OUTCOME_SUCCEEDED, "long z"},
		{map[string]any{"script": "#!/bin/sh\necho why >&2; exit 3"}, proto.Outcome_OUTCOME_RETRYABLE, "exit status 3"},
		{map[string]any{"script": "#!/bin/sh\nexit 100"}, proto.Outcome_OUTCOME_FATAL, "100"},
		{map[string]any{"script": "#!/bin/sh\nexit 101"}, proto.Outcome_OUTCOME_NOTHING_DONE, "101"},
		{map[string]any{"script": "#!/bin/sh\nkill -9 $$"}, proto.Outcome_OUTCOME_RETRYABLE, "signal"},
		{map[string]any{"script": "missing.sh"}, proto.Outcome_OUTCOME_NOTHING_DONE, "missing.sh"},
		{map[string]any{"script": "../escape.sh"}, proto.Outcome_OUTCOME_FATAL, "not a path within"},
		{map[string]any{}, proto.Outcome_OUTCOME_FATAL, "script"},
		{map[string]any{"script": "#!/nonexistent\n"}, proto.Outcome_OUTCOME_NOTHING_DONE, "nonexistent"},
		{map[string]any{"script": "#!/bin/sh\necho 'COOPR_RESULT {nonsense'"}, proto.Outcome_OUTCOME_RETRYABLE, "last line"},
	} {
		var rec recorder
		r := n.do(n.task("INSTALL", "s", c.fields), &rec)
		all := r.Message + "\n" + strings.Join(rec.lines, "\n")
		// The outermost mark counts.
		if r.Outcome != c.want && !(c.want == proto.Outcome_OUTCOME_FATAL && r.Outcome == proto.Outcome_OUTCOME_NOTHING_DONE) ||
			!strings.Contains(all, c.says) {
			t.Errorf("%.80v: %v\n%.300s", c.fields, r.Outcome, all)
		}
	}
	r := n.do(n.task("INSTALL", "s", map[string]any{"script": "#!/bin/sh\necho 'COOPR_RESULT " +
		"{\"hostname\":\"new\",\"result\":{\"port\":1}}'"}), nil)
	if string(r.Output) != `{"hostname":"new","result":{"port":1}}` {
		t.Errorf("output %s", r.Output)
	}
}

// TestShellRepeat checks that a task whose end was lost is not done twice.
func TestShellRepeat(t *testing.T) {
	l := newLab(t, nil)
	n := l.node("00000001", 1000)
	n.up()
	defer n.down()
	x := n.task("INSTALL", "s", map[string]any{"script": "#!/bin/sh\necho again >> count; echo 'COOPR_RESULT {\"result\":{\"k\":\"v\"}}'"})
	first := n.do(x, nil)
	x.Observe, x.Attempt, x.Fence = true, 2, x.Fence+1
	second := n.do(x, nil)
	if !second.Adopted || second.Outcome != proto.Outcome_OUTCOME_SUCCEEDED || string(second.Output) != string(first.Output) {
		t.Errorf("second: %v", second)
	}
	x.Id += "other"
	if r := n.do(x, nil); r.Adopted || r.Outcome != proto.Outcome_OUTCOME_SUCCEEDED {
		t.Errorf("another task: %v", r)
	}
	if b, _ := os.ReadFile(filepath.Join(n.dir(), "count")); string(b) != "again\nagain\n" {
		t.Errorf("ran: %q", b)
	}
	check := n.task("CHECK", "s", map[string]any{"script": "#!/bin/sh\ngrep -q again count"})
	if r := n.do(check, nil); r.Outcome != proto.Outcome_OUTCOME_SUCCEEDED {
		t.Errorf("check: %v", r)
	}
}

// TestShellStops checks that cancellation, a timeout and the plugin's death each end the whole
// process group of a script.
func TestShellStops(t *testing.T) {
	l := newLab(t, nil)
	n := l.node("00000001", 1000)
	n.up()
	defer n.down()
	script := map[string]any{"script": "#!/bin/sh\nsleep 1000 & (sleep 1000; sleep 1000) & echo started; wait"}
	gone := func() {
		t.Helper()
		eventually(t, "no process of the script", func() bool { return len(machine.Processes(n.dir())) == 0 })
	}
	started := func(f func()) *recorder { return &recorder{each: func(string) { go f() }} }

	ctx, cancel := context.WithCancel(t.Context())
	if r := l.Execute(ctx, n.task("INSTALL", "s", script), started(cancel)); r.Outcome != proto.Outcome_OUTCOME_CANCELLED {
		t.Errorf("cancelled: %v", r)
	}
	gone()
	x := n.task("INSTALL", "s", script)
	x.TimeoutMs = 300
	if r := n.do(x, nil); r.Outcome != proto.Outcome_OUTCOME_RETRYABLE || !strings.Contains(r.Message, "timed out") {
		t.Errorf("timed out: %v", r)
	}
	gone()
	if r := n.do(n.task("INSTALL", "s", script), started(func() { killPlugins(t, l.Host) })); r.Outcome != proto.Outcome_OUTCOME_UNKNOWN {
		t.Errorf("plugin killed: %v", r)
	}
	gone()
}
