package lint

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/model/decode"
)

// lintPlans returns the plans of a template, and the faults that it has by itself.
func lintPlans(t *testing.T, text string) ([]model.Plan, error) {
	t.Helper()
	service, err := decode.Definition(model.KindService, []byte("name: s\nprovisioner: {actions: {drain: {type: x}, stop: {type: x}, remove: {type: x}, install: {type: x}}}"))
	if err != nil {
		t.Fatal(err)
	}
	d, err := decode.Definition(model.KindClusterTemplate, []byte("name: t\ndefaults: {services: [s], provider: p}\n"+text))
	if err != nil {
		t.Fatal(err)
	}
	faults, _ := Lint([]model.Definition{service, d}, nil)
	return d.Value.(*model.ClusterTemplate).Plans, faults.Err()
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
	got, err := lintPlans(t, good)
	if err != nil || len(got) != 2 || *got[0].Recovers != (model.Recovers{Service: "db", When: "replace"}) || got[0].Others != "restart" {
		t.Errorf("%+v, %v", got, err)
	}
	_, err = lintPlans(t, `
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
	if _, err := lintPlans(t, `plans: {decommission: {phases: {a: {service: s, steps: [{default: [[drain], [stop], [remove]]}]}}}}`); err != nil {
		t.Error(err)
	}
	_, err := lintPlans(t, `plans: {decommission: {phases: {a: {service: s, steps: [{default: [[install], [stop], [drain]]}]}}}}`)
	for _, want := range []string{
		`plans[0].phases[0].steps[0].tasks[0]: install is not part of the removal of a node`,
		`plans[0].phases[0].steps[0].tasks[2]: drain comes too late: an action of the service's own comes before stop`,
	} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("no %q in\n%v", want, err)
		}
	}
}
