package tree

import (
	"encoding/json"
	"testing"
)

// TestIdle checks that a plan without work is complete and accepts orders like a complete plan.
func TestIdle(t *testing.T) {
	v := Idle("recovery", "00000001")
	info := v.Info()
	b, err := json.Marshal(info)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Status, Strategy string
		Phases, Errors   []any
	}
	if err := json.Unmarshal(b, &got); err != nil || got.Status != "COMPLETE" || got.Strategy != "parallel" ||
		got.Phases == nil || len(got.Phases) != 0 || got.Errors == nil || info.Code() != CodeOK {
		t.Errorf("it is shown as %s (%v)", b, err)
	}
	if text := info.Text("recovery"); text != "recovery (parallel strategy) (COMPLETE)" {
		t.Errorf("it is drawn as %q", text)
	}
	for order, want := range map[string]int{
		"start": CodeOK, "restart": CodeOK, "stop": CodeOK,
		"interrupt": CodeAlready, "continue": CodeAlready, "forceComplete": CodeAlready,
	} {
		if r := Give([]*View{v}, Order{Command: order, Plan: "recovery"}); r.Code != want {
			t.Errorf("%s: %d %s", order, r.Code, r.Message)
		}
	}
	if r := Give([]*View{v}, Order{Command: "restart", Plan: "recovery", Phase: "x"}); r.Code != CodeNotFound {
		t.Errorf("a phase of it: %d %s", r.Code, r.Message)
	}
}
