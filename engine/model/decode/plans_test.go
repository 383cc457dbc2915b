package decode

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/model/lint"
)

const planHead = "name: t\ndefaults: {services: [s, u], provider: p}\n"

func decodePlans(t *testing.T, text string) ([]model.Plan, error) {
	t.Helper()
	d, err := Definition(model.KindClusterTemplate, []byte(planHead+text))
	if err != nil {
		return nil, err
	}
	again, err := Definition(model.KindClusterTemplate, []byte(encoded(t, d)))
	if err != nil || !reflect.DeepEqual(again.Value, d.Value) {
		t.Errorf("what is stored is read differently: %v", err)
	}
	return d.Value.(*model.ClusterTemplate).Plans, nil
}

// Plans as the SDK writes them keep their order, and so do their phases.
func TestDecodePlans(t *testing.T) {
	got, err := decodePlans(t, `
plans:
  update:
    strategy: parallel
    phases:
      second: {pod: u, strategy: parallel-canary}
      first:
        service: s
        steps:
        - 0: [[install], [configure, start]]
        - default: []
  deploy:
    phases:
    - {name: roll, service: s, batch: 25%, max_failures: 2, timeout: 1h}
`)
	want := []model.Plan{
		{Name: "update", Strategy: "parallel", Phases: []model.PlanPhase{
			{Name: "second", Service: "u", Strategy: "parallel-canary"},
			{Name: "first", Service: "s", Steps: []model.PlanSteps{
				{Node: "0", Tasks: [][]string{{"install"}, {"configure", "start"}}}, {Node: "default"}}},
		}},
		{Name: "deploy", Phases: []model.PlanPhase{{Name: "roll", Service: "s", Batch: "25%", MaxFailures: 2, Timeout: 3600_000}}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}

// All faults are reported together, with paths and lines.
func TestPlanFaults(t *testing.T) {
	_, err := decodePlans(t, `
plans:
  deploy:
    strategy: canary
    phases:
      a: {strategy: sideways, service: s}
      b: {pod: s, service: s}
      c: {strategy: batch}
      d:
        service: s
        batch: 0%
        steps:
        - 0: [[install]]
          1: [[install]]
        - "00": [[install]]
        - x: [[install]]
        - 0: [[install], []]
      e: {service: s, strategy: serial, batch: 3, max_failures: -1, timeout: -1}
  empty: {}
  "bad name":
    phases: [{name: a, service: s, max_failures: 1}, {name: a, service: s}]
`)
	for _, want := range []string{
		`plans[0].strategy: Unsupported plan strategy "canary"`,
		`plans[0].phases[0].strategy: Unsupported phase strategy "sideways"`,
		`line 9: plans[0].phases[1].pod: is the DC/OS name of "service"`,
		`plans[0].phases[2].service: is missing`,
		`plans[0].phases[2].batch: must be a number of nodes`,
		`plans[0].phases[3].batch: must be a number of nodes`,
		`line 15: plans[0].phases[3].steps[0]: Malformed step in phase: it must have one key`,
		`plans[0].phases[3].steps[2].node: Malformed step in phase: "x" is neither`,
		`plans[0].phases[3].steps[3].node: node 0 already has its steps at steps[1]`,
		`plans[0].phases[3].steps[3].tasks: has 2 steps, but in a batch a node has one`,
		`plans[0].phases[3].steps[3].tasks[1]: is empty`,
		`plans[0].phases[4].batch: has no meaning for the strategy serial`,
		`plans[0].phases[4].max_failures: must not be negative`,
		`plans[0].phases[4].timeout: must`,
		`plans[1].phases: is missing`,
		`plans[2].name: "bad name" contains`,
		`plans[2].phases[0].max_failures: is of batches`,
		`plans[2].phases[0].steps: is missing: say which actions of s phase a of plan bad name runs`,
		`plans[2].phases[1].name: a is already the name of [0]`,
	} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("no %q in\n%v", want, err)
		}
	}
	for _, twice := range []string{"plans:\n  a: {phases: {x: {service: s}, x: {service: s}}}",
		"plans:\n  a: {phases: {x: {service: s}}}\n  a: {phases: {x: {service: s}}}"} {
		if _, err := decodePlans(t, twice); err == nil {
			t.Errorf("a key that occurs twice is accepted: %s", twice)
		}
	}
}

