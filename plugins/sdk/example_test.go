package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/sdk"
	"github.com/coopr/coopr/rpc/proto"
)

// notes is an automator that writes a line into a file for each action.
type notes struct{}

func (notes) Describe() model.PluginType {
	return model.PluginType{
		Base:   model.Base{Name: "notes", Description: "Writes a line into a file"},
		Plugin: "1.0.0",
		Parameters: model.PluginParameters{Admin: model.PluginFields{
			Fields: map[string]model.FieldSchema{
				"file": {Label: "File", Type: "text", Tip: "The file to write to"},
				"line": {Label: "Line", Type: "text", Tip: "The line to write"},
			},
			Required: [][]string{{"file", "line"}},
		}},
	}
}

func (notes) Bootstrap(context.Context, *sdk.Task) (*sdk.Output, error) { return nil, nil }

func (notes) Run(_ context.Context, t *sdk.Task) (*sdk.Output, error) {
	fields, err := t.Fields()
	if err != nil {
		return nil, err
	}
	file, line := fmt.Sprint(fields["file"]), fmt.Sprint(fields["line"])
	if !filepath.IsAbs(file) {
		return nil, sdk.Fatal(fmt.Errorf("file %q is not an absolute path", file))
	}
	if err := os.WriteFile(file, []byte(line+"\n"), 0o644); err != nil {
		return nil, sdk.Retryable(err)
	}
	t.Logf("%s is written", filepath.Base(file))
	return &sdk.Output{Result: map[string]any{"file": filepath.Base(file)}}, nil
}

// Check is called before a repetition if the end of an earlier attempt is unknown.
func (notes) Check(_ context.Context, t *sdk.Task) (bool, *sdk.Output, error) {
	fields, err := t.Fields()
	if err != nil {
		return false, nil, err
	}
	b, err := os.ReadFile(fmt.Sprint(fields["file"]))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil, nil
	}
	return string(b) == fmt.Sprint(fields["line"])+"\n", nil, err
}

// A plugin's main function is one line. This one is of a program named
// coopr-automator-notes; an agent starts it when it finds it in its plugin folder.
func ExampleServe() {
	main := func() { sdk.Serve(sdk.Plugin{Automator: notes{}}) }

	// "coopr-automator-notes describe" prints the descriptor, for people.
	defer func(args []string) { os.Args = args }(os.Args)
	os.Args = []string{"coopr-automator-notes", "describe"}
	main()
	// Output:
	// {
	//   "automator": {
	//     "name": "notes",
	//     "description": "Writes a line into a file",
	//     "plugin": "1.0.0",
	//     "parameters": {
	//       "admin": {
	//         "fields": {
	//           "file": {
	//             "label": "File",
	//             "type": "text",
	//             "tip": "The file to write to"
	//           },
	//           "line": {
	//             "label": "Line",
	//             "type": "text",
	//             "tip": "The line to write"
	//           }
	//         },
	//         "required": [
	//           [
	//             "file",
	//             "line"
	//           ]
	//         ]
	//       }
	//     }
	//   }
	// }
}

// A test calls a plugin's methods with tasks of its own.
func ExampleNewTask() {
	dir, err := os.MkdirTemp("", "notes")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	task := func(file string) *sdk.Task {
		input := `{"config": {"service": {"name": "web", "action": {"type": "notes", "fields": {"file": "FILE", "line": "hello"}}}}}`
		return sdk.NewTask(&proto.Task{Action: "INSTALL", Service: "web", Input: []byte(strings.ReplaceAll(input, "FILE", file))},
			func(line string, _ bool) { fmt.Println("log:", line) }, nil)
	}

	t := task(filepath.Join(dir, "note"))
	done, _, err := notes{}.Check(context.Background(), t)
	fmt.Println(done, err)
	out, err := notes{}.Run(context.Background(), t)
	fmt.Println(out.Result["file"], err)
	done, _, err = notes{}.Check(context.Background(), t)
	fmt.Println(done, err)

	_, err = notes{}.Run(context.Background(), task("note"))
	fmt.Println(sdk.OutcomeOf(err), err)
	// Output:
	// false <nil>
	// log: note is written
	// note <nil>
	// true <nil>
	// OUTCOME_FATAL file "note" is not an absolute path
}
