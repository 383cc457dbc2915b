package progress

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/model"
)

func TestRolloutFlags(t *testing.T) {
	for _, c := range []struct {
		args string
		want model.Rollout
		bad  bool
	}{
		{"", model.Rollout{}, false},
		{"--staged", model.Rollout{Staged: true}, false},
		{"--strategy batch=25% --max-failures 1", model.Rollout{Strategy: "batch=25%", MaxFailures: 1}, false},
		{"--batch 2", model.Rollout{Strategy: "batch=2"}, false},
		{"--canary", model.Rollout{Strategy: "canary"}, false},
		{"--canary --strategy parallel", model.Rollout{Strategy: "parallel-canary"}, false},
		{"--canary --strategy serial", model.Rollout{Strategy: "canary"}, false},
		{"--canary --batch 2", model.Rollout{}, true},
		{"--canary --strategy batch=2", model.Rollout{}, true},
		{"--batch 2 --strategy serial", model.Rollout{}, true},
	} {
		var r rollout
		cmd := &cobra.Command{}
		r.flags(cmd)
		if err := cmd.ParseFlags(strings.Fields(c.args)); err != nil {
			t.Fatal(err)
		}
		got, err := r.read(cmd)
		if (err != nil) != c.bad || err == nil && got != c.want {
			t.Errorf("%s: %+v, %v", c.args, got, err)
		}
	}
}
