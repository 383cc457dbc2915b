package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/api/apitest"
)

var update = flag.Bool("update", false, "write the golden files again")

func TestMain(m *testing.M) {
	flag.Parse()
	goleak.VerifyTestMain(m)
}

// session is a mesh and a folder to type commands in; all that is typed and
// answered is kept, to be compared with a golden file.
type session struct {
	t     *testing.T
	mesh  *apitest.Agent
	url   string
	dir   string
	env   map[string]string
	story bytes.Buffer
	// terminal makes the next commands believe that they have one.
	terminal bool
	stdin    string
	ctx      context.Context
}

func newSession(t *testing.T) *session {
	t.Helper()
	s := &session{t: t, mesh: apitest.NewAgent(apitest.NewStore(), "a"), dir: t.TempDir(), ctx: context.Background()}
	h, err := api.New(api.Config{Backend: s.mesh, Patience: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	s.url = srv.URL
	s.env = map[string]string{"COOPR_ADDR": s.url, "COOPR_TOKEN": apitest.Admin, "HOME": s.dir}
	t.Chdir(s.dir)
	return s
}

func (s *session) file(name, text string) {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// as acts with another token from here on.
func (s *session) as(token string) { s.env["COOPR_TOKEN"] = token }

type buffer struct {
	mu   sync.Mutex
	b    bytes.Buffer
	seen func(string)
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, err := b.b.Write(p)
	if b.seen != nil {
		b.seen(b.b.String())
	}
	return n, err
}

// exec runs a command and gives its exit code, output and complaints.
func (s *session) exec(args ...string) (code int, out, errs string) {
	s.t.Helper()
	return s.execSeen(nil, args...)
}

func (s *session) execSeen(seen func(string), args ...string) (code int, out, errs string) {
	var o, e buffer
	o.seen = seen
	a := &app{
		in: strings.NewReader(s.stdin), out: &o, err: &e, env: func(k string) string { return s.env[k] },
		inTerminal: s.terminal, outTerminal: s.terminal, width: func() int { return 100 },
		now:  func() time.Time { return time.UnixMilli(apitest.Epoch).Add(time.Hour) },
		pace: time.Millisecond, patience: 300 * time.Millisecond,
	}
	code = a.run(s.ctx, args)
	return code, o.b.String(), e.b.String()
}

var port = regexp.MustCompile(`127\.0\.0\.1:\d{5}\b`)

// run runs a command, expects its exit code, and keeps the story.
func (s *session) run(want int, args ...string) string {
	s.t.Helper()
	code, out, errs := s.exec(args...)
	line := "coopr"
	for _, a := range args {
		if strings.ContainsAny(a, " {*") {
			a = "'" + a + "'"
		}
		line += " " + a
	}
	fmt.Fprintf(&s.story, "$ %s\n%s", line, out)
	if errs != "" {
		fmt.Fprintf(&s.story, "-- on the error output --\n%s", errs)
	}
	fmt.Fprintf(&s.story, "-- exit %d --\n\n", code)
	if code != want {
		s.t.Errorf("%s: exit %d, not %d\n%s%s", line, code, want, out, errs)
	}
	return out
}

// golden compares the story with its file.
func (s *session) golden(name string) {
	s.t.Helper()
	got := strings.ReplaceAll(s.story.String(), s.url, "http://mesh")
	got = strings.ReplaceAll(got, s.dir, "DIR")
	got = port.ReplaceAllStringFunc(got, func(a string) string {
		if strings.HasPrefix(a, "127.0.0.1:550") {
			return a
		}
		return "127.0.0.1:PORT"
	})
	path := filepath.Join(golden, name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			s.t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		s.t.Fatal(err)
	}
	if got != string(want) {
		s.t.Errorf("%s differs; go test -update writes it again. Now:\n%s", path, got)
	}
}

// golden is the folder of golden files, found before tests go elsewhere.
var golden = func() string {
	dir, err := filepath.Abs("testdata")
	if err != nil {
		panic(err)
	}
	return dir
}()

// work does the tasks of every operation in order, until the test ends; a
// task whose name is in fails is given its message.
func (s *session) work(fails map[string]string) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		var index uint64
		for ctx.Err() == nil {
			v, _ := s.mesh.View(ctx, api.Default, index)
			index = v.Index()
			for _, op := range v.Operations("acme", "") {
				if op.Status != model.OpRunning {
					continue
				}
				failed := false
				for _, t := range s.mesh.Tasks(op.ID) {
					if t.Status.Ended() {
						continue
					}
					name := t.Action.String() + " " + t.Service
					switch message, bad := fails[strings.TrimSpace(name)]; {
					case failed:
						s.mesh.Report(t.ID, model.TaskCancelled, "")
					case bad:
						failed = true
						s.mesh.Report(t.ID, model.TaskFailed, message)
					default:
						s.mesh.Report(t.ID, model.TaskSucceeded, "")
					}
				}
			}
		}
	}()
	s.t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
}

const shopYAML = `name: shop
description: A web shop
defaults:
  services: [nginx, php]
  provider: cloud
links:
  - {label: Shop, url: "http://%cluster%.example/"}
`

func (s *session) files() {
	s.file("defs/clustertemplates/shop.yaml", shopYAML)
	s.file("defs/services/nginx.json", `{"name":"nginx","description":"A web server","provisioner":{"actions":{"install":{"type":"shell","fields":{"script":"i.sh"}},"start":{"type":"shell","fields":{"script":"s.sh"}}}}}`)
	s.file("defs/services/php.json", `{"name":"php","description":"A language"}`)
	s.file("defs/providers/cloud.json", `{"name":"cloud","description":"The cloud","providertype":"cloud","provisioner":{"region":"north","pin":"1234"}}`)
	s.file("defs/README.md", "not a definition")
}

func TestDefinitionsStory(t *testing.T) {
	s := newSession(t)
	s.files()
	s.run(0, "template", "list")
	s.run(0, "import", "defs", "--check")
	s.run(0, "import", "defs")
	s.run(0, "template", "list")
	s.run(0, "service", "list", "-o", "wide")
	s.run(0, "provider", "get", "cloud")
	s.run(0, "template", "get", "shop", "-o", "json")
	s.file("new.yaml", "name: php\ndescription: Another language\n")
	s.run(0, "service", "put", "new.yaml")
	s.stdin = `{"name":"php","label":"PHP"}`
	s.run(0, "service", "put", "-")
	s.run(0, "service", "versions", "php")
	s.run(0, "service", "get", "php", "--version", "1")
	s.run(3, "service", "get", "phq")
	s.run(2, "service", "delete", "php")
	s.run(0, "service", "delete", "php", "--version", "1", "--yes")
	s.run(0, "service", "delete", "php", "-y")
	s.run(3, "service", "delete", "php", "-y")
	s.run(0, "export", "--dir", "out")
	s.run(0, "export")
	s.golden("definitions")

	if got, err := os.ReadFile("out/providers/cloud.yaml"); err != nil || !strings.Contains(string(got), `pin: "1234"`) {
		t.Errorf("%s %v", got, err)
	}
	if info, err := os.Stat("out/providers/cloud.yaml"); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	// What was exported is imported as it is.
	if code, _, errs := s.exec("import", "out"); code != 0 {
		t.Errorf("%s", errs)
	}
}

func TestFaultsStory(t *testing.T) {
	s := newSession(t)
	s.file("bad/services/one.json", "{\"name\": \"a b\",\n \"descripton\": \"x\"}")
	s.file("bad/services/two.yaml", "name: two\nprovisioner: [")
	s.file("bad/clustertemplates/shop.yaml", "name: shop\ndefaults:\n  services: nginx\n")
	s.run(1, "import", "bad")
	s.run(1, "import", "nowhere")
	s.file("empty/x.txt", "")
	s.run(1, "import", "empty")
	s.run(2, "import")
	s.run(1, "service", "put", "bad/services/one.json")
	s.run(1, "cluster", "create", "a b", "--template", "shop", "--nodes", "10001")
	s.run(3, "cluster", "create", "x", "--template", "shop", "--nodes", "1")
	s.run(2, "cluster", "create", "x", "--nodes", "1")
	s.run(2, "cluster", "create", "--template", "shop")
	s.run(2, "cluster", "create", "x", "-t", "shop", "-n", "many")
	s.run(2, "cluster", "create", "x", "-t", "shop", "-n", "1", "--set", "novalue")
	s.run(2, "cluster", "lst")
	s.run(2, "clutser")
	s.run(2, "cluster", "list", "-o", "xml")
	s.run(2, "cluster", "get", "a", "b")
	s.run(3, "operation", "watch", "nothing")
	s.as("guess")
	s.run(1, "cluster", "list")
	s.as(apitest.Guest)
	s.run(1, "service", "delete", "x", "--yes")
	s.env["COOPR_TENANT"] = "main"
	s.run(1, "cluster", "list")
	delete(s.env, "COOPR_TENANT")
	s.run(5, "--addr", "127.0.0.1:1", "cluster", "list")
	s.run(1, "--addr", "no address", "cluster", "list")
	s.golden("faults")
}

func TestClusterStory(t *testing.T) {
	s := newSession(t)
	s.files()
	s.exec("import", "defs")
	s.as(apitest.User)
	s.run(0, "cluster", "list")
	s.run(0, "cluster", "create", "web", "-t", "shop", "-n", "2", "--dry-run", "--set", "nginx.workers=8", "--set", "a.b=[x, y]")
	s.run(0, "cluster", "create", "web", "-t", "shop", "-n", "2", "--detach", "--description", "The shop")
	s.run(0, "cluster", "list")
	s.run(4, "cluster", "restart", "web")
	s.run(0, "operation", "pause", "00000001-001", "--reason", "lunch")
	s.run(0, "operation", "get", "00000001-001")
	s.run(0, "operation", "resume", "00000001-001")
	s.work(nil)
	s.run(0, "operation", "watch", "00000001-001")
	s.run(0, "cluster", "get", "web")
	s.run(0, "cluster", "list", "-o", "wide")
	s.run(0, "cluster", "restart", "web", "nginx")
	s.run(0, "cluster", "configure", "web", "--set", "nginx.workers=9")
	s.run(0, "cluster", "watch", "web")
	s.run(3, "cluster", "stop", "web", "nginks")
	s.run(0, "node", "list", "--cluster", "web", "-o", "wide")
	s.run(0, "node", "get", "00000001-1000")
	s.run(0, "task", "list", "00000001-001", "--limit", "3")
	s.mesh.Log("00000001-001/0", "made a machine\n")
	s.run(0, "task", "get", "00000001-001/0")
	s.run(0, "task", "log", "00000001-001/0")
	s.run(0, "operation", "list")
	s.run(0, "events", "--index", "14", "--limit", "3")
	s.run(2, "cluster", "delete", "web")
	s.run(0, "cluster", "delete", "web", "--yes")
	s.run(0, "cluster", "list", "--status", "active")
	s.run(1, "cluster", "list", "--status", "actve")
	s.golden("cluster")
}

func TestFailureStory(t *testing.T) {
	s := newSession(t)
	s.files()
	s.exec("import", "defs")
	s.as(apitest.User)
	s.work(map[string]string{"INSTALL php": "exit status 1: no such package"})
	s.run(1, "cluster", "create", "web", "-t", "shop", "-n", "1", "--yes")
	s.mesh.Log("00000001-001/2", "E: no such package\n")
	s.run(0, "operation", "log", "00000001-001", "--status", "failed")
	s.run(0, "task", "list", "00000001-001", "--status", "failed", "-o", "wide")
	s.run(1, "cluster", "watch", "web")
	s.golden("failure")
}

func TestStructuredOutputIsAlone(t *testing.T) {
	s := newSession(t)
	s.files()
	s.exec("import", "defs")
	s.as(apitest.User)
	s.work(nil)
	code, out, errs := s.exec("cluster", "create", "web", "-t", "shop", "-n", "1", "-o", "json")
	var got struct {
		Operation api.OperationDetails
		Cluster   api.ClusterDetails
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 || got.Cluster.Status != model.ClusterActive || got.Operation.Status != model.OpSucceeded {
		t.Errorf("%d %v\n%s\n%s", code, err, out, errs)
	}
	if !strings.Contains(errs, "CREATE") {
		t.Errorf("no progress: %s", errs)
	}
}

func TestMeshStory(t *testing.T) {
	s := newSession(t)
	s.as(apitest.Super)
	s.run(0, "members", "-o", "wide")
	s.run(0, "status")
	s.run(0, "plugin", "list")
	s.run(0, "join", "10.0.0.1", "10.0.0.2:55056")
	s.run(2, "leave")
	s.run(0, "leave", "b", "--yes")
	s.run(0, "operator", "raft", "peers")
	s.run(4, "operator", "raft", "transfer")
	s.run(0, "operator", "raft", "remove", "id-x", "--yes")
	s.run(0, "operator", "snapshot", "save", "state.snap")
	s.run(0, "tenant", "put", "new", "--max-nodes", "10")
	s.run(0, "tenant", "list")
	s.run(0, "operator", "snapshot", "restore", "state.snap", "--yes")
	s.run(3, "tenant", "get", "new")
	s.run(0, "tenant", "put", "new", "--max-nodes", "10")
	s.run(0, "tenant", "put", "new", "--max-clusters", "3")
	s.run(0, "tenant", "get", "new")
	s.run(0, "--tenant", "new", "token", "create", "zoe", "--role", "admin")
	s.run(0, "--tenant", "new", "token", "list")
	s.run(0, "--tenant", "new", "token", "revoke", "t6", "--yes")
	s.run(0, "tenant", "delete", "new", "--yes")
	s.run(1, "operator", "snapshot", "restore", "nothing.snap", "--yes")
	s.golden("mesh")
}

func TestTheDevAgentsFileIsFound(t *testing.T) {
	s := newSession(t)
	delete(s.env, "COOPR_ADDR")
	delete(s.env, "COOPR_TOKEN")
	s.file(".config/coopr/dev.json", fmt.Sprintf(`{"addr":%q,"token":%q}`, s.url, apitest.Guest))
	if code, out, errs := s.exec("status"); code != 0 {
		t.Errorf("%s%s", out, errs)
	}
	// Its token goes to nobody else.
	other := newSession(t)
	s.env["COOPR_ADDR"] = other.url
	if code, _, _ := s.exec("status"); code == 0 {
		t.Error("the dev token was sent elsewhere")
	}
	delete(s.env, "COOPR_ADDR")
	s.env["XDG_CONFIG_HOME"] = s.dir + "/xdg"
	s.file("xdg/coopr/dev.json", "{")
	if code, _, errs := s.exec("status"); code != 1 || !strings.Contains(errs, "dev.json") {
		t.Errorf("%d %s", code, errs)
	}
}

func TestCtrlCLeavesTheOperation(t *testing.T) {
	s := newSession(t)
	s.files()
	s.exec("import", "defs")
	s.as(apitest.User)
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	s.ctx = ctx
	code, out, errs := s.execSeen(func(all string) {
		if strings.Contains(all, "running") {
			cancel(errInterrupted)
		}
	}, "cluster", "create", "web", "-t", "shop", "-n", "1", "--yes")
	if code != exitInterrupted || !strings.Contains(errs, "coopr operation watch 00000001-001") {
		t.Errorf("%d\n%s\n%s", code, out, errs)
	}
	s.ctx = context.Background()
	v, _ := s.mesh.View(s.ctx, api.Default, 0)
	if op, ok := v.Operation("acme", "00000001-001"); !ok || op.Status != model.OpRunning {
		t.Error("the operation does not go on")
	}
}

func TestOnATerminal(t *testing.T) {
	s := newSession(t)
	s.files()
	s.exec("import", "defs")
	s.as(apitest.User)
	s.terminal = true
	s.stdin = "n\n"
	code, out, _ := s.exec("cluster", "create", "web", "-t", "shop", "-n", "1")
	if code != 1 || !strings.Contains(out, "Create cluster web? [y/N]") || len(s.mesh.Tasks("00000001-001")) != 0 {
		t.Errorf("%d %s", code, out)
	}
	s.stdin = "y\n"
	begin := sync.OnceFunc(func() { s.work(nil) })
	code, out, errs := s.execSeen(func(all string) {
		if strings.Contains(all, "░") {
			begin() // once the bars are drawn for the first time
		}
	}, "cluster", "create", "web", "-t", "shop", "-n", "1")
	if code != 0 || !strings.Contains(out, "█") || !strings.Contains(out, "\x1b[") || !strings.Contains(out, "A\x1b[J") {
		t.Errorf("%d %q %s", code, out, errs)
	}
	s.env["NO_COLOR"] = "1"
	if _, out, _ := s.exec("cluster", "list"); strings.Contains(out, "\x1b[") {
		t.Errorf("colour against NO_COLOR: %q", out)
	}
	delete(s.env, "NO_COLOR")
	if _, out, _ := s.exec("cluster", "list"); !strings.Contains(out, "\x1b[32mactive") {
		t.Errorf("no colour: %q", out)
	}
	s.terminal = false
	if _, out, _ := s.exec("cluster", "list"); strings.Contains(out, "\x1b[") {
		t.Errorf("colour without a terminal: %q", out)
	}
}

func TestWatchingAList(t *testing.T) {
	s := newSession(t)
	s.files()
	s.exec("import", "defs")
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	s.ctx = ctx
	once := sync.OnceFunc(func() {
		go func() {
			_, err := s.mesh.PutTenant(context.Background(), model.Caller{Tenant: "acme"}, model.Tenant{Name: "acme", Description: "changed"}, false)
			if err != nil {
				cancel(err)
			}
		}()
	})
	code, out, errs := s.execSeen(func(all string) {
		once()
		if strings.Contains(all, "changed") {
			cancel(errInterrupted)
		}
	}, "tenant", "list", "--watch")
	if code != 0 || strings.Count(out, "NAME") != 2 {
		t.Errorf("%d %s %s", code, out, errs)
	}
}

func TestCompletionHasLiveNames(t *testing.T) {
	s := newSession(t)
	s.files()
	s.exec("import", "defs")
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"__complete", "template", "get", ""}, "shop\tA web shop"},
		{[]string{"__complete", "cluster", "create", "x", "--template", "sh"}, "shop\tA web shop"},
		{[]string{"__complete", "tenant", "get", "ac"}, "acme"},
		{[]string{"__complete", "token", "create", "x", "--role", ""}, "admin"},
		{[]string{"__complete", "cluster", "list", "-o", ""}, "json"},
		{[]string{"completion", "bash"}, "bash completion"},
		{[]string{"completion", "fish"}, "fish completion"},
		{[]string{"completion", "zsh"}, "#compdef coopr"},
	} {
		if code, out, errs := s.exec(tt.args...); code != 0 || !strings.Contains(out, tt.want) {
			t.Errorf("%v: %d\n%s\n%s", tt.args, code, clip(out, 400), errs)
		}
	}
	s.env["COOPR_ADDR"] = "127.0.0.1:1"
	if code, out, _ := s.exec("__complete", "template", "get", ""); code != 0 || strings.Contains(out, "shop") {
		t.Errorf("%d %s", code, out)
	}
}

