package config

import (
	"fmt"
	"reflect"
	"strings"
)

// Changes has the paths in which two configurations differ.
type Changes struct {
	Now     []string // that a reload changes
	Restart []string // that need a restart
}

// Diff compares the running configuration with a new one. Reloaded applies the changes in Now.
func Diff(running, next Config) Changes {
	var out Changes
	a, b := reflect.ValueOf(running), reflect.ValueOf(next)
	for _, f := range Fields() {
		if reflect.DeepEqual(a.FieldByIndex(f.index).Interface(), b.FieldByIndex(f.index).Interface()) {
			continue
		}
		if f.Reload {
			out.Now = append(out.Now, f.Path)
		} else {
			out.Restart = append(out.Restart, f.Path)
		}
	}
	return out
}

// Reloaded returns the running configuration with the reloadable settings of the new one.
func Reloaded(running, next Config) Config {
	out := running
	to, from := reflect.ValueOf(&out).Elem(), reflect.ValueOf(next)
	for _, f := range Fields() {
		if f.Reload {
			to.FieldByIndex(f.index).Set(from.FieldByIndex(f.index))
		}
	}
	return out
}

// String returns the paths of the changes. It omits the values, which may be secret.
func (c Changes) String() string {
	var parts []string
	if len(c.Now) > 0 {
		parts = append(parts, "changed: "+strings.Join(c.Now, ", "))
	}
	if len(c.Restart) > 0 {
		parts = append(parts, fmt.Sprintf("restart the agent for: %s", strings.Join(c.Restart, ", ")))
	}
	if len(parts) == 0 {
		return "nothing changed"
	}
	return strings.Join(parts, "; ")
}
