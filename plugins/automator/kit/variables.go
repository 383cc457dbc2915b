package kit

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/model/confpath"
)

// ParseVariables decodes a field that is an object of variables into KEY=value, in the order of
// their names. Faults are added below path.
func ParseVariables(v any, path string, faults *model.Faults) (env []string) {
	if v == nil {
		return nil
	}
	m, ok := v.(map[string]any)
	if !ok {
		faults.Add(path, "must be an object of texts")
		return nil
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		s, ok := Scalar(m[k])
		switch {
		case !ok:
			faults.Add(path+"."+k, "must be text, a number or a truth value")
		case !isVariable(k) || strings.ContainsRune(s, 0):
			faults.Add(path+"."+k, "is not a valid environment variable; names that begin with COOPR_ are reserved")
		default:
			env = append(env, k+"="+s)
		}
	}
	return env
}

// Setting is a variable whose value is in the cluster's configuration.
type Setting struct{ Variable, Path string }

// ParseSettings decodes a field that is an object: variable → path in the cluster's configuration.
func ParseSettings(v any, path string, faults *model.Faults) (list []Setting) {
	if v == nil {
		return nil
	}
	m, ok := v.(map[string]any)
	if !ok {
		faults.Add(path, "must be an object: variable → path in the cluster's configuration")
		return nil
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		p, _ := m[k].(string)
		switch {
		case p == "":
			faults.Add(path+"."+k, "must be a path in the cluster's configuration, such as web.port")
		case !isVariable(k):
			faults.Add(path+"."+k, "is not a valid name of a variable")
		default:
			list = append(list, Setting{k, p})
		}
	}
	return list
}

// isVariable reports whether a field may set a variable of that name.
func isVariable(name string) bool {
	return name != "" && !strings.ContainsAny(name, "=\x00") && !strings.HasPrefix(name, "COOPR_")
}

// Values returns the variables whose paths have a value in the configuration, as KEY=value: text
// unchanged, objects and lists as JSON.
func Values(list []Setting, config map[string]any) ([]string, error) {
	var out []string
	for _, s := range list {
		v, ok := confpath.Lookup(config, s.Path)
		if !ok || v == nil {
			continue
		}
		text, ok := Scalar(v)
		if !ok {
			b, err := json.Marshal(v)
			if err != nil {
				return nil, fmt.Errorf("configuration %s: %w", s.Path, err)
			}
			text = string(b)
		}
		if strings.ContainsRune(text, 0) {
			return nil, fmt.Errorf("configuration %s contains a zero byte, so it cannot be the variable %s", s.Path, s.Variable)
		}
		out = append(out, s.Variable+"="+text)
	}
	return out, nil
}

// Scalar returns the text of a JSON text, number or truth value, and false for any other value.
func Scalar(v any) (string, bool) {
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
