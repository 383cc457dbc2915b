package tree

import (
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/plan"
)

func TestOrders(t *testing.T) {
	const ok, already, bad, missing = CodeOK, CodeAlready, CodeBad, CodeNotFound
	whole := []plan.Part{plan.Whole()}
	phase := []plan.Part{plan.Phase(0)}
	step := []plan.Part{plan.Step(1)}
	for _, c := range []struct {
		id, steps string // steps of phase "a" and, after a bar, of "b"
		before    string // orders given before
		order     string // includes the plan's name
		code      int
		message   string
		complete  []plan.Part
		restart   []plan.Part
		then      string // the statuses after the order
	}{
		{"API-07 plan", "P|P", "interrupt x", "continue x", ok, "Received cmd: continue", nil, nil, "PP"},
		{"API-07 phase", "P|P", "interrupt x a", "continue x a", ok, "Received cmd: continue", nil, nil, "PP"},
		{"API-07 id", "P|P", "interrupt x a", "continue x {a}", ok, "Received cmd: continue", nil, nil, "PP"},
		{"API-08 plan", "P|P", "", "continue y", missing, "Plan y not found", nil, nil, ""},
		{"API-08 phase", "P|P", "", "continue x z", missing, "Phase z not found", nil, nil, ""},
		{"API-09", "SC|P", "", "continue x", already, "Command has already been reported or completed", nil, nil, ""},
		{"API-09 phase", "RC|P", "", "continue x a", already, "", nil, nil, ""},
		{"API-10", "C|C", "", "continue x", already, "", nil, nil, ""},
		{"API-11", "P|P", "", "interrupt x", ok, "Received cmd: interrupt", nil, nil, ""},
		{"API-11 phase", "P|P", "", "interrupt x a", ok, "Received cmd: interrupt", nil, nil, ""},
		{"API-12", "P|P", "", "interrupt y", missing, "Plan y not found", nil, nil, ""},
		{"API-12 phase", "P|P", "", "interrupt x z", missing, "Phase z not found", nil, nil, ""},
		{"API-13", "P|P", "interrupt x", "interrupt x", already, "", nil, nil, ""},
		{"API-13 phase", "P|P", "interrupt x a", "interrupt x a", already, "", nil, nil, ""},
		{"API-14", "C|C", "", "interrupt x", already, "", nil, nil, ""},
		{"API-14 phase", "C|P", "", "interrupt x a", already, "", nil, nil, ""},
		{"API-15 names", "PS|P", "", "forceComplete x a a-1", ok, "Received cmd: forceComplete for Plan: x, Phase: a, Step: a-1", step,
			nil, "PCP"},
		{"API-15 ids", "PS|P", "", "forceComplete x {a} {a-1}", ok, "", step, nil, "PCP"},
		{"API-16 plan", "PS|P", "", "forceComplete y a a-1", missing, "Plan y not found", nil, nil, ""},
		{"API-16 phase", "PS|P", "", "forceComplete x z a-1", missing, "Phase z not found", nil, nil, ""},
		{"API-16 step", "PS|P", "", "forceComplete x a b-0", missing, "Step b-0 not found", nil, nil, ""},
		{"API-16 twins", "PS|P", "", "forceComplete x a same", missing, "Step same not found", nil, nil, ""},
		{"API-17", "PC|P", "", "forceComplete x a a-1", already, "", nil, nil, ""},
		{"API-17 phase", "CC|P", "", "forceComplete x a", already, "", nil, nil, ""},
		{"API-17 plan", "CC|C", "", "forceComplete x", already, "", nil, nil, ""},
		{"API-18", "PS|P", "", "forceComplete x", ok, "Received cmd: forceComplete for Plan: x, Phase: null, Step: null", whole, nil, "CCC"},
		{"API-19", "PS|P", "", "forceComplete x a", ok, "Received cmd: forceComplete for Plan: x, Phase: a, Step: null", phase, nil, "CCP"},
		{"API-20", "P|P", "", "forceComplete x - a-0", bad, "Missing phase", nil, nil, ""},
		{"API-21", "P|P", "", "forceComplete", missing, "Plan  not found", nil, nil, ""},
		{"API-22", "PS|P", "", "restart x a a-1", ok, "Received cmd: restart for Plan: x, Phase: a, Step: a-1", nil, step, "PPP"},
		{"API-22 complete", "PC|P", "", "restart x a a-1", ok, "", nil, step, "PPP"},
		{"API-22 pending", "PP|P", "", "restart x a a-1", already, "", nil, nil, ""},
		{"API-23", "PP|P", "", "restart x a z", missing, "Step z not found", nil, nil, ""},
		{"API-24", "CC|P", "interrupt x", "restart x", ok, "Received cmd: restart for Plan: x, Phase: null, Step: null", nil, whole, "PPP"},
		{"API-24 prepared", "RP|P", "", "restart x", ok, "", nil, whole, "PPP"},
		{"API-24 pending", "PP|P", "", "restart x", already, "", nil, nil, ""},
		{"API-25", "CC|C", "", "restart x a", ok, "", nil, phase, "PPC"},
		{"API-26", "CC|C", "", "restart x z", missing, "Phase z not found", nil, nil, ""},
		{"API-27", "CC|C", "", "restart x - a-0", bad, "Missing phase", nil, nil, ""},
		{"API-28", "SP|P", "", "start x", ok, "Received cmd: start x with parameters: {}", nil, nil, "SPP"},
		{"API-28 interrupted", "PP|P", "interrupt x", "start x", ok, "", nil, nil, "PPP"},
		{"API-29", "CC|C", "", "start x", ok, "", nil, whole, "PPP"},
		{"API-30", "PP|P", "", "start y", missing, "Plan y not found", nil, nil, ""},
		{"API-31", "CS|P", "", "stop x", ok, "Received cmd: stop", nil, whole, "PPP"},
		{"API-32", "CS|P", "", "stop y", missing, "Plan y not found", nil, nil, ""},
		// In the SDK "start" continues with the steps that are not complete.
		{"difference 4", "CP|P", "interrupt x", "start x", ok, "", nil, whole, "PPP"},
		{"difference 4, continue", "CP|P", "interrupt x", "continue x", ok, "", nil, nil, "CPP"},
		{"a phase of start", "P|P", "", "start x a", bad, "start is of whole plans: leave the phase away", nil, nil, ""},
		{"a step of continue", "P|P", "", "continue x a a-0", bad, "continue is of plans and phases: leave the step away", nil, nil, ""},
		{"no such order", "P|P", "", "boil x", bad,
			`there is no order "boil": it must be start, stop, interrupt, continue, forceComplete or restart`, nil, nil, ""},
	} {
		a, b, _ := strings.Cut(c.steps, "|")
		v := pure(t, "x", "serial", "a serial: "+a, "b serial: "+b)
		v.StepName = func(s uint32) string {
			if strings.HasSuffix(c.order, " same") {
				return "same"
			}
			return []string{"a-0", "a-1", "b-0"}[s]
		}
		if c.before != "" {
			_, rest, _ := strings.Cut(c.before, " x")
			order(t, v, fields(c.before)[0]+rest)
		}
		w := append(fields(strings.NewReplacer("{a}", v.PhaseID(0), "{a-1}", v.StepID(0, 1)).Replace(c.order)), "", "", "")
		r := Give([]*View{v}, Order{Command: w[0], Plan: w[1], Phase: strings.Trim(w[2], "-"), Step: w[3]})
		if r.Code != c.code || c.message != "" && r.Message != c.message || !same(r.Complete, c.complete) || !same(r.Restart, c.restart) {
			t.Errorf("%s: %+v", c.id, r)
		}
		if c.code != ok && (r.Gates != nil || r.Start) {
			t.Errorf("%s: a refusal does something: %+v", c.id, r)
		}
		if apply(v, r); c.then != "" && c.id != "API-31" && v.letters() != c.then {
			t.Errorf("%s: %s, not %s", c.id, v.letters(), c.then)
		}
		wantIntr := w[0] == "interrupt" || w[0] == "stop"
		if c.code == ok && w[2] == "" && w[0] != "forceComplete" && v.Interrupted != wantIntr {
			t.Errorf("%s: the plan is interrupted: %v", c.id, v.Interrupted)
		}
	}
}

