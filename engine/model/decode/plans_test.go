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

// TestOwnActionNames checks which names a service's own actions may have.
func TestOwnActionNames(t *testing.T) {
	for name, want := range map[string]string{
		"drain": "", "drain_2": "", "check": "", "restart": "", "strat": `did you mean "start"?`, "instal": `did you mean "install"?`, "create": "must be one of", "run": "must be one of",
		"a b": "only letters", "Drain": "in lower case", "a:b": "only letters",
	} {
		_, err := Definition(model.KindService, []byte(fmt.Sprintf(`{"name":"s","provisioner":{"actions":{%q:{"type":"shell"}}}}`, name)))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAgentSteps checks where a plan may have steps on an agent.
func TestAgentSteps(t *testing.T) {
	got, err := decodePlans(t, `
plans:
  backup:
    phases:
      all: {service: s, steps: [{agent: [[check], [drain]]}, {default: [[stop]]}]}
      rest: {service: s, strategy: parallel, steps: [{agent: [[check]]}]}
`)
	if err != nil || !got[0].Phases[0].Steps[0].OnAgent() || got[0].Phases[0].Steps[1].OnAgent() || !got[0].Phases[1].Steps[0].OnAgent() {
		t.Errorf("%+v, %v", got, err)
	}
	_, err = decodePlans(t, `
plans:
  deploy: {phases: {a: {service: s, steps: [{agent: [[start]]}]}}}
  decommission: {phases: {a: {service: s, steps: [{agent: [[start]]}]}}}
  mine: {recovers: {service: s, when: restart}, phases: {a: {service: s, steps: [{agent: [[start]]}]}}}
  x:
    phases:
      a: {service: s, strategy: canary, steps: [{agent: [[start]]}]}
      b: {service: s, batch: 2, steps: [{agent: [[start]]}]}
      c: {service: s, steps: [{agent: [[start]]}, {agent: [[stop]]}]}
      d: {service: s, steps: [{agent: [[]]}]}
      e: {service: s, steps: [{agents: [[start]]}]}
`)
	for _, want := range []string{
		`plans[0].phases[0].steps[0].node: plan deploy cannot have steps on an agent`,
		`plans[1].phases[0].steps[0].node: plan decommission cannot have steps on an agent`,
		`plans[2].phases[0].steps[0].node: plan mine cannot have steps on an agent: name them in a plan that an operator starts`,
		`plans[3].phases[0].steps[0].node: batches and canaries are of nodes: give the steps on an agent a phase of their own`,
		`plans[3].phases[1].steps[0].node: batches and canaries are of nodes`,
		`plans[3].phases[2].steps[1].node: node agent already has its steps at steps[0]`,
		`plans[3].phases[3].steps[0].tasks[0]: is empty`,
		`plans[3].phases[4].steps[0].node: Malformed step in phase: "agents" is neither the number of a node, from 0, nor "default" or "agent"`,
	} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("no %q in:\n%v", want, err)
		}
	}
}
