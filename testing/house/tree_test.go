package house

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

const (
	module = "github.com/coopr/coopr"
	root   = "../.."
)

// A source is one Go file of the repository.
type source struct {
	path      string // from the root, with slashes
	text      string
	file      *ast.File
	fset      *token.FileSet
	test      bool // a file of tests
	generated bool
}

// code reports whether the limits on sizes and names apply to the file.
func (s *source) code() bool { return !s.test && !s.generated }

// folder returns the folder of the file.
func (s *source) folder() string { return path.Dir(s.path) }

// line returns the number of the line of a node.
func (s *source) line(n ast.Node) int { return s.fset.Position(n.Pos()).Line }

var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// files returns the paths of all files in the repository that are written by people,
// from the root.
var files = sync.OnceValue(func() []string {
	var out []string
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if rel == "bin" || name == "node_modules" || name == "dist" || name == "testdata" ||
				name != "." && name != ".." && strings.HasPrefix(name, ".") {
				return filepath.SkipDir
			}
			return nil
		}
		if d.Type().IsRegular() {
			out = append(out, filepath.ToSlash(rel))
		}
		return nil
	})
	if err != nil {
		panic(err)
	}
	return out
})

// sources returns all Go files, parsed.
var sources = sync.OnceValue(func() []*source {
	var out []*source
	for _, p := range files() {
		if path.Ext(p) != ".go" {
			continue
		}
		text := read(p)
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, p, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			panic(err)
		}
		out = append(out, &source{path: p, text: text, file: file, fset: fset,
			test: strings.HasSuffix(p, "_test.go"), generated: generated.MatchString(text)})
	}
	return out
})

// read returns the text of a file of the repository.
func read(p string) string {
	data, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(p)))
	if err != nil {
		panic(err)
	}
	return string(data)
}

// listed is a package in the output of "go list".
type listed struct {
	ImportPath string
	Imports    []string
	Standard   bool
}

// name returns the package's folder from the root.
func (l *listed) name() string { return trim(l.ImportPath) }

// trim returns the folder of one of our packages, or "" for any other.
func trim(importPath string) string {
	if importPath == module {
		return "."
	}
	rest, ok := strings.CutPrefix(importPath, module+"/")
	if !ok {
		return ""
	}
	return rest
}

// list runs "go list" in the root.
func list(t *testing.T, args ...string) []listed {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Imports,Standard"}, args...)...)
	cmd.Dir = root
	cmd.Stderr = os.Stderr
	data, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %s: %v", strings.Join(args, " "), err)
	}
	var out []listed
	for d := json.NewDecoder(strings.NewReader(string(data))); d.More(); {
		var l listed
		if err := d.Decode(&l); err != nil {
			t.Fatal(err)
		}
		out = append(out, l)
	}
	return out
}

// within reports whether a folder is another one or below it.
func within(folder, room string) bool {
	return folder == room || strings.HasPrefix(folder, room+"/")
}

// A violation is a place that breaks a rule. What names it without numbers, so that an
// exception for it lasts.
type violation struct{ what, detail string }

// report fails on each violation without an exception, and on each exception without a
// violation.
func report(t *testing.T, found []violation, allowed map[string]string) {
	t.Helper()
	seen := map[string]bool{}
	slices.SortFunc(found, func(a, b violation) int { return strings.Compare(a.what, b.what) })
	for _, v := range found {
		seen[v.what] = true
		if allowed[v.what] == "" {
			t.Errorf("%s: %s", v.what, v.detail)
		}
	}
	for what := range allowed {
		if !seen[what] {
			t.Errorf("%s: the exception is no longer needed; remove it", what)
		}
	}
}
