package lint

import (
	"testing"

	"github.com/coopr/coopr/engine/model"
)

func TestDependencyCycle(t *testing.T) {
	service := func(provides string, requires ...string) model.Service {
		s := model.Service{}
		s.Dependencies.Provides = []string{provides}
		s.Dependencies.Runtime.Requires = requires
		return s
	}
	for _, c := range []struct {
		name     string
		services map[string]model.Service
		want     string
	}{
		{"none", map[string]model.Service{"a": service("", "b", "c"), "b": service("", "c"), "c": service("")}, ""},
		{"two", map[string]model.Service{"b": service("", "a"), "a": service("", "b")}, "a → b → a"},
		{"through a provided name", map[string]model.Service{"a": service("", "db"), "m": service("db", "a")}, "a → m → a"},
		{"itself by what it provides is none", map[string]model.Service{"m": service("db", "db")}, ""},
		{"a provider stands for the real one", map[string]model.Service{"db": service("", "x"), "m": service("db"), "x": service("", "db")}, ""},
		{"names that are not there", map[string]model.Service{"a": service("", "x"), "b": service("", "a")}, ""},
		{"least name first", map[string]model.Service{"z": service("", "y"), "y": service("", "x"), "x": service("", "z"), "a": service("", "z")},
			"x → z → y → x"},
	} {
		if got := arrows(dependencyCycle(c.services)); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
	// Install after runtime is not a circle: each stage has its own order.
	a, b := service("", "b"), model.Service{}
	b.Dependencies.Install.Requires = []string{"a"}
	if got := dependencyCycle(map[string]model.Service{"a": a, "b": b}); got != nil {
		t.Errorf("across stages: %v", got)
	}
}
