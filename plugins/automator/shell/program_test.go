package shell

import (
	"strings"
	"testing"

	"github.com/coopr/coopr/plugins/sdk"
)

// TestProgram checks that a step of a program gets its files, that its exit status is reported even
// for failures, and that the step can name the exit statuses of success.
func TestProgram(t *testing.T) {
	a, task := onNode(t)
	run := func(fields map[string]any) (any, error) {
		x := task("op/1", fields)
		x.Action = actionRun
		out, err := a.Run(t.Context(), x)
		if out == nil {
			out = &sdk.Output{}
		}
		return out.Result["exit"], err
	}
	script := "#!/bin/sh\n[ \"$(cat data/in)\" = text ] || exit 9\nexit $1\n"
	files := map[string]any{"data/in": "text"}
	if code, err := run(map[string]any{"script": script, "files": files, "args": []any{"0"}}); err != nil || code != 0 {
		t.Error(code, err)
	}
	if code, err := run(map[string]any{"script": script, "files": files, "args": []any{"3"}}); err == nil || code != 3 {
		t.Error(code, err)
	}
	if code, err := run(map[string]any{"script": script, "files": files, "args": []any{"3"}, "exitcodes": []any{0.0, 3.0}}); err != nil ||
		code != 3 {
		t.Error(code, err)
	}
	if code, err := run(map[string]any{"script": "#!/bin/sh\nkill -9 $$\n"}); err == nil || code != nil ||
		!strings.Contains(err.Error(), "signal") {
		t.Error(code, err)
	}
	_, faults := parse(map[string]any{"script": "x", "files": map[string]any{"/etc/passwd": "", "ok": 3.0}, "exitcodes": []any{"0"}})
	if len(faults) != 3 {
		t.Error(faults)
	}
}
