package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/coopr/coopr/testing/programs"
)

// TestWritingPlugins follows docs/writing-plugins.md from its top to its end, as a stranger
// would: files are put where the page says, commands are run by a shell, and those that
// the page says fail have to.
func TestWritingPlugins(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"bash", "jq", "pgrep"} {
		programs.Installed(t, tool)
	}
	source, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(source, "docs", "writing-plugins.md"))
	if err != nil {
		t.Fatal(err)
	}
	m := newMesh(t, "a")
	try := filepath.Join(m.dir, "try")
	for _, dir := range []string{"plugins", "rooms"} {
		if err := os.MkdirAll(filepath.Join(try, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	m.flags = []string{"--plugin-dir", filepath.Join(try, "plugins")}
	house := filepath.Join(try, "house")
	m.writers = fmt.Sprintf("- {name: notes, path: notes.yaml, writes: [%q]}\n- {name: provider-rooms, writes: [%q]}\n", house, house)
	m.agents[0].start()
	m.ready()

	// The page's folders are here; and this machine may have no modules but Coopr's.
	here := strings.NewReplacer("/tmp/try/data-work/local", m.nodes(), "/tmp/try", try, "PATH=$PWD/bin:$PATH", "X=",
		"go mod tidy", `go mod edit -json $COOPR/go.mod | jq -r '.Require[] | "-require=\(.Path)@\(.Version)"' | xargs go mod edit; cp `+
			`$COOPR/go.sum .`)
	env := append(m.env(), "COOPR_ADDR=http://"+m.agents[0].addr(httpPort), "COOPR_TOKEN="+m.token, "COOPR="+source,
		"GOFLAGS=-mod=mod -buildvcs=false")
	for _, name := range []string{"GOCACHE", "GOMODCACHE"} { // HOME is another one
		out, err := exec.Command("go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		env = append(env, name+"="+strings.TrimSpace(string(out)))
	}
	ran := 0
	for _, block := range regexp.MustCompile("(?ms)^```([a-z]+) ?(\\S*)\n(.*?)^```$").FindAllStringSubmatch(string(page), -1) {
		kind, note, text := block[1], block[2], here.Replace(block[3])
		if file, ok := strings.CutPrefix(note, "file="); ok {
			dir := map[string]string{"notes.yaml": "plugins", "notes.sh": "plugins", "main.go": "rooms"}[file]
			if err := os.WriteFile(filepath.Join(try, dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if kind != "sh" {
			continue
		}
		// From a file: a command that looks for processes would find one that has it as argument.
		script := filepath.Join(m.dir, "block.sh")
		if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(m.context(), "bash", "-eux", "-o", "pipefail", script)
		var out bytes.Buffer
		cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = try, env, &out, &out
		err := cmd.Run()
		t.Logf("%s\n%s", block[3], out.String())
		if fails := note == "fails"; fails != (err != nil) {
			t.Fatalf("%v, and the page says that it fails: %v", err, fails)
		}
		ran++
		for command, says := range map[string]string{
			"coopr import wrong.yaml                   #":  "notes needs the fields note",
			"coopr operation log 00000001-001":             "/1000/note.txt",
			"coopr import wrong.yaml                    #": `did you mean "house"?`,
			"coopr task get 00000003-001/0":                "unknown",
			"coopr provider orphans --remove":              "no-such-node",
		} {
			if strings.Contains(block[3], command) && !strings.Contains(out.String(), says) {
				t.Errorf("nothing is said of %q", says)
			}
		}
	}
	if ran < 9 {
		t.Errorf("only %d blocks of commands were found", ran)
	}
	if left, err := filepath.Glob(filepath.Join(try, "house", "*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}