// The names in plans must exist; a child's plan replaces that of its parent.
func TestLintAndMergePlans(t *testing.T) {
	s := &model.Service{
		Base:        model.Base{Name: "s"},
		Provisioner: model.ServiceProvisioner{Actions: map[string]model.ServiceAction{"start": {Type: "shell"}}},
	}
	parent := &model.ClusterTemplate{Base: model.Base{Name: "parent"},
		Defaults: model.Defaults{Services: []model.DefaultService{{Name: "s"}}, Provider: "p"},
		Plans: []model.Plan{{Name: "deploy", Phases: []model.PlanPhase{{Name: "old", Service: "s"}}},
			{Name: "other", Phases: []model.PlanPhase{{Name: "x", Service: "s"}}}}}
	child := &model.ClusterTemplate{Base: model.Base{Name: "child"}, Extends: &model.Reference{Name: "parent"},
		Plans: []model.Plan{{Name: "deploy", Phases: []model.PlanPhase{{Name: "new", Service: "q"},
			{Name: "tasks", Service: "s", Steps: []model.PlanSteps{{Node: "default", Tasks: [][]string{{"start", "stap"}}}}}}}}}
	defs := []model.Definition{model.Define(model.KindService, s), model.Define(model.KindClusterTemplate, parent),
		model.Define(model.KindClusterTemplate, child)}
	merged, err := model.ResolveTemplate(*child, model.NewSet(defs...))
	if err != nil || len(merged.Plans) != 2 || merged.Plans[0].Phases[0].Name != "new" || merged.Plans[1].Name != "other" ||
		parent.Plans[0].Phases[0].Name != "old" {
		t.Errorf("%+v, %v", merged.Plans, err)
	}
	faults, _ := lint.Lint(defs, model.NewSet())
	for _, want := range []string{
		`plans[0].phases[0].service: Unable to find pod "q" referenced by phase "new"`,
		`plans[0].phases[1].steps[0].tasks[0]: Malformed step: step refers to a task that does not exist: "stap" is not an action of s`,
	} {
		if !strings.Contains(faults.Error(), want) {
			t.Errorf("no %q in\n%v", want, faults)
		}
	}
}

// TestRecoversFaults checks what a plan must be like to be the pattern of a recovery.
func TestRecoversFaults(t *testing.T) {
	good := `
plans:
  replace-db:
    recovers: {service: db, when: replace}
    others: restart
    phases: {db: {service: db, steps: [{default: [[install, configure], [start]]}]}}
  restart-db:
    recovers: {service: db, when: restart}
    phases: {db: {service: db, steps: [{0: []}, {default: [[stop], [configure, start]]}]}}
`
	got, err := decodePlans(t, good)
	if err != nil || len(got) != 2 || *got[0].Recovers != (model.Recovers{Service: "db", When: "replace"}) || got[0].Others != "restart" {
		t.Errorf("%+v, %v", got, err)
	}
	_, err = decodePlans(t, `
plans:
  a:
    recovers: {when: sometimes}
    others: replace
    phases: {x: {service: db, steps: [{default: [[start]]}]}}
  b:
    recovers: {service: db, when: restart}
    others: restart
    phases:
      x: {service: web, strategy: parallel, steps: [{default: [[start, stop], [initialize]]}]}
      y: {service: db, steps: [{default: [[stop]]}]}
  c:
    recovers: {service: db, when: restart}
    phases: {x: {service: db, steps: [{default: [[stop], [start]]}]}}
  d:
    recovers: {service: db, when: replace}
    phases: {x: {service: db, steps: [{default: [[stop], [start, start]]}]}}
  deploy:
    recovers: {service: web, when: replace}
    phases: {x: {service: web, steps: [{default: [[start]]}]}}
`)
	for _, want := range []string{
		`plans[0].others: must be "restart", but is "replace"`,
		`plans[0].recovers.service: is missing`,
		`plans[0].recovers.when: must be "replace" or "restart", but is "sometimes"`,
		`plans[1].others: has a meaning only with recovers.when "replace"`,
		`plans[1].phases: are 2, but a recovery by a plan of one's own is one phase`,
		`plans[1].phases[0].service: is web, but the plan recovers db`,
		`plans[1].phases[0].strategy: has no meaning in the recovery of one node`,
		`plans[1].phases[0].steps[0].tasks[0]: stop comes too late, or twice: the order is stop, install, configure and start`,
		`plans[1].phases[0].steps[0].tasks[1]: "initialize" is not part of a recovery by restart: it may have stop, install`,
		`plans[1].phases[1].steps[0]: does not start db`,
		`plans[2].recovers: plan b is already the pattern for this`,
		`plans[3].phases[0].steps[0].tasks[0]: "stop" is not part of a recovery by replace`,
		`plans[3].phases[0].steps[0].tasks[1]: start comes too late, or twice`,
		`plans[4].recovers: plan deploy is not started for a single node`,
	} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("no %q in\n%v", want, err)
		}
	}
}

// TestDecommissionFaults checks what the plan that removes nodes may have.
func TestDecommissionFaults(t *testing.T) {
	if _, err := decodePlans(t, `plans: {decommission: {phases: {a: {service: s, steps: [{default: [[drain], [stop], [remove]]}]}}}}`); err != nil {
		t.Error(err)
	}
	_, err := decodePlans(t, `plans: {decommission: {phases: {a: {service: s, steps: [{default: [[install], [stop], [drain]]}]}}}}`)
	for _, want := range []string{
		`plans[0].phases[0].steps[0].tasks[0]: install is not part of the removal of a node`,
		`plans[0].phases[0].steps[0].tasks[2]: drain comes too late: an action of the service's own comes before stop`,
	} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("no %q in\n%v", want, err)
		}
	}
}

// TestOwnActionNames checks which names a service's own actions may have.
func TestOwnActionNames(t *testing.T) {
	for name, want := range map[string]string{
		"drain": "", "drain_2": "", "check": "", "instal": `did you mean "install"?`, "create": "choose another name", "run": "choose another name",
		"a b": "must be one of", "Drain": "must be one of", "a:b": "must be one of",
	} {
		_, err := Definition(model.KindService, []byte(fmt.Sprintf(`{"name":"s","provisioner":{"actions":{%q:{"type":"shell"}}}}`, name)))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
