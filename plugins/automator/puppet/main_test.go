package puppet

import (
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/coopr/coopr/testing/lab"
)

func TestMain(m *testing.M) {
	lab.Enter()
	goleak.VerifyTestMain(m)
}

// TestFieldFaults checks that all faults are reported together, each with its path.
func TestFieldFaults(t *testing.T) {
	_, faults := parse(map[string]any{"modulepath": 3.0, "facts": map[string]any{"COOPR_X": "1"}, "config": "web.port"})
	var got []string
	for _, f := range faults {
		got = append(got, f.Path)
	}
	if want := []string{"manifest", "modulepath", "facts.COOPR_X", "config"}; !slices.Equal(got, want) {
		t.Errorf("%v", faults)
	}
}
