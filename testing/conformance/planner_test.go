package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

func TestPlannerCases(t *testing.T) {
	file := "testdata/planner-cases.json"
	for _, compat := range []bool{true, false} {
		passed, failed := runPlanner([]string{file}, compat)
		t.Logf("compat %v: %d passed, %d failed", compat, passed, failed)
		if failed > 0 || passed == 0 {
			t.Errorf("compat %v: %d of %d cases failed", compat, failed, passed+failed)
		}
	}
}

// A case with a wrong expectation fails in both modes, and so does a file without cases.
func TestPlannerCasesCanFail(t *testing.T) {
	data, err := os.ReadFile("testdata/planner-cases.json")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	fails := func(name string, change func(c map[string]any)) {
		t.Helper()
		var file map[string]any
		if err := json.Unmarshal(data, &file); err != nil {
			t.Fatal(err)
		}
		c := file["cases"].([]any)[0].(map[string]any)
		file["cases"] = []any{c}
		change(c)
		path := filepath.Join(dir, name+".json")
		text, err := json.Marshal(file)
		if err == nil {
			err = os.WriteFile(path, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{path}, {path, "-compat"}} {
			if passed, failed := plannerCommand(args); passed != 0 || failed != 1 {
				t.Errorf("%s %v: %d passed, %d failed", name, args[1:], passed, failed)
			}
		}
	}
	fails("tasks", func(c map[string]any) { c["tasks"] = 1 })
	fails("split", func(c map[string]any) { c["stagesAfterOneTaskPerNode"] = 1 })
	fails("stage", func(c map[string]any) {
		stages := c["stages"].([]any)
		stages[0], stages[1] = stages[1], stages[0]
	})
	fails("edge", func(c map[string]any) { c["edges"] = c["edges"].([]any)[1:] })
	fails("action", func(c map[string]any) { c["action"] = "DANCE" })
	fails("services", func(c map[string]any) { c["serviceSet"] = "none" })
	fails("silent", func(c map[string]any) {
		for _, k := range []string{"tasks", "levels", "stages", "stagesAfterOneTaskPerNode", "edges"} {
			delete(c, k)
		}
	})
	empty := filepath.Join(dir, "empty.json")
	if err := os.WriteFile(empty, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{empty}, {filepath.Join(dir, "missing.json")}, {"-compat"}} {
		if passed, failed := plannerCommand(args); passed != 0 || failed != 1 {
			t.Errorf("%v: %d passed, %d failed", args, passed, failed)
		}
	}
}
