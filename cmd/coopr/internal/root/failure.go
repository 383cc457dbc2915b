package root

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/words"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

// titles are the kinds of failures without an answer of the mesh, by exit code.
var titles = map[int]string{ExitFailed: "failed", ExitUsage: "usage", ExitNotFound: "not found", ExitConflict: "conflict",
	ExitUnreachable: "unreachable", ExitInterrupted: "interrupted"}

// fail shows what went wrong with a command, and returns the exit code: in words, or with -o json as a problem document (RFC 9457), which
// has the same words. Both are written to Stderr.
func (a *app) fail(cmd *cobra.Command, err error) int {
	if err == nil || !wantsJSON(cmd) {
		return a.exit(cmd, err)
	}
	stderr := a.printer.Stderr
	var said bytes.Buffer
	a.printer.Stderr = &said
	code := a.exit(cmd, err)
	a.printer.Stderr = stderr
	lines := strings.Split(strings.TrimSpace(said.String()), "\n")
	if lines[0] == "" {
		return code // it was shown before
	}
	p := api.Problem{Type: "about:blank", Title: titles[code], Detail: strings.TrimPrefix(lines[0], "error: "), Hints: lines[1:]}
	var answer *client.Error
	if errors.As(err, &answer) && answer.Type != "" {
		p.Type, p.Title, p.Status, p.Errors, p.Quorum = answer.Type, answer.Title, answer.Status, answer.Faults, answer.Quorum
	}
	var faults model.Faults
	if errors.As(err, &faults) {
		p.Detail, p.Hints, p.Errors = strings.TrimPrefix(lines[len(lines)-1], "error: "), nil, faults
	}
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		a.printer.Error(err)
		return code
	}
	a.printer.Notef("%s\n", text)
	return code
}

// wantsJSON reports whether a command's output is JSON. Its flags may not have been read to the end.
func wantsJSON(cmd *cobra.Command) bool {
	if cmd == nil {
		return false
	}
	f := cmd.Flags().Lookup("output")
	return f != nil && f.Value.String() == output.FormJSON
}

// completed returns the names that complete a beginning of a command's next argument.
func completed(cmd *cobra.Command, given []string, start string) []string {
	completions, _ := cmd.ValidArgsFunction(cmd, given, start)
	names := make([]string, len(completions))
	for i, c := range completions {
		names[i], _, _ = strings.Cut(c, "\t")
	}
	return names
}

// mostNames bounds the names that an error lists.
const mostNames = 10

// whatThereIs returns which names there are in place of the argument of a command that is not among them, the nearest first, or "".
func whatThereIs(cmd *cobra.Command) string {
	if cmd == nil || cmd.ValidArgsFunction == nil {
		return ""
	}
	args := cmd.Flags().Args()
	for i, arg := range args {
		names := completed(cmd, args[:i], "")
		switch {
		case len(names) == 0:
			return ""
		case slices.Contains(names, arg), slices.Contains(completed(cmd, args[:i], arg), arg): // by its name, or by its id
			continue
		}
		near := words.Nearest(arg, names)
		if at := slices.Index(names, near); at > 0 {
			names = slices.Insert(slices.Delete(names, at, at+1), 0, near)
		}
		verb, more := "There are: ", ""
		if len(names) == 1 {
			verb = "There is: "
		}
		if n := len(names) - mostNames; n > 0 {
			names, more = names[:mostNames], fmt.Sprintf(", and %d more", n)
		}
		return verb + strings.Join(names, ", ") + more
	}
	return ""
}
