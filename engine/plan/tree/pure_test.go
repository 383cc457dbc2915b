package tree

import (
	"slices"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/plan"
)

var fields = strings.Fields

// pure returns a view without a graph. Each phase is written as "name strategy: steps", with steps
// in the letters of words. Canaries are held back as at the beginning.
func pure(t *testing.T, name, strategy string, phases ...string) *View {
	t.Helper()
	s, err := ParseStrategy(strategy)
	if err != nil {
		t.Fatal(err)
	}
	v := &View{Tree: &Tree{Name: name, Strategy: s}}
	for _, text := range phases {
		head, steps, _ := strings.Cut(text, ":")
		name, kind, _ := strings.Cut(head, " ")
		s, err := ParseStrategy(kind)
		if err != nil {
			t.Fatal(err)
		}
		first := uint32(len(v.Steps))
		v.Steps = append(v.Steps, words(strings.TrimSpace(steps))...)
		v.Phases = append(v.Phases, Phase{Name: name, Strategy: s, First: first, End: uint32(len(v.Steps))})
		v.Held = append(v.Held, false)
	}
	apply(v, Result{Code: CodeOK, Gates: Arm(v, false)})
	return v
}

// apply carries out a result as the state machine does.
func apply(v *View, r Result) {
	if r.Code != CodeOK {
		return
	}
	set := func(parts []plan.Part, to Status) {
		for s := range v.Steps {
			p := v.phaseOf(uint32(s))
			for _, part := range parts {
				if part == plan.Whole() || part == plan.Phase(uint32(p)) || part == plan.Step(uint32(s)) {
					v.Steps[s].Status = to
				}
			}
		}
	}
	set(r.Complete, Complete)
	set(r.Restart, Pending)
	for _, c := range r.Gates {
		if c.Part == plan.Whole() {
			v.Interrupted = c.Shut
		}
		for p := range v.Phases {
			if c.Part == plan.Phase(uint32(p)) {
				v.Held[p] = c.Shut
			}
		}
		for s := range v.Steps {
			if c.Part != plan.Step(uint32(s)) {
				continue
			}
			if c.Gate == plan.GateCanary {
				v.Steps[s].Behind = c.Shut
			} else {
				v.Steps[s].Interrupted = c.Shut
			}
		}
	}
	for i := range v.Steps {
		s := &v.Steps[i]
		if s.Status == Waiting {
			s.Status = Pending
		}
		s.Status = s.Status.Shown(s.Interrupted)
	}
}

// order gives the order "command plan phase step", applies its result to the view, and returns the
// result.
func order(t *testing.T, v *View, text string) Result {
	t.Helper()
	w := append(fields(text), "", "")
	r := Give([]*View{v}, Order{Command: w[0], Plan: v.Name, Phase: w[1], Step: w[2], Params: map[string]string{}})
	apply(v, r)
	return r
}

// letters returns the steps in the letters of words, in capitals.
func (v *View) letters() string {
	out := ""
	for _, c := range v.Steps {
		out += string("PRSTCIWDE"[c.Status])
	}
	return out
}

func wantCandidates(t *testing.T, id string, v *View, want ...uint32) {
	t.Helper()
	if got := v.Candidates(nil); !slices.Equal(got, want) {
		t.Errorf("%s: candidates %v, not %v (%s)", id, got, want, v.letters())
	}
}

// walk runs a script of lines "action → candidates" on a view and compares the candidates. "done N
// …" completes steps; every other action is an order.
func walk(t *testing.T, id string, v *View, script ...string) {
	t.Helper()
	for _, line := range script {
		do, want, _ := strings.Cut(line, "→")
		do = strings.TrimSpace(do)
		if w := fields(do); len(w) > 0 && w[0] == "done" {
			for _, n := range w[1:] {
				v.Steps[n[0]-'0'].Status = Complete
			}
		} else if do != "" {
			order(t, v, do)
		}
		var steps []uint32
		for _, n := range fields(want) {
			steps = append(steps, uint32(n[0]-'0'))
		}
		wantCandidates(t, id+" "+do, v, steps...)
	}
}

