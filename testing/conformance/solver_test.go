package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestSolverCases(t *testing.T) {
	for name, run := range map[string]func([]string) (int, int){"solver-cases.json": runSolver, "add-services-cases.json": runAddServices} {
		if passed, failed := run([]string{filepath.Join("testdata", name)}); failed > 0 || passed == 0 {
			t.Errorf("%s: %d of %d cases failed", name, failed, passed+failed)
		}
	}
}

// TestWrongCases passes faulty files to the runner, which counts each as failed, exits with the
// right code and continues with the rest.
func TestWrongCases(t *testing.T) {
	const (
		template = `"templates":{"t":{"name":"t","constraints":{"layout":{"cantcoexist":[["a","b"]]}}}}`
		types    = `"template":"t","hardwaretypes":["h"],"imagetypes":["i"]`
		good     = `{"name":"good",` + types + `,"services":["a","b"],"numMachines":2,"original":[{"count":1,"hw":"h","img":"i",` +
			`"services":["a"]},{"count":1,"hw":"h","img":"i","services":["b"]}]}`
	)
	for _, c := range []struct {
		name, kind, text string
		passed, failed   int
	}{
		{"good", "solver", `{` + template + `,"cases":[` + good + `]}`, 1, 0},
		{"other counts", "solver", `{` + template + `,"cases":[` + good + `,{"name":"bad",` + types +
			`,"services":["a","b"],"numMachines":3,"original":[{"count":1,"hw":"h","img":"i","services":["a"]},{"count":2,"hw":"h","img":"i",` +
			`"services":["b"]}]}]}`, 1, 1},
		{"a layout where the original has none", "solver", `{` + template + `,"cases":[{"name":"n",` + types +
			`,"services":["a","b"],"numMachines":3,"original":null}]}`, 1, 0},
		{"no layout and none to be found", "solver", `{` + template + `,"cases":[{"name":"n",` + types +
			`,"services":["a","b"],"numMachines":1,"original":null}]}`, 1, 0},
		{"a layout that cannot be", "solver", `{` + template + `,"cases":[{"name":"n",` + types +
			`,"services":["a","b"],"numMachines":1,"original":[{"count":1,"hw":"h","img":"i","services":["a","b"]}]}]}`, 0, 1},
		{"another template", "solver", `{` + template + `,"cases":[` + good +
			`,{"name":"n","template":"x","services":["a"],"numMachines":1}]}`, 1, 1},
		{"nothing asked for", "solver", `{` + template + `,"cases":[{"name":"n","template":"t"},{}]}`, 0, 2},
		{"no cases", "solver", `{` + template + `}`, 0, 1},
		{"no object", "solver", `[1]`, 0, 1},
		{"no JSON", "solver", `{"cases":`, 0, 1},
		{"added", "add-services", `{"cases":[{"name":"a","template":{"name":"t","constraints":{"services":{"b":{"quantities":{"max":1}}}}},` +
			`"nodes":[{"count":2,"hw":"h","img":"i","services":["a"]}],"add":["b"],"original":[{"count":1,"hw":"h","img":"i","services":["a"]},` +
			`{"count":1,"hw":"h","img":"i","services":["a","b"]}]}]}`, 1, 0},
		{"not added", "add-services", `{"cases":[{"name":"a","template":{"name":"t"},"nodes":[{"count":2,"hw":"h","img":"i","services":["a"]}],` +
			`"add":["b"],"original":[{"count":2,"hw":"h","img":"i","services":["b"]}]}]}`, 0, 1},
		{"nothing to add", "add-services", `{"cases":[{"name":"a","template":{"name":"t"},"nodes":[]}]}`, 0, 1},
		{"of another kind", "add-services", `{` + template + `,"cases":[` + good + `]}`, 0, 1},
	} {
		file := filepath.Join(t.TempDir(), "cases.json")
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		passed, failed := subcommands[c.kind]([]string{file})
		if passed != c.passed || failed != c.failed {
			t.Errorf("%s: %d passed and %d failed, not %d and %d", c.name, passed, failed, c.passed, c.failed)
		}
		want := 0
		if c.failed > 0 {
			want = 1
		}
		if code := run([]string{c.kind, file}); code != want {
			t.Errorf("%s: exit code %d, not %d", c.name, code, want)
		}
	}
	if code := run([]string{"solver", filepath.Join(t.TempDir(), "missing.json")}); code != 1 {
		t.Errorf("a missing file: exit code %d", code)
	}
	for _, args := range [][]string{nil, {"solver"}, {"nothing", "file"}} {
		if code := run(args); code != 2 {
			t.Errorf("%q: exit code %d", args, code)
		}
	}
}