// TestEveryCommandHelps looks at each command's help: it has an example, and
// the example is one that the command line takes.
func TestEveryCommandHelps(t *testing.T) {
	s := newSession(t)
	var walk func(path []string)
	n := 0
	walk = func(path []string) {
		a := &app{env: func(string) string { return "" }, now: time.Now, out: &bytes.Buffer{}, err: &bytes.Buffer{}}
		cmd, _, err := a.root().Find(path)
		if err != nil {
			t.Fatal(err)
		}
		n++
		if cmd.Name() == "completion" || cmd.Name() == "help" {
			return
		}
		if !cmd.HasSubCommands() && cmd.Example == "" {
			t.Errorf("%s has no example", cmd.CommandPath())
		}
		if code, out, _ := s.exec(append(path, "--help")...); code != 0 || out == "" {
			t.Errorf("%s --help: %d", cmd.CommandPath(), code)
		}
		for _, line := range strings.Split(cmd.Example, "\n") {
			checkExample(t, line)
		}
		for _, sub := range cmd.Commands() {
			walk(append(append([]string{}, path...), sub.Name()))
		}
	}
	walk(nil)
	if n < 60 {
		t.Errorf("only %d commands", n)
	}
}

// checkExample parses one line of an example, without running it.
func checkExample(t *testing.T, line string) {
	t.Helper()
	for _, part := range strings.Split(line, "|") {
		part, _, _ = strings.Cut(part, ">")
		words := splitWords(strings.TrimSpace(part))
		if len(words) == 0 || words[0] != "coopr" {
			continue
		}
		a := &app{env: func(string) string { return "" }, now: time.Now, out: &bytes.Buffer{}, err: &bytes.Buffer{}}
		root := a.root()
		root.SetArgs(words[1:])
		cmd, rest, err := root.Find(words[1:])
		if err != nil || cmd.HasSubCommands() {
			t.Errorf("example %q: no such command: %v", line, err)
			continue
		}
		if err := cmd.ParseFlags(rest); err != nil {
			t.Errorf("example %q: %v", line, err)
			continue
		}
		if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
			t.Errorf("example %q: %v", line, err)
		}
	}
}

// splitWords splits a line as a shell would, as far as examples go.
func splitWords(line string) []string {
	var words []string
	var word strings.Builder
	quote := rune(0)
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '"' || r == '\''):
			quote = r
		case quote == 0 && r == ' ':
			if word.Len() > 0 {
				words = append(words, word.String())
				word.Reset()
			}
		default:
			word.WriteRune(r)
		}
	}
	if word.Len() > 0 {
		words = append(words, word.String())
	}
	return words
}
