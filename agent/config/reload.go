package config

import (
	"fmt"
	"reflect"
	"strings"
)

// Changes are the paths in which two configurations differ.
type Changes struct {
	Now     []string // in force at once
	Restart []string // after a restart only
}

// Diff compares the running configuration with a new one. Apply the paths in Now, keep the rest, and tell the operator
// with String.
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

// Reloaded is the running configuration with those values of the new one that a reload reaches.
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

// String says what changed and what waits for a restart. Names only: values may be secret.
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
