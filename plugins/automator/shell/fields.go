package shell

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/model/confpath"
)

// action is what a task's fields say.
type action struct {
	script string   // text or file name
	inline bool     // script is the text itself
	args   []string // its arguments
	env    []string // KEY=value
	config []setting
	shell  string // interpreter of scripts that name none
	files  map[string]string
	expect []int // exit statuses that mean success, of RUN
}

// setting is a variable whose value is in the cluster's configuration.
type setting struct{ variable, path string }

// parse reads the fields, giving all that is wrong with them.
func parse(fields map[string]any) (*action, model.Faults) {
	var faults model.Faults
	a := &action{shell: "/bin/sh"}
	switch v := fields["script"].(type) {
	case string:
		a.script = v
		a.inline = strings.HasPrefix(v, "#!") || strings.Contains(v, "\n")
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
			s, ok := scalar(x)
			if !ok {
				faults.Add(fmt.Sprintf("args[%d]", i), "must be text or a number")
			}
			a.args = append(a.args, s)
		}
	default:
		faults.Add("args", "must be text or a list of texts")
	}
	switch v := fields["env"].(type) {
	case nil:
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			s, ok := scalar(v[k])
			switch {
			case !ok:
				faults.Add("env."+k, "must be text or a number")
			case !isVariable(k) || strings.ContainsRune(s, 0):
				faults.Add("env."+k, "cannot be an environment variable; names beginning with COOPR_ are set by Coopr")
			default:
				a.env = append(a.env, k+"="+s)
			}
		}
	default:
		faults.Add("env", "must be an object of texts")
	}
	switch v := fields["config"].(type) {
	case nil:
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			path, _ := v[k].(string)
			switch {
			case path == "":
				faults.Add("config."+k, "must be a path in the cluster's configuration, such as web.port")
			case !isVariable(k):
				faults.Add("config."+k, "cannot be a variable's name")
			default:
				a.config = append(a.config, setting{k, path})
			}
		}
	default:
		faults.Add("config", "must be an object: variable → path in the cluster's configuration")
	}
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

// isVariable says whether fields may set a variable of that name.
func isVariable(name string) bool {
	return name != "" && !strings.ContainsAny(name, "=\x00") && !strings.HasPrefix(name, "COOPR_")
}

// variables gives those that the configuration has a value for: text as it is,
// objects and lists as JSON.
func (a *action) variables(config map[string]any) ([]string, error) {
	var out []string
	for _, s := range a.config {
		v, ok := confpath.Lookup(config, s.path)
		if !ok || v == nil {
			continue
		}
		text, ok := scalar(v)
		if !ok {
			b, err := json.Marshal(v)
			if err != nil {
				return nil, fmt.Errorf("configuration %s: %w", s.path, err)
			}
			text = string(b)
		}
		if strings.ContainsRune(text, 0) {
			return nil, fmt.Errorf("configuration %s has a zero byte in it: it cannot be the variable %s", s.path, s.variable)
		}
		out = append(out, s.variable+"="+text)
	}
	return out, nil
}

// scalar gives text for what JSON holds as text, number or truth value.
func scalar(v any) (string, bool) {
	switch x := v.(type) {
	case string:
		return x, true
	case bool:
		return fmt.Sprint(x), true
	case float64:
		return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%f", x), "0"), "."), true
	case fmt.Stringer: // json.Number
		return x.String(), true
	}
	return "", false
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
