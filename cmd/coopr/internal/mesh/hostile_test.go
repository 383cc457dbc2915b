package mesh_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/apitest"

	"github.com/coopr/coopr/cmd/coopr/internal/clitest"
)

// hostile has the command line talk to a mesh, some of whose answers are those of agents that belong to somebody else.
func hostile(t *testing.T, answers map[string]func(w http.ResponseWriter)) *clitest.Session {
	t.Helper()
	s := clitest.New(t)
	s.As(apitest.Super)
	to, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	between := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if answer := answers[r.URL.Path]; answer != nil {
			answer(w)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(between.Close)
	s.Env["COOPR_ADDR"] = between.URL
	return s
}

// entry is a file of an archive: so many bytes of zero.
type entry struct {
	name string
	size int64
}

// archived returns the answer of an agent with an archive.
func archived(t *testing.T, entries ...entry) func(http.ResponseWriter) {
	var out bytes.Buffer
	zip, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	archive := tar.NewWriter(zip)
	for _, e := range entries {
		err := archive.WriteHeader(&tar.Header{Name: e.name, Mode: 0o600, Size: e.size})
		for piece := make([]byte, 1<<20); err == nil && e.size > 0; e.size -= int64(len(piece)) {
			_, err = archive.Write(piece[:min(e.size, int64(len(piece)))])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(archive.Close(), zip.Close()); err != nil {
		t.Fatal(err)
	}
	return func(w http.ResponseWriter) { _, _ = w.Write(out.Bytes()) }
}

// Whatever agents call themselves and their files, and however much they send, a bundle has plain names and an end.
func TestBundleOfHostileAgents(t *testing.T) {
	members := []api.Member{
		{ID: "../../.ssh", Name: "..", Status: "alive"},
		{ID: "x/../../y", Name: "", Status: "alive"},
		{ID: "id-3", Name: "a\x1b]52;c;AAAA\a", Status: "alive"},
		{ID: "large", Name: "large", Status: "alive"},
		{ID: "many", Name: "many", Status: "alive"},
		{ID: "good", Name: "good", Status: "alive"},
	}
	many := []entry{{"first", 1}}
	for range 200 {
		many = append(many, entry{"again", 0})
	}
	debug := func(id string) string { return "/v1/agents/" + id + "/debug" }
	s := hostile(t, map[string]func(http.ResponseWriter){
		"/v1/members": func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(members)
		},
		debug("../../.ssh"): archived(t, entry{"authorized_keys", 5}),
		debug("x/../../y"):  archived(t, entry{"../../up", 5}),
		debug("id-3"):       archived(t, entry{"ok", 5}, entry{"", 5}),
		debug("large"):      archived(t, entry{"huge", 256 << 20}, entry{"after", 1}),
		debug("many"):       archived(t, many...),
		debug("good"):       archived(t, entry{"log.txt", 7}),
	})
	code, out, errs := s.Exec("operator", "debug", "bundle.tar.gz")
	if code != 0 {
		t.Fatalf("code %d\n%s%s", code, out, errs)
	}
	f, err := os.Open(filepath.Join(s.Dir, "bundle.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	zip, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	sizes := map[string]int64{}
	var m api.BundleManifest
	named := regexp.MustCompile(`^((agents/[A-Za-z0-9-]+|mesh)/)?[A-Za-z0-9_.-]+$`)
	files := 0
	for archive := tar.NewReader(zip); ; files++ {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if !named.MatchString(h.Name) || strings.Contains(h.Name, "..") || h.Typeflag != tar.TypeReg {
			t.Errorf("a file %q of type %c", h.Name, h.Typeflag)
		}
		sizes[h.Name] = h.Size
		if h.Name == api.ManifestFile {
			if err := json.NewDecoder(archive).Decode(&m); err != nil {
				t.Fatal(err)
			}
		}
	}
	if files > 150 || sizes["agents/good/log.txt"] != 7 || sizes["agents/id-3/ok"] != 5 || sizes["agents/large/huge"] > 16<<20 {
		t.Errorf("%d files: %v", files, sizes)
	}
	if len(m.Agents) != len(members) {
		t.Fatalf("%+v", m.Agents)
	}
	for i, want := range []string{"", "has a file", "has a file", "bytes unpacked", "100 files", ""} {
		if got := m.Agents[i].Error; !strings.Contains(got, want) || (got == "") != (want == "") {
			t.Errorf("agent %d: %q, want %q", i, got, want)
		}
	}
}

// A log that is followed cannot command the terminal.
func TestMonitorOfHostileAgent(t *testing.T) {
	s := hostile(t, map[string]func(http.ResponseWriter){
		"/v1/agents/bad/log": func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, "one\tgrün\n\x1b]52;c;QUFB\a two\r\n\u009b2J three\x7f\n"+strings.Repeat("ü", 5000)+"\n")
		},
	})
	code, out, errs := s.Exec("monitor", "--agent", "bad")
	if want := "one\tgrün\n]52;c;QUFB two\n2J three\n" + strings.Repeat("ü", 5000) + "\n"; code != 0 || out != want {
		t.Errorf("code %d\n%.100q\n%s", code, out, errs)
	}
}
