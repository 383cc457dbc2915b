package house

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// privateWords are words of identifiers, of names of files and packages, and of keys on
// the wire that docs/concepts.md has better ones for. The value is that word.
var privateWords = map[string]string{
	"shelf": "blob cache", "shelves": "blob caches",
	"keeper":  "site controller",
	"telling": "membership broadcaster", "tellings": "membership broadcaster",
	"mend": "recover, or recovery controller", "mender": "recovery controller", "mending": "recovering", "mended": "recovered",
	"beside":   "concurrent",
	"standing": "snapshot or input", "standings": "snapshots or inputs",
	"settle": "finish or commit", "settles": "finishes or commits", "settled": "finished or committed", "settling": "finishing or committing",
	"look": "observe or probe", "looks": "observes or probes", "looked": "observed or probed", "looking": "observing or probing",
	"poke": "notify", "pokes": "notifies", "poked": "notified",
	"wake": "notify", "wakes": "notifies", "waker": "notifier",
	"reign": "term", "reigns": "terms",
}

// In these folders the words are private ones too; elsewhere they have their usual sense
// (a home directory, the cell of a table).
var privateThere = map[string][]string{
	"home":  {"agent", "consensus", "engine", "rpc"},
	"homes": {"agent", "consensus", "engine", "rpc"},
	"cell":  {"agent", "consensus"},
	"cells": {"agent", "consensus"},
}

// privateProse are the private words and phrases that comments, texts and pages have no
// other use for. "Look for" and "look up" have one, and so are absent.
var privateProse = regexp.MustCompile(`(?i)\b(shelf|shelves|keepers?|tellings?|mend|mends|mended|mending|menders?|beside|standings?|` +
	`settle[ds]?|settling|pok(?:e|es|ed|ing)|wakes?|wakers?|waking|woke|woken|reigns?|` +
	`a look|looks? (?:before|first)|(?:nobody|never) looked|looked (?:before|first|twice|at)|` +
	`the mesh picks|is let be|list of record)\b`)

// privateProseThere are the words of privateThere in prose. HOME and /home are no words.
var privateProseThere = regexp.MustCompile(`(?:^|[^\w/$.])([Hh]omes?|[Cc]ells?)\b`)

// words splits an identifier into its words, in lower case.
func words(name string) []string {
	var out []string
	var word []rune
	runes := []rune(name)
	flush := func() {
		if len(word) > 0 {
			out = append(out, strings.ToLower(string(word)))
		}
		word = nil
	}
	for i, r := range runes {
		switch {
		case !unicode.IsLetter(r):
			flush()
			continue
		case unicode.IsUpper(r) && i > 0 && (unicode.IsLower(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])):
			flush()
		}
		word = append(word, r)
	}
	flush()
	return out
}

// private returns the first private word of a name in a folder, with the better one.
func private(folder, name string) (word, better string) {
	all := words(name)
	for i, w := range all {
		if w == "look" && i+1 < len(all) && (all[i+1] == "up" || all[i+1] == "path") {
			continue // lookUp, lookPath
		}
		if b := privateWords[w]; b != "" {
			return w, b
		}
		for _, f := range privateThere[w] {
			if within(folder, f) {
				return w, "runtime, host or site runner"
			}
		}
	}
	return "", ""
}

func TestWordsOfNames(t *testing.T) {
	t.Parallel()
	var found []violation
	for _, s := range sources() {
		check := func(name string, at int) {
			if w, better := private(s.folder(), name); w != "" {
				found = append(found, violation{s.folder() + ": " + name,
					fmt.Sprintf("%s:%d: %q is not a word of docs/concepts.md; use %s", s.path, at, w, better)})
			}
		}
		check(s.file.Name.Name, 1)
		check(strings.TrimSuffix(path.Base(s.path), ".go"), 1)
		if s.generated {
			continue
		}
		for name, at := range declared(s) {
			check(name, at)
		}
	}
	for _, p := range files() {
		if path.Ext(p) != ".proto" {
			continue
		}
		for i, line := range strings.Split(read(p), "\n") {
			line, _, _ = strings.Cut(line, "//")
			for _, name := range regexp.MustCompile(`\w+`).FindAllString(line, -1) {
				if w, better := private(path.Dir(p), name); w != "" {
					found = append(found, violation{p + ": " + name,
						fmt.Sprintf("%s:%d: %q is not a word of docs/concepts.md; use %s", p, i+1, w, better)})
				}
			}
		}
	}
	report(t, found, allowedNames)
}

