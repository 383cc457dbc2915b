package model

import (
	"maps"
	"reflect"
)

// The ways to combine a request's configuration with the existing one.
const (
	// ConfigMerge merges them deeply (the default).
	ConfigMerge = "merge"
	// ConfigReplace takes the request's configuration alone, as the original did.
	ConfigReplace = "replace"
)

// MergeConfig returns base with the values of over applied. Objects are merged key by key at
// every depth, any other value replaces that of base, and null removes the key. Neither
// argument is changed. The result may share parts with both, so it must not be changed either.
//
// The original replaced the template's configuration as a whole, which users complained about
// (COOPR-586): a change of one key lost all others.
func MergeConfig(base, over map[string]any) map[string]any {
	if len(over) == 0 {
		return base
	}
	out := make(map[string]any, len(base)+len(over))
	maps.Copy(out, base)
	for k, v := range over {
		if v == nil {
			delete(out, k)
			continue
		}
		m, ok := v.(map[string]any)
		if !ok {
			out[k] = v
			continue
		}
		under, _ := out[k].(map[string]any)
		if merged := MergeConfig(under, m); merged != nil {
			out[k] = merged
		} else {
			out[k] = map[string]any{}
		}
	}
	return out
}

// CombineConfig applies a request's configuration to the existing one in the given mode; "" is
// ConfigMerge. A nil request changes nothing.
func CombineConfig(base, over map[string]any, mode string) map[string]any {
	if over == nil {
		return base
	}
	if mode == ConfigReplace {
		return over
	}
	return MergeConfig(base, over)
}

// RebaseConfig moves a configuration from old defaults to new ones: values that are still the
// old defaults become the new ones, and all others stay. It changes none of its arguments.
func RebaseConfig(old, defaults, config map[string]any) map[string]any {
	out := make(map[string]any, len(config))
	for k, v := range config {
		was, had := old[k]
		is, has := defaults[k]
		wasMap, ok1 := was.(map[string]any)
		isMap, ok2 := is.(map[string]any)
		vMap, ok3 := v.(map[string]any)
		switch {
		case ok1 && ok2 && ok3:
			out[k] = RebaseConfig(wasMap, isMap, vMap)
		case had && reflect.DeepEqual(was, v):
			if has {
				out[k] = is
			}
		default:
			out[k] = v
		}
	}
	for k, is := range defaults {
		_, had := old[k]
		if _, there := out[k]; !there && !had {
			out[k] = is
		}
	}
	return out
}
