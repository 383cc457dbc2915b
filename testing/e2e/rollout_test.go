package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan/tree"
	"github.com/coopr/coopr/rpc/client"
)

// planIs waits for the plan deploy of a cluster to have this status, and returns it.
func (m *mesh) planIs(cluster, status string) tree.Info {
	m.t.Helper()
	var info tree.Info
	m.await(fmt.Sprintf("plan deploy to be %s", status), func() (err error) {
		info, _, err = m.api().Plan(m.context(), cluster, "deploy", client.Read{})
		if err == nil && info.Status != status {
			err = fmt.Errorf("%w: it is\n%s", errNotYet, info.Text("deploy"))
		}
		return err
	})
	return info
}

// stepsOf returns the statuses of a plan's steps.
func stepsOf(i tree.Info) string {
	var out []string
	for _, p := range i.Phases {
		for _, s := range p.Steps {
			out = append(out, s.Status)
		}
	}
	return strings.Join(out, " ")
}

// TestRollout upgrades a shop of real processes with canaries that an operator releases; then once
// more with a failing canary, which is rolled back automatically and does not touch the other
// nodes.
func TestRollout(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	m.importShop()
	m.must("cluster", "create", "shop", "--template", "shop", "--nodes", "6", "--yes")
	first := m.plain("shop-web")
	if len(first) != 4 {
		t.Fatalf("web servers %v", first)
	}
	stay := func(when string, want int) {
		t.Helper()
		n := 0
		for pid := range m.plain("shop-web") {
			if first[pid] {
				n++
			}
		}
		if n != want {
			t.Errorf("%s: %d of the first web servers run still, not %d", when, n, want)
		}
	}
	m.importWeb("mkdir -p etc", "mkdir -p etc/new")
	m.must("cluster", "upgrade", "shop", "shop-web", "--canary", "--detach")
	info := m.planIs("shop", "WAITING")
	if got := stepsOf(info); got != "WAITING WAITING PENDING PENDING" || info.Phases[0].Strategy != "serial-canary" {
		t.Fatalf("the plan begins as\n%s", info.Text("deploy"))
	}
	stay("before the first canary", 4)
	cl, _, err := m.api().Cluster(m.context(), "shop", client.Read{})
	if err != nil {
		t.Fatal(err)
	}
	if out := m.must("operation", "explain", cl.Operation); !strings.Contains(out, "4 for an operator") {
		t.Errorf("it is explained so:\n%s", out)
	}
	resume := func() { t.Helper(); m.must("plan", "resume", "shop", "deploy", info.Phases[0].Name) }
	after := func(want string) {
		t.Helper()
		m.await("steps to be "+want, func() error {
			now, _, err := m.api().Plan(m.context(), "shop", "deploy", client.Read{})
			if err == nil && stepsOf(now) != want {
				err = fmt.Errorf("%w: the plan is\n%s", errNotYet, now.Text("deploy"))
			}
			return err
		})
	}
	resume()
	after("COMPLETE WAITING PENDING PENDING")
	stay("after the first canary", 3)
	leader := m.leader()
	leader.kill() // who leads next knows of the canaries too
	resume()
	after("COMPLETE COMPLETE COMPLETE COMPLETE")
	leader.start()
	m.ready()
	m.ends(cl.Operation, model.OpSucceeded)
	stay("upgraded", 0)
	if s := m.coopr("plan", "resume", "shop", "deploy"); s.code != 4 {
		t.Errorf("a plan that is complete is resumed: %d %s%s", s.code, s.out, s.err)
	}

	first = m.plain("shop-web")
	m.importWeb("shop check --wait 20s", "exit 1; shop check --wait 20s")
	m.must("cluster", "upgrade", "shop", "--canary", "--detach")
	m.planIs("shop", "WAITING")
	cl, _, err = m.api().Cluster(m.context(), "shop", client.Read{})
	if err != nil {
		t.Fatal(err)
	}
	resume()
	m.ends(cl.Operation, model.OpRolledBack)
	stay("after a broken canary", 3)
	if out := m.must("plan", "list", "shop"); !strings.Contains(out, "rollback:"+cl.Operation+"  COMPLETE") ||
		!strings.Contains(out, "deploy") {
		t.Errorf("the plans:\n%s", out)
	}
	if out := m.must("plan", "show", "shop", "deploy"); !strings.HasPrefix(out, "deploy (serial strategy) (COMPLETE)\n") ||
		strings.Contains(out, "Errors:") {
		t.Errorf("the plan to the present target:\n%s", out)
	}
	m.await("the shop to answer", func() error {
		page, err := m.page("shop")
		if err == nil && !strings.Contains(page, "Welcome to the shop") {
			err = errors.New(page)
		}
		return err
	})
	m.must("cluster", "delete", "shop", "--yes")
	m.stop()
}

