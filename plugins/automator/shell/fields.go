package shell

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/automator/kit"
)

// action is what a task's fields say.
type action struct {
	script string   // text or file name
	inline bool     // script is the text itself
	args   []string // its arguments
	env    []string // KEY=value
	config []kit.Setting
	shell  string // interpreter of scripts that name none
	files  map[string]string
	expect []int // exit statuses that mean success, of RUN
	// archives are the names of those that go to the node.
	archives []string
}

// parse reads the fields, giving all that is wrong with them.
func parse(fields map[string]any) (*action, model.Faults) {
	var faults model.Faults
	a := &action{shell: "/bin/sh"}
	switch v := fields["script"].(type) {
	case string:
		a.script = v
		a.inline = inline(v)
		switch {
		case v == "":
			faults.Add("script", "is empty: give the name of a file or the script itself")
		case !a.inline && (!filepath.IsLocal(v) || strings.ContainsRune(v, 0)):
			faults.Add("script", fmt.Sprintf("%q is not a name below the scripts' folder; a script itself begins with #! or has several lines", v))
		case a.inline && strings.ContainsRune(v, 0):
			faults.Add("script", "has a zero byte in it")
		}
	case nil:
		faults.Add("script", "is missing: give the name of a file or the script itself")
	default:
		faults.Add("script", "must be text")
	}
	var err error
	switch v := fields["args"].(type) {
	case nil:
	case string:
		if a.args, err = split(v); err != nil {
			faults.Add("args", err.Error())
		}
	case []any:
		for i, x := range v {
			s, ok := kit.Scalar(x)
			if !ok {
				faults.Add(fmt.Sprintf("args[%d]", i), "must be text or a number")
			}
			a.args = append(a.args, s)
		}
	default:
		faults.Add("args", "must be text or a list of texts")
	}
	a.env = kit.ParseVariables(fields["env"], "env", &faults)
	a.config = kit.ParseSettings(fields["config"], "config", &faults)
	a.archives = names(fields["archives"], "archives", &faults)
	a.program(fields, &faults)
	switch v := fields["shell"].(type) {
	case nil:
	case string:
		if v != "" {
			a.shell = v
		}
	default:
		faults.Add("shell", "must be text")
	}
	return a, faults
}

// names reads names of resources: a list, or text with commas between.
func names(v any, path string, faults *model.Faults) (out []string) {
	switch v := v.(type) {
	case nil:
	case string:
		for name := range strings.SplitSeq(v, ",") {
			if name = strings.TrimSpace(name); name != "" {
				out = append(out, name)
			}
		}
	case []any:
		for _, x := range v {
			name, _ := x.(string)
			out = append(out, name)
		}
	default:
		faults.Add(path, "must be names with commas between, or a list of names")
	}
	for _, name := range out {
		if why := model.CheckResourceName(name); why != "" {
			faults.Add(path, why)
		}
	}
	return out
}

// split cuts a line into words as a shell does: spaces separate, quotes and
// backslashes hold together. Nothing is expanded.
func split(s string) ([]string, error) {
	var words []string
	var word strings.Builder
	in := false // a word has begun
	var quote rune
	escaped := false
	for _, c := range s {
		switch {
		case escaped:
			if quote == '"' && c != '"' && c != '\\' && c != '$' && c != '`' {
				word.WriteRune('\\')
			}
			word.WriteRune(c)
			escaped = false
		case c == '\\' && quote != '\'':
			escaped, in = true, true
		case quote != 0:
			if c == quote {
				quote = 0
			} else {
				word.WriteRune(c)
			}
		case c == '\'' || c == '"':
			quote, in = c, true
		case c == ' ' || c == '\t' || c == '\n':
			if in {
				words = append(words, word.String())
				word.Reset()
				in = false
			}
		default:
			word.WriteRune(c)
			in = true
		}
	}
	if quote != 0 {
		return nil, errors.New("a quote is not closed")
	}
	if escaped {
		return nil, errors.New("a backslash stands at the end")
	}
	if in {
		words = append(words, word.String())
	}
	return words, nil
}

// inline says whether a field "script" is the script itself, not its name.
func inline(script string) bool {
	return strings.HasPrefix(script, "#!") || strings.Contains(script, "\n")
}
