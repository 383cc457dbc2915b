package main

import (
	"bytes"
	"context"
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
	"github.com/coopr/coopr/rpc/server"
	"github.com/coopr/coopr/rpc/server/apitest"
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
	h, err := server.New(server.Config{Backend: s.mesh, Patience: 20 * time.Millisecond, Now: s.now})
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

// now is an hour after the mesh began.
func (*session) now() time.Time { return time.UnixMilli(apitest.Epoch).Add(time.Hour) }

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
	o.seen, e.seen = seen, seen
	a := &app{
		in: strings.NewReader(s.stdin), out: &o, err: &e, env: func(k string) string { return s.env[k] },
		inTerminal: s.terminal, outTerminal: s.terminal, width: func() int { return 100 },
		now:  s.now,
		pace: time.Millisecond, patience: 300 * time.Millisecond,
	}
	code = a.run(s.ctx, args)
	return code, o.b.String(), e.b.String()
}

var port = regexp.MustCompile(`127\.0\.0\.1:\d{5}\b`)

// passing is a line that is there only if an operation was looked at before it had ended.
var passing = regexp.MustCompile(`(?m)^[a-z]+ \d{8}-\d{3}: running, \d+ tasks?\n`)

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
	got = passing.ReplaceAllString(got, "")
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
