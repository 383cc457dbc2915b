package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPlanTree(t *testing.T) {
	if passed, failed := runPlanTree([]string{"testdata/plan-tree.json"}); failed > 0 || passed < 40 {
		t.Errorf("%d passed, %d failed", passed, failed)
	}
}

// The errors name the faults of a case or a file.
func TestPlanTreeFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cases.json")
	text := `{"cases": [
		{"name": "status", "element": {"children": [{"status": "PENDING"}]}, "expect": {"status": "COMPLETE"}},
		{"name": "candidates", "element": {"children": [{"status": "PENDING"}]}, "expect": {"candidates": ["1"]}},
		{"name": "more candidates", "element": {"children": [{"status": "PENDING"}]}, "expect": {"candidates": ["0", "0"]}},
		{"name": "none", "element": {"children": [{"status": "PENDING"}]}, "expect": {"candidates": []}},
		{"name": "no such status", "element": {"children": [{"status": "HAPPY"}]}},
		{"name": "no such strategy", "element": {"strategy": "sideways", "children": []}},
		{"name": "no such sibling", "element": {"strategy": "dependency", "children": [{"status": "PENDING", "after": [7]}]}},
		{"expect": {}}
	]}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if passed, failed := planTreeFile(file, &out); passed != 0 || failed != 8 {
		t.Errorf("%d passed, %d failed", passed, failed)
	}
	for _, want := range []string{"FAIL status: status PENDING, not COMPLETE", "FAIL candidates: candidates [0], not [1]",
		"FAIL case 7: the case has no element"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	for _, f := range []string{file + ".missing", "main.go"} {
		if _, failed := planTreeFile(f, &out); failed != 1 {
			t.Errorf("%s is read", f)
		}
	}
}
