package host

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// documented writes the files that a page of the documentation shows: each into the folder that
// place returns, and Go files into a folder that is built as the plugin. Go plugins need this
// module, so they are built within it, in a folder that patterns such as ./... skip. It returns the
// names of the files.
func documented(t *testing.T, page, plugin string, place func(name, text string) string) (names []string) {
	t.Helper()
	b, err := os.ReadFile("../../docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll("testdata", 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove("testdata")
	src, err := os.MkdirTemp("testdata", "example")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(src)
	for _, block := range regexp.MustCompile("(?ms)^```[a-z]+ file=(\\S+)\n(.*?)^```$").FindAllStringSubmatch(string(b), -1) {
		name, text := block[1], block[2]
		dir := src
		if !strings.HasSuffix(name, ".go") {
			dir = place(name, text)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	if out, err := exec.Command("go", "build", "-o", plugin, "./"+src).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return names
}