// TestCustomPlan runs a plan of the template's own, with parameters: it waits until it is started,
// does not change the layout, starts from the beginning when it is started again, and takes turns
// with another plan on the same nodes.
func TestCustomPlan(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	m.importShop()
	m.importWeb("greeting=$(coopr-node config shop.greeting \"Welcome to the shop\")", "greeting=${SALE:-$(coopr-node config shop.greeting)}")
	template, err := os.ReadFile("../../examples/shop/clustertemplates/shop.yaml")
	if err != nil {
		t.Fatal(err)
	}
	store, err := os.ReadFile("../../examples/shop/services/shop-store.yaml")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "shop.yaml")
	const probe = `
    probe: {type: shell, fields: {script: "#!/bin/sh\necho \"$COOPR_ACTION $COOPR_SERVICE [$COOPR_NODE] $WHO\" >>\"$COOPR_NODE_DIR/probed\""}}
    install:`
	text := strings.Replace(string(store), "\n    install:", probe, 1)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	m.must("import", file)
	plans := `
plans:
  sale:
    phases:
      look: {service: shop-store, steps: [{default: [[check]]}]}
      announce: {service: shop-web, strategy: canary, steps: [{default: [[configure, check]]}]}
  look:
    strategy: parallel
    phases:
      webs: {service: shop-web, strategy: parallel, steps: [{default: [[check], [check]]}]}
      store: {service: shop-store, strategy: parallel, steps: [{default: [[check]]}, {agent: [[probe]]}]}
`
	if err := os.WriteFile(file, append(template, plans...), 0o600); err != nil {
		t.Fatal(err)
	}
	m.must("import", file)
	m.must("cluster", "create", "shop", "--template", "shop", "--nodes", "5", "--yes")
	if out := m.must("plan", "list", "shop", "-o", "json"); !strings.Contains(out, `"name": "sale"`) ||
		!strings.Contains(out, `"name": "look"`) {
		t.Errorf("the plans:\n%s", out)
	}
	if out := m.must("plan", "show", "shop", "sale"); !strings.HasPrefix(out,
		"sale (serial strategy) (WAITING)\n├─ look (serial strategy) (PENDING)\n│  └─ shop1-") ||
		strings.Count(out, ":[configure, check] (WAITING)") != 2 {
		t.Errorf("before it was started it is\n%s", out)
	}
	page := func(want string) {
		t.Helper()
		m.await("the page to say "+want, func() error {
			text, err := m.page("shop")
			if err == nil && !strings.Contains(text, want) {
				err = errors.New(text)
			}
			return err
		})
	}
	status := func(plan, want string) {
		t.Helper()
		m.await(fmt.Sprintf("plan %s to be %s", plan, want), func() error {
			info, _, err := m.api().Plan(m.context(), "shop", plan, client.Read{})
			if err == nil && info.Status != want {
				err = fmt.Errorf("%w: it is\n%s", errNotYet, info.Text(plan))
			}
			return err
		})
	}
	page("Welcome to the shop")
	if out := m.must("plan", "start", "shop", "sale", "-p", "SALE=All for half=price"); !strings.Contains(out,
		"Received cmd: start sale with parameters: {SALE=All for half=price}") {
		t.Errorf("%s", out)
	}
	status("sale", "WAITING")
	m.must("plan", "start", "shop", "look", "-p", "WHO=bob")
	status("look", "COMPLETE") // while the other waits for its operator
	if out := m.must("plan", "show", "shop", "look"); !strings.Contains(out, "agent:[probe] (COMPLETE)") {
		t.Errorf("a step on an agent is shown as\n%s", out)
	}
	probed := ""
	for _, a := range m.agents {
		if b, err := os.ReadFile(filepath.Join(a.data+"-work", "hosts", "agent", "probed")); err == nil {
			probed += string(b)
		}
	}
	if probed != "PROBE shop-store [] bob\n" {
		t.Errorf("the agents were probed so: %q", probed)
	}
	m.must("plan", "resume", "shop", "sale", "announce")
	m.must("plan", "resume", "shop", "sale", "announce")
	status("sale", "COMPLETE")
	page("All for half=price")
	if got := m.numbered("shop"); len(got) != 5 {
		t.Errorf("there are nodes %v", got)
	}
	if out := m.must("cluster", "history", "shop"); strings.Contains(out, "plan") {
		t.Errorf("a plan of the template's own makes snapshots:\n%s", out)
	}
	// Again, without parameters; and stopped in the middle.
	m.must("plan", "start", "shop", "sale")
	status("sale", "WAITING")
	m.must("plan", "stop", "shop", "sale")
	if out := m.must("plan", "show", "shop", "sale"); strings.Contains(out, "COMPLETE") {
		t.Errorf("a stopped plan is\n%s", out)
	}
	m.must("plan", "start", "shop", "sale")
	m.must("plan", "force-complete", "shop", "sale", "announce", "--yes")
	status("sale", "COMPLETE")
	if s := m.coopr("plan", "start", "shop", "nothing"); s.code != 3 || !strings.Contains(s.err, "Plan nothing not found") {
		t.Errorf("%d %s", s.code, s.err)
	}
	m.must("cluster", "delete", "shop", "--yes")
	m.stop()
}