func TestStrategies(t *testing.T) {
	for _, c := range []struct {
		id, phase string
		script    []string
	}{
		{"STR-01", "p serial: PPP", []string{"→0", "done 0→1", "done 1→2", "done 2→"}},
		{"STR-02", "p serial: PCP", []string{"→0", "done 0→2", "done 2→"}},
		{"STR-03", "p serial: PPP", []string{"→0", "interrupt p→", "continue p→0", "interrupt p→", "done 0→", "continue p→1"}},
		{"STR-04", "p parallel: PPP", []string{"→0 1 2", "done 1→0 2", "interrupt p→", "continue p→0 2", "done 0→2", "done 2→"}},
		{"STR-05 none", "p random:", []string{"→"}},
		{"STR-05", "p random: P", []string{"→0", "done 0→"}},
		{"STR-06", "p serial-canary: PPPPP", []string{"→", "continue p→0", "done 0→", "continue p→1", "done 1→2", "done 2→3", "done 3→4", "done 4→"}},
		{"STR-08", "p parallel-canary: PPPPP", []string{"→", "continue p→0", "done 0→", "continue p→1 2 3 4", "done 2 4→1 3"}},
		{"STR-09", "p canary: PPPP", []string{"interrupt p→", "continue p→0", "interrupt p→0", "done 0→", "continue p→1", "interrupt p→", "continue p→1"}},
		{"STR-10", "p canary: CPCPP", []string{"→", "continue p→1", "done 1→", "continue p→3", "done 3→4"}},
		{"STR-12", "p canary: P", []string{"→", "continue p→0", "done 0→"}},
		{"STR-13", "p canary:", []string{"→", "continue p→"}},
		// Extensions of the SDK: batches, and the same order on every run (difference 3).
		{"batch 2", "p batch 2: PPPPP", []string{"→0 1", "done 1→0", "done 0→2 3", "done 2 3→4", "done 4→"}},
		{"batch 40%", "p batch 40%: PPPPP", []string{"→0 1", "done 0 1→2 3"}},
		{"batch 1%", "p batch 1%: PP", []string{"→0"}},
		{"difference 3", "p serial: CCC", []string{"→", "restart→0", "done 0→1", "restart p 0→0", "done 0→1"}},
		// Canaries that run while other steps wait keep a serial order.
		{"canary, released early", "p canary: PPPP", []string{"continue p→0", "continue p→0", "done 0→1", "done 1→2"}},
		{"difference 5", "p canary: PPPP", []string{"continue p→0", "continue p→0", "done 0 1 2 3→", "restart p→", "continue p→0", "restart p 0→0"}},
		{"forced canaries", "p canary: PPPP", []string{"forceComplete p 0→", "forceComplete p 1→2"}},
		{"stop arms again", "p canary: PPPP", []string{"continue p→0", "done 0→", "stop→", "continue→", "continue p→0"}},
	} {
		walk(t, c.id, pure(t, "x", "serial", c.phase), c.script...)
	}

	three := pure(t, "x", "serial", "p serial: PPPP")
	three.Phases[0].Strategy.Canary = 3
	apply(three, Result{Code: CodeOK, Gates: Arm(three, false)})
	walk(t, "STR-07", three, "→", "continue p→0", "done 0→", "continue p→1", "done 1→", "continue p→2", "done 2→3")

	dirty := pure(t, "x", "serial", "p parallel-canary: PPP")
	order(t, dirty, "continue p")
	if got := dirty.Candidates(func(s uint32) bool { return s == 0 }); got != nil {
		t.Errorf("STR-11: %v, though the canary's asset is dirty", got)
	}
	random := pure(t, "x", "serial", "p random: PPP")
	random.Pick = func(n int) int { return n - 1 }
	wantCandidates(t, "random, the last", random, 2)

	rest := pure(t, "x", "serial", "p dependency: PPP")
	rest.Steps[1].Waits = true
	wantCandidates(t, "dependency", rest, 0, 2)
	if rest.Steps[0].Waits, rest.Steps[2].Waits = true, true; rest.Status() != Pending {
		t.Errorf("a phase that waits for others alone is %s", rest.Status())
	}
}

