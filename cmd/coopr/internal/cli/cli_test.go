package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

// fakeApp is an App without a mesh.
type fakeApp struct {
	printer          output.Printer
	stdin            io.Reader
	interactive, yes bool
}

func (a *fakeApp) Client() (*client.Client, error)                   { return nil, errors.New("there is no mesh") }
func (a *fakeApp) HastyClient() (*client.Client, error)              { return a.Client() }
func (a *fakeApp) Printer() *output.Printer                          { return &a.printer }
func (a *fakeApp) Stdin() io.Reader                                  { return a.stdin }
func (a *fakeApp) Prompt() (interactive, yes bool)                   { return a.interactive, a.yes }
func (a *fakeApp) LoginTarget() (*LoginTarget, error)                { return nil, errors.New("there is no mesh") }
func (a *fakeApp) Contexts() (*Contexts, error)                      { return LoadContexts("") }
func (a *fakeApp) AskSecret(context.Context, string) (string, error) { return readLine(a.stdin) }
func (a *fakeApp) Pace() time.Duration                               { return time.Millisecond }

func TestArgs(t *testing.T) {
	for _, tt := range []struct {
		names []string
		given string
		want  string
	}{
		{nil, "", ""},
		{nil, "a", `unexpected argument "a"`},
		{[]string{"NAME"}, "", "NAME is missing"},
		{[]string{"NAME"}, "a b", `unexpected argument "b"`},
		{[]string{"NAME", "[FILE]"}, "a", ""},
		{[]string{"NAME", "[FILE]"}, "a b", ""},
		{[]string{"NODE…"}, "", "NODE is missing"},
		{[]string{"NODE…"}, "a b c", ""},
		{[]string{"NAME", "[NODE…"}, "a b c", ""},
	} {
		err := Args(tt.names...)(&cobra.Command{}, strings.Fields(tt.given))
		var u *UsageError
		if tt.want == "" && err != nil || tt.want != "" && (!errors.As(err, &u) || err.Error() != tt.want) {
			t.Errorf("%v for %q: %v", tt.names, tt.given, err)
		}
	}
}

func TestConfirm(t *testing.T) {
	var usage *UsageError
	for _, tt := range []struct {
		name             string
		interactive, yes bool
		answer           string
		done             func(error) bool
	}{
		{"--yes", false, true, "", func(err error) bool { return err == nil }},
		{"no terminal", false, false, "y\n", func(err error) bool { return errors.As(err, &usage) }},
		{"yes", true, false, "Yes\n", func(err error) bool { return err == nil }},
		{"no", true, false, "n\n", func(err error) bool { return errors.Is(err, ErrDeclined) }},
		{"enter", true, false, "\n", func(err error) bool { return errors.Is(err, ErrDeclined) }},
		{"end of input", true, false, "", func(err error) bool { return errors.Is(err, ErrDeclined) }},
	} {
		app := &fakeApp{stdin: strings.NewReader(tt.answer), interactive: tt.interactive, yes: tt.yes}
		app.printer.Stdout = io.Discard
		cmd := &cobra.Command{}
		cmd.SetContext(t.Context())
		if err := Confirm(app, cmd, "Delete it?"); !tt.done(err) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// TestAskReadsOneLine checks that the rest of the input is left to later questions.
func TestAskReadsOneLine(t *testing.T) {
	var out bytes.Buffer
	app := &fakeApp{printer: output.Printer{Stdout: &out}, stdin: strings.NewReader("y\nn\n")}
	if err := Ask(t.Context(), app, "First?"); err != nil {
		t.Error(err)
	}
	if err := Ask(t.Context(), app, "Second?"); !errors.Is(err, ErrDeclined) {
		t.Error(err)
	}
	if out.String() != "First? [y/N] Second? [y/N] " {
		t.Errorf("%q", out.String())
	}
}

func TestReadForm(t *testing.T) {
	for given, want := range map[string]string{"": output.FormYAML, "json": output.FormJSON, "table": ""} {
		cmd, out := &cobra.Command{}, &output.Printer{}
		FormFlag(cmd, output.FormYAML, output.FormJSON)
		if given != "" {
			if err := cmd.Flags().Set("output", given); err != nil {
				t.Fatal(err)
			}
		}
		if err := ReadForm(out, cmd); (err != nil) != (want == "") || err == nil && out.Form != want {
			t.Errorf("%q: %s, %v", given, out.Form, err)
		}
	}
}

// TestWriteFile checks that a failed write leaves the old file and nothing else.
func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	write := func(text string, err error) error {
		return WriteFile(path, func(w io.Writer) error {
			_, werr := io.WriteString(w, text)
			return errors.Join(werr, err)
		})
	}
	if err := write("old", nil); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("the connection broke")
	if err := write("ne", broken); !errors.Is(err, broken) || !strings.Contains(err.Error(), path) {
		t.Error(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "old" {
		t.Errorf("%q %v", got, err)
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 1 {
		t.Errorf("%v %v", all, err)
	}
}

func TestInFile(t *testing.T) {
	plain := errors.New("line 3: bad indent")
	if err := InFile(plain, "a.yaml"); !errors.Is(err, plain) || err.Error() != "a.yaml: line 3: bad indent" {
		t.Error(err)
	}
	var faults model.Faults
	faults.Add("name", "is missing")
	if err := InFile(faults, "a.yaml"); !strings.HasPrefix(err.Error(), "a.yaml: ") {
		t.Error(err)
	}
}
