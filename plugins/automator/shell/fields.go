package shell

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/automator/kit"
)

// action holds the fields of a task.
type action struct {
	script string   // text of the script, or name of a file
	inline bool     // script is the text of the script
	args   []string // its arguments
	env    []string // KEY=value
	config []kit.Setting
	shell  string // interpreter of scripts without a #! line
	files  map[string]string
	expect []int // for RUN: the exit statuses that mean success
	// archives are the names of the archives to unpack on the node.
	archives []string
}

// parse decodes the fields and returns all their faults.
func parse(fields map[string]any) (*action, model.Faults) {
	var faults model.Faults
	a := &action{shell: "/bin/sh"}
	switch v := fields["script"].(type) {
	case string:
		a.script = v
		a.inline = inline(v)
		switch {
		case v == "":
			faults.Add("script", "is empty: set it to the name of a file or the text of a script")
		case !a.inline && (!filepath.IsLocal(v) || strings.ContainsRune(v, 0)):
			faults.Add("script", fmt.Sprintf("%q is not a path within the scripts' folder; the text of a script begins with #! "+
				"or has several lines", v))
		case a.inline && strings.ContainsRune(v, 0):
			faults.Add("script", "contains a zero byte")
		}
	case nil:
		faults.Add("script", "is missing: set it to the name of a file or the text of a script")
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

// names decodes a list of resources' names, or text with commas between them.
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
		faults.Add(path, "must be comma-separated names, or a list of names")
	}
	for _, name := range out {
		if why := model.CheckResourceName(name); why != "" {
			faults.Add(path, why)
		}
	}
	return out
}

// split splits a line into words as a shell does: at spaces, except within quotes and after
// backslashes. Nothing is expanded.
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
		return nil, errors.New("a backslash is the last character")
	}
	if in {
		words = append(words, word.String())
	}
	return words, nil
}

// inline reports whether a field "script" is the text of a script, not its name.
func inline(script string) bool {
	return strings.HasPrefix(script, "#!") || strings.Contains(script, "\n")
}
