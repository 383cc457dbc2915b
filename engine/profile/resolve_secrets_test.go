package profile_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/profile"
)

// TestResolveTooLarge checks that a short text cannot become one of any length.
func TestResolveTooLarge(t *testing.T) {
	calls := 0
	fields := map[string]any{"a": strings.Repeat("${secure(s)}", 1000)}
	_, err := profile.Resolve(fields, func(string) (string, error) { calls++; return strings.Repeat("x", 1<<20), nil })
	if !errors.Is(err, problem.TooLarge) || calls > 10 {
		t.Errorf("%v after %d calls", err, calls)
	}
}

func TestResolve(t *testing.T) {
	lookup := func(name string) (string, error) {
		if name == "none" {
			return "", errors.New("there is no such secret")
		}
		return "<" + name + ` "quoted">`, nil
	}
	fields := map[string]any{"plain": "${other(a)}", "n": 7.0, "deep": []any{map[string]any{"x": "a ${secure(p)} b ${secure(q)}"}}}
	want := map[string]any{"plain": "${other(a)}", "n": 7.0,
		"deep": []any{map[string]any{"x": model.Hidden{Value: `a <p "quoted"> b <q "quoted">`}}}}
	got, err := profile.Resolve(fields, lookup)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", err, got["deep"])
	}
	if !profile.Refers(fields) || profile.Refers(map[string]any{"plain": "${other(a)}"}) {
		t.Error("Refers is wrong")
	}
	if _, err := profile.Resolve(map[string]any{"a": map[string]any{"b": "${secure(none)}"}}, lookup); err == nil ||
		!strings.HasPrefix(err.Error(), "a: b: there is no such secret") {
		t.Error(err)
	}
}