// TestWordsOfTheAPI checks the paths, the ids of routes, and the keys and words of the API's documents.
func TestWordsOfTheAPI(t *testing.T) {
	t.Parallel()
	var document any
	if err := json.Unmarshal([]byte(read("docs/openapi.json")), &document); err != nil {
		t.Fatal(err)
	}
	var found []violation
	checked := 0
	check := func(what, name string) {
		checked++
		if w, better := private("rpc/api", name); w != "" {
			found = append(found, violation{name, fmt.Sprintf("%s: %q is not a word of docs/concepts.md; use %s", what, w, better)})
		}
	}
	var walk func(at string, v any)
	walk = func(at string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for key, below := range v {
				switch at {
				case "paths", "properties", "schemas":
					check(at, key)
				}
				if text, ok := below.(string); ok && (key == "operationId" || key == "name") {
					check(key, text)
				}
				walk(key, below)
			}
		case []any:
			for _, below := range v {
				if text, ok := below.(string); ok && (at == "enum" || at == "tags") {
					check(at, text)
				}
				walk(at, below)
			}
		}
	}
	walk("", document)
	if checked < 1000 {
		t.Errorf("only %d names were found in docs/openapi.json", checked)
	}
	report(t, found, allowedAPI)
}

// declared yields the names that a file declares, and the keys of its struct tags.
func declared(s *source) func(yield func(string, int) bool) {
	return func(yield func(string, int) bool) {
		ok := true
		name := func(ids ...*ast.Ident) {
			for _, id := range ids {
				if id != nil {
					ok = ok && yield(id.Name, s.line(id))
				}
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				name(n.Name)
			case *ast.TypeSpec:
				name(n.Name)
			case *ast.ValueSpec:
				name(n.Names...)
			case *ast.LabeledStmt:
				name(n.Label)
			case *ast.Field:
				name(n.Names...)
				if n.Tag != nil {
					tag := reflect.StructTag(strings.Trim(n.Tag.Value, "`"))
					for _, key := range []string{"json", "yaml", "path", "query"} {
						if value, _, _ := strings.Cut(tag.Get(key), ","); value != "" {
							ok = ok && yield(value, s.line(n))
						}
					}
				}
			case *ast.AssignStmt:
				if n.Tok == token.DEFINE {
					for _, l := range n.Lhs {
						if id, is := l.(*ast.Ident); is {
							name(id)
						}
					}
				}
			case *ast.RangeStmt:
				if n.Tok == token.DEFINE {
					for _, l := range []ast.Expr{n.Key, n.Value} {
						if id, is := l.(*ast.Ident); is {
							name(id)
						}
					}
				}
			}
			return ok
		})
	}
}

func TestWordsOfProse(t *testing.T) {
	t.Parallel()
	var found []violation
	for _, p := range files() {
		switch path.Ext(p) {
		case ".go", ".md", ".proto", ".yaml", ".yml", ".sh":
		default:
			continue
		}
		if within(p, "testing/house") {
			continue
		}
		for i, line := range strings.Split(read(p), "\n") {
			wrong := func(word string) {
				word = strings.ToLower(word)
				found = append(found, violation{p + ": " + word, fmt.Sprintf("line %d: %q is not a word of docs/concepts.md", i+1, word)})
			}
			for _, word := range privateProse.FindAllString(line, -1) {
				wrong(word)
			}
			for _, m := range privateProseThere.FindAllStringSubmatch(line, -1) {
				if slices.ContainsFunc(privateThere[strings.ToLower(m[1])], func(f string) bool { return within(p, f) }) {
					wrong(m[1])
				}
			}
		}
	}
	report(t, found, allowedProse)
}