// TestCanaryWalk is the walk of HW/tests/test_canary_strategy.py.
func TestCanaryWalk(t *testing.T) {
	v := pure(t, "deploy", "serial", "hello parallel-canary: PPPP", "world serial-canary: PPPP")
	expect := func(id, steps string, plan, hello, world Status) {
		t.Helper()
		if got := v.letters(); got != steps || v.Status() != plan || v.PhaseStatus(0) != hello || v.PhaseStatus(1) != world {
			t.Errorf("%s: %s %s %s %s, not %s %s %s %s", id, got, v.Status(), v.PhaseStatus(0), v.PhaseStatus(1), steps, plan, hello, world)
		}
	}
	work := func(want ...uint32) { // complete candidates until there are none
		t.Helper()
		var did []uint32
		for next := v.Candidates(nil); len(next) > 0; next = v.Candidates(nil) {
			for _, s := range next {
				v.Steps[s].Status = Complete
			}
			did = append(did, next...)
		}
		if !slices.Equal(did, want) {
			t.Errorf("worked on %v, not %v", did, want)
		}
	}
	work()
	expect("STR-14", "WWPPWWPP", Waiting, Waiting, Waiting)
	order(t, v, "continue hello")
	work(0)
	expect("STR-15", "CWPPWWPP", Waiting, Waiting, Waiting)
	if r := order(t, v, "continue"); r.Code != CodeOK || len(r.Gates) > 0 {
		t.Errorf("STR-16: %+v", r)
	}
	order(t, v, "continue world")
	work()
	expect("STR-17", "CWPPPWPP", Waiting, Waiting, Pending)
	order(t, v, "continue hello")
	work(1, 2, 3, 4)
	expect("STR-18", "CCCCCWPP", Waiting, Complete, Waiting)
	order(t, v, "continue world")
	work(5, 6, 7)
	expect("STR-19", "CCCCCCCC", Complete, Complete, Complete)

	v = pure(t, "deploy", "serial", "hello parallel-canary: CCCCP", "world serial-canary: CC")
	expect("STR-20 scaled", "CCCCWCC", Waiting, Waiting, Complete)
	order(t, v, "continue hello")
	work(4)
	expect("STR-20 scaled", "CCCCCCC", Complete, Complete, Complete)
	v = pure(t, "deploy", "serial", "hello parallel-canary: PPPPP", "world serial-canary: CCCC")
	expect("STR-20 changed", "WWPPPCCCC", Waiting, Waiting, Complete)
	order(t, v, "continue hello")
	work(0)
	expect("STR-20 changed", "CWPPPCCCC", Waiting, Waiting, Complete)
	order(t, v, "continue hello")
	work(1, 2, 3, 4)
	expect("STR-20 changed", "CCCCCCCCC", Complete, Complete, Complete)
}

// TestInterruptedLevels checks that a serial plan waits if its only candidate phase is interrupted,
// and that a parallel plan continues with its other phase (§2, note).
func TestInterruptedLevels(t *testing.T) {
	for _, c := range []struct {
		strategy string
		want     Status
	}{{"serial", Waiting}, {"parallel", Pending}} {
		v := pure(t, "x", c.strategy, "a serial: P", "b serial: P")
		v.Held[0] = true
		if got := v.Status(); got != c.want {
			t.Errorf("%s: %s, not %s", c.strategy, got, c.want)
		}
	}
	// DefaultPlanManagerTest.
	for _, c := range []struct {
		steps     string
		intr      bool
		want      Status
		candidate []uint32
	}{
		{"P|P", false, Pending, []uint32{0}},
		{"C|P", false, InProgress, []uint32{1}},
		{"C|C", false, Complete, nil},
		{"E|P", false, Error, nil},
		{"R|R", true, Waiting, nil},
		{"R|R", false, InProgress, []uint32{0}},
		{"|", false, Complete, nil},
	} {
		a, b, _ := strings.Cut(c.steps, "|")
		v := pure(t, "x", "serial", "a serial: "+a, "b serial: "+b)
		v.Interrupted = c.intr
		if got := v.Status(); got != c.want {
			t.Errorf("%s: %s, not %s", c.steps, got, c.want)
		}
		wantCandidates(t, c.steps, v, c.candidate...)
	}
}

// TestMaxFailures checks that tolerated failures let the next batch continue, and no more than
// that.
func TestMaxFailures(t *testing.T) {
	v := pure(t, "x", "serial", "p batch 2: CEPPP", "q serial: P")
	v.Phases[0].Strategy.MaxFailures = 1
	if !v.Phases[0].Strategy.Tolerates(1) || v.Phases[0].Strategy.Tolerates(2) {
		t.Error("one may fail")
	}
	wantCandidates(t, "an error that is not tolerated", v)
	v.Steps[1].Tolerated, v.Steps[1].Over = true, true
	wantCandidates(t, "a tolerated error", v, 2, 3)
	if v.Status() != Error || v.PhaseStatus(0) != Error {
		t.Errorf("it shows nevertheless: %s", v.Status())
	}
	for i := 2; i < 5; i++ {
		v.Steps[i].Status = Complete
	}
	wantCandidates(t, "the next phase", v, 5)
}
