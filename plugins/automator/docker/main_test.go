package docker

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
	_, faults := parse(map[string]any{"command": "--privileged", "environment_variables": "A=1, B", "publish_ports": 3.0, "engine": "here"})
	var got []string
	for _, f := range faults {
		got = append(got, f.Path)
	}
	if want := []string{"command", "publish_ports", "image_name", "engine", "environment_variables"}; !slices.Equal(got, want) {
		t.Errorf("%v", faults)
	}
	act, faults := parse(map[string]any{"image_name": "web:1", "registry": "registry.example:5000/", "environment_variables": "A=1, B=x=y",
		"publish_ports": "80:8080, 443:8443"})
	if len(faults) > 0 || act.image != "registry.example:5000/web:1" || !slices.Equal(act.env, []string{"A=1", "B=x=y"}) ||
		len(act.ports) != 2 {
		t.Errorf("%+v %v", act, faults)
	}
}
