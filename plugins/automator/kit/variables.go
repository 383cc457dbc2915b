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

// ParseVariables reads a field that is an object of variables, as KEY=value in
// the order of their names. What is wrong is added to faults, below path.
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
			faults.Add(path+"."+k, "must be text or a number")
		case !isVariable(k) || strings.ContainsRune(s, 0):
			faults.Add(path+"."+k, "cannot be an environment variable; names beginning with COOPR_ are set by Coopr")
		default:
			env = append(env, k+"="+s)
		}
	}
	return env
}

// Setting is a variable whose value is in the cluster's configuration.
type Setting struct{ Variable, Path string }

// ParseSettings reads a field that is an object: variable → path in the
// cluster's configuration.
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
			faults.Add(path+"."+k, "cannot be a variable's name")
		default:
			list = append(list, Setting{k, p})
		}
	}
	return list
}

// isVariable says whether fields may set a variable of that name.
func isVariable(name string) bool {
	return name != "" && !strings.ContainsAny(name, "=\x00") && !strings.HasPrefix(name, "COOPR_")
}

// Values gives the variables that a configuration has a value for, as KEY=value:
// text as it is, objects and lists as JSON.
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
			return nil, fmt.Errorf("configuration %s has a zero byte in it: it cannot be the variable %s", s.Path, s.Variable)
		}
		out = append(out, s.Variable+"="+text)
	}
	return out, nil
}

// Scalar gives text for what JSON holds as text, number or truth value.
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
