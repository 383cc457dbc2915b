package shell

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/remote"
	"github.com/coopr/coopr/plugins/sdk"
)

// actionRun is a step of a program: a user's job, whose exit status is reported and means nothing
// to Coopr.
const actionRun = "RUN"

// program parses the fields that only steps of programs have.
func (a *action) program(fields map[string]any, faults *model.Faults) {
	if v, given := fields["files"]; given {
		files, ok := v.(map[string]any)
		if !ok {
			faults.Add("files", "must be an object of texts by name")
		}
		a.files = map[string]string{}
		for _, name := range slices.Sorted(maps.Keys(files)) {
			text, isText := files[name].(string)
			switch {
			case !isText:
				faults.Add("files."+name, "must be text")
			case !filepath.IsLocal(name) || strings.ContainsRune(name, 0):
				faults.Add("files."+name, "is not a path within the node's folder")
			default:
				a.files[name] = text
			}
		}
	}
	if v, given := fields["exitcodes"]; given {
		list, ok := v.([]any)
		if !ok {
			faults.Add("exitcodes", "must be a list of numbers")
		}
		for i, x := range list {
			n, ok := number(x)
			if !ok {
				faults.Add(fmt.Sprintf("exitcodes[%d]", i), "must be a number")
			}
			a.expect = append(a.expect, n)
		}
	}
}

func number(v any) (int, bool) {
	switch x := v.(type) {
	case float64:
		return int(x), x == float64(int(x))
	case json.Number:
		n, err := x.Int64()
		return int(n), err == nil
	}
	return 0, false
}

// putFiles writes a step's files. All are executable, as some may be scripts.
func putFiles(ctx context.Context, node remote.Node, files map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := node.Put(ctx, name, 0o755, []byte(files[name])); err != nil {
			return fmt.Errorf("file %s: %w", name, err)
		}
	}
	return nil
}

// step returns the result of a step of a program.
func step(what string, act *action, exit remote.Exit) (*sdk.Output, error) {
	if exit.Signal != "" {
		return nil, sdk.Fatal(fmt.Errorf("%s was ended by a signal: %s", what, exit.Signal))
	}
	out := &sdk.Output{Result: map[string]any{"exit": exit.Code}}
	if exit.Code == 0 && len(act.expect) == 0 || slices.Contains(act.expect, exit.Code) {
		return out, nil
	}
	return out, sdk.Fatal(fmt.Errorf("%s ended with exit status %d", what, exit.Code))
}
