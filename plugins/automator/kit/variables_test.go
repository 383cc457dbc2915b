package kit

import (
	"slices"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
)

// TestConfigVariables checks that existing paths of the configuration become variables, and that
// missing ones set nothing.
func TestConfigVariables(t *testing.T) {
	var faults model.Faults
	list := ParseSettings(map[string]any{"A": "web.port", "B": "web", "C": "web.none", "D": "nul"}, "config", &faults)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	got, err := Values(list, map[string]any{"web": map[string]any{"port": 8080.0}})
	if want := []string{"A=8080", `B={"port":8080}`}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q %v", got, err)
	}
	if _, err := Values(list, map[string]any{"nul": "a\x00b"}); err == nil || !strings.Contains(err.Error(), "configuration nul") {
		t.Error(err)
	}
}