func same(a, b []plan.Part) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func TestStartParameters(t *testing.T) {
	v := pure(t, "x", "serial", "a serial: P")
	for _, c := range []struct {
		plan   string
		params map[string]string
		code   int
		text   string
	}{
		// The names of parameters are checked before the plan.
		{"y", map[string]string{"1A": "b"}, CodeBad, "Couldn't parse parameters: 1A is not a valid environment variable name"},
		{"x", map[string]string{"": "b"}, CodeBad, "Couldn't parse parameters:  is not a valid environment variable name"},
		{"y", map[string]string{"_A1": "b"}, CodeNotFound, "Plan y not found"},
		{"x", map[string]string{"B": "c=d", "A": "b"}, CodeOK, "Received cmd: start x with parameters: {A=b, B=c=d}"},
	} {
		r := Give([]*View{v}, Order{Command: "start", Plan: c.plan, Params: c.params})
		if r.Code != c.code || r.Message != c.text || r.Start != (c.code == CodeOK) {
			t.Errorf("%+v", r)
		}
	}
}

// TestPhasesOfOneName checks that an order for a name that several phases have applies to all of
// them.
func TestPhasesOfOneName(t *testing.T) {
	v := pure(t, "x", "parallel", "a serial: P", "a serial: CC", "b serial: P")
	if r := order(t, v, "interrupt a"); r.Code != CodeOK || !v.Held[0] || !v.Held[1] || v.Held[2] {
		t.Errorf("%+v", r)
	}
	if r := order(t, v, "interrupt a"); r.Code != CodeAlready {
		t.Errorf("%+v", r)
	}
	if r := order(t, v, "restart a"); r.Code != CodeOK || len(r.Restart) != 2 || v.Held[0] {
		t.Errorf("%+v", r)
	}
}

