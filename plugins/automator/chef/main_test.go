package chef

import (
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
	for _, fields := range []map[string]any{{}, {"run_list": " "}, {"run_list": "recipe[a]", "json_attributes": "[1]"},
		{"run_list": "recipe[a]", "json_attributes": 3.0}} {
		if _, faults := parse(fields); len(faults) != 1 {
			t.Errorf("%v: %v", fields, faults)
		}
	}
	if act, faults := parse(map[string]any{"run_list": "recipe[a]", "json_attributes": `{"a": {"b": 1}}`}); len(faults) > 0 ||
		act.attributes["a"] == nil {
		t.Errorf("%v %v", act, faults)
	}
}
