// Package clitest runs the coopr command line in tests, against a mesh in memory.
package clitest

import (
	"bytes"
	"cmp"
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

	"github.com/coopr/coopr/cmd/coopr/internal/root"
)

var update = flag.Bool("update", false, "write the golden files again")

// Main runs the tests of a package and looks for goroutines that they left.
func Main(m *testing.M) {
	flag.Parse()
	goleak.VerifyTestMain(m)
}

// Session is a mesh and a folder in which commands are run. It records the commands and their output, to
// be compared with a golden file.
type Session struct {
	T *testing.T
	// Mesh is the agent that answers, and URL its address.
	Mesh *apitest.Agent
	URL  string
	// Dir is the folder, which is also the working directory and the home of the user.
	Dir string
	// Env is the environment of the commands.
	Env map[string]string
	// Story is what was recorded.
	Story bytes.Buffer
	// Terminal makes the next commands run as on a terminal.
	Terminal bool
	// Stdin is the input of the next commands.
	Stdin string
	// Ctx is the context of the next commands.
	Ctx context.Context
	// Patience is how long the next commands repeat a request. 0 means 300 ms.
	Patience time.Duration
}

// New returns a session with an empty mesh, as an administrator of the tenant acme.
func New(t *testing.T) *Session {
	t.Helper()
	store := apitest.NewStore()
	t.Cleanup(store.Close)
	s := &Session{T: t, Mesh: apitest.NewAgent(store, "a"), Dir: t.TempDir(), Ctx: context.Background()}
	h, err := server.New(server.Config{Services: s.Mesh.Services(), Patience: 20 * time.Millisecond, Now: s.now})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	s.URL = srv.URL
	s.Env = map[string]string{"COOPR_ADDR": s.URL, "COOPR_TOKEN": apitest.Admin, "HOME": s.Dir}
	t.Chdir(s.Dir)
	return s
}

// now returns a time one hour after the mesh began.
func (*Session) now() time.Time { return time.UnixMilli(apitest.Epoch).Add(time.Hour) }

// File writes a file into the session's folder.
func (s *Session) File(name, text string) {
	s.T.Helper()
	path := filepath.Join(s.Dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		s.T.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		s.T.Fatal(err)
	}
}

// As uses another token from here on.
func (s *Session) As(token string) { s.Env["COOPR_TOKEN"] = token }

// buffer is a buffer that several goroutines may write to.
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

// Exec runs a command and returns its exit code, output and error output.
func (s *Session) Exec(args ...string) (code int, out, errs string) {
	s.T.Helper()
	return s.ExecSeen(nil, args...)
}

// ExecSeen is like Exec. It calls seen with all output so far whenever there is more.
func (s *Session) ExecSeen(seen func(string), args ...string) (code int, out, errs string) {
	var o, e buffer
	o.seen, e.seen = seen, seen
	code = root.Run(s.Ctx, root.Config{
		Stdin: strings.NewReader(s.Stdin), Stdout: &o, Stderr: &e, Env: func(k string) string { return s.Env[k] },
		StdinTerminal: s.Terminal, StdoutTerminal: s.Terminal, Width: func() int { return 100 },
		Now: s.now, Pace: time.Millisecond, Patience: cmp.Or(s.Patience, 300*time.Millisecond),
	}, args)
	return code, o.b.String(), e.b.String()
}

var port = regexp.MustCompile(`127\.0\.0\.1:\d{5}\b`)

// size is the size of a snapshot, whose format is not the command line's.
var size = regexp.MustCompile(`was saved: \d+ bytes`)

// index is the index of the state. It depends on entries of the Raft library.
var index = regexp.MustCompile(`(?m)^(Index: +)\d+$`)

// passing is a line that appears only if an operation was read before it had ended.
var passing = regexp.MustCompile(`(?m)^[a-z]+ \d{8}-\d{3}: running, \d+ tasks?\n`)

// Run runs a command, expects its exit code, and records the command with its output.
func (s *Session) Run(want int, args ...string) string {
	s.T.Helper()
	code, out, errs := s.Exec(args...)
	line := "coopr"
	for _, a := range args {
		if strings.ContainsAny(a, " {*") {
			a = "'" + a + "'"
		}
		line += " " + a
	}
	fmt.Fprintf(&s.Story, "$ %s\n%s", line, out)
	if errs != "" {
		fmt.Fprintf(&s.Story, "-- on the error output --\n%s", errs)
	}
	fmt.Fprintf(&s.Story, "-- exit %d --\n\n", code)
	if code != want {
		s.T.Errorf("%s: exit %d, not %d\n%s%s", line, code, want, out, errs)
	}
	return out
}

// Golden compares the record with a golden file.
func (s *Session) Golden(name string) {
	s.T.Helper()
	got := strings.ReplaceAll(s.Story.String(), s.URL, "http://mesh")
	got = strings.ReplaceAll(got, s.Dir, "DIR")
	got = port.ReplaceAllStringFunc(got, func(a string) string {
		if strings.HasPrefix(a, "127.0.0.1:550") {
			return a
		}
		return "127.0.0.1:PORT"
	})
	got = passing.ReplaceAllString(got, "")
	got = size.ReplaceAllString(got, "was saved: SIZE bytes")
	got = index.ReplaceAllString(got, "${1}INDEX")
	path := filepath.Join(testdata, name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			s.T.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		s.T.Fatal(err)
	}
	if got != string(want) {
		s.T.Errorf("%s differs; go test -update writes it again. Now:\n%s", path, got)
	}
}

// testdata is the folder of golden files, found before a test changes the working directory.
var testdata = func() string {
	dir, err := filepath.Abs("testdata")
	if err != nil {
		panic(err)
	}
	return dir
}()

// Work completes the tasks of every operation in order, until the test ends. A task whose name is in
// fails ends with that message instead.
func (s *Session) Work(fails map[string]string) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		var index uint64
		for ctx.Err() == nil {
			v, _ := s.Mesh.View(ctx, api.Stale, index)
			index = v.Index()
			for _, op := range v.Operations("acme", "") {
				s.Mesh.Work(op.ID, func(t model.Task) string { return fails[strings.TrimSpace(t.Action.String()+" "+t.Service)] })
			}
		}
	})
	s.T.Cleanup(func() {
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
  - {label: Shop, url: "http://%host.service.nginx[0]%/"}
`

// Definitions writes the definitions of a web shop into the folder defs.
func (s *Session) Definitions() {
	s.File("defs/clustertemplates/shop.yaml", shopYAML)
	s.File("defs/services/nginx.json", `{"name":"nginx","description":"A web server",
"provisioner":{"actions":{"install":{"type":"shell","fields":{"script":"i.sh"}},
"start":{"type":"shell","fields":{"script":"s.sh"}}}}}`)
	s.File("defs/services/php.json", `{"name":"php","description":"A language",
"provisioner":{"actions":{"install":{"type":"shell","fields":{"script":"i.sh"}}}}}`)
	s.File("defs/hardwaretypes/small.json", `{"name":"small","description":"One core","providermap":{"cloud":{"flavor":"s","cost":"0.25"}}}`)
	s.File("defs/imagetypes/debian.json", `{"name":"debian","description":"Debian","providermap":{"cloud":{"image":"d"}}}`)
	s.File("defs/providers/cloud.json", `{"name":"cloud","description":"The cloud",
"providertype":"cloud","provisioner":{"region":"north","pin":"1234"}}`)
	s.File("defs/README.md", "not a definition")
}

// SplitWords splits a line into words as a shell does, with quotes but nothing else.
func SplitWords(line string) []string {
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