func TestHealth(t *testing.T) {
	for _, c := range []struct {
		id, deploy, recovery, backup, restore string
		code                                  int
	}{
		{"step error", "EP", "", "", "", 500},
		{"pending", "RPSSS", "", "", "", 204},
		{"starting", "STCCC", "", "", "", 202},
		{"complete", "CCCCC", "", "", "", 200},
		{"delayed", "CD", "", "", "", 208},
		{"recovery pending", "CC", "P", "", "", 203},
		{"recovery starting", "CC", "S", "", "", 205},
		{"recovery delayed", "CC", "D", "", "", 208},
		{"backup", "CC", "", "S", "", 320},
		{"restore", "CC", "", "", "S", 321},
		{"both", "CC", "", "S", "S", 321},
		{"a backup that was not started", "CC", "", "P", "", 200},
	} {
		var plans []*View
		for i, steps := range []string{c.deploy, c.recovery, c.backup, c.restore} {
			plans = append(plans, pure(t, []string{"deploy", "recovery", "backup-s3", "restore-s3"}[i], "parallel", "p parallel: "+steps))
		}
		if got := HealthOf(plans, true); got.Code != c.code || len(got.Reasons) != 4 {
			t.Errorf("%s: %+v, not %d", c.id, got, c.code)
		}
		if got := HealthOf(plans, false); got.Code != 318 {
			t.Errorf("%s, not registered: %+v", c.id, got)
		}
	}
	for _, kind := range []string{"serial-canary", "parallel-canary"} {
		if got := HealthOf([]*View{pure(t, "deploy", "serial", "p "+kind+": PPPP")}, true); got.Code != 207 {
			t.Errorf("%s: %+v", kind, got)
		}
	}
	if got := HealthOf(nil, true); got.Code != 503 {
		t.Errorf("no plans: %+v", got)
	}
}

func TestDebug(t *testing.T) {
	plans := []*View{pure(t, "deploy", "serial", "a serial: CP", "b parallel: P"), pure(t, "recovery", "parallel"),
		pure(t, "backup", "serial", "a serial: S")}
	d, err := DebugOf(plans, "", "", "")
	if err != nil || d.State != "DEPLOYING" || len(d.Plans) != 3 || d.Plans[0].Total != 3 || d.Plans[0].Completed != 1 ||
		strings.Join(d.Active, " ") != "deploy backup" {
		t.Errorf("%+v, %v", d, err)
	}
	d, err = DebugOf(plans, "deploy", "a", plans[0].StepID(0, 1))
	if err != nil || len(d.Plans) != 1 || len(d.Plans[0].Phases) != 1 || len(d.Plans[0].Phases[0].Steps) != 1 {
		t.Errorf("%+v, %v", d, err)
	}
	for _, c := range [][3]string{{"x", "", ""}, {"deploy", "x", ""}, {"deploy", "a", "x"}, {"", "a", ""}, {"deploy", "", "x"}} {
		if _, err := DebugOf(plans, c[0], c[1], c[2]); err == nil {
			t.Errorf("%v is found", c)
		}
	}
	for i := range plans[0].Steps {
		plans[0].Steps[i].Status = Complete
	}
	plans[2].Steps[0].Status = Prepared
	if d, err = DebugOf(plans, "", "", ""); err != nil || d.State != "RUNNING" {
		t.Errorf("%+v, %v", d, err)
	}
}
