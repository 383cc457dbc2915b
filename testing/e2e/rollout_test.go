package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan/tree"
	"github.com/coopr/coopr/rpc/client"
)

// planIs waits for the plan deploy of a cluster to have this status, and gives it.
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

// stepsOf gives the statuses of a plan's steps.
func stepsOf(i tree.Info) string {
	var out []string
	for _, p := range i.Phases {
		for _, s := range p.Steps {
			out = append(out, s.Status)
		}
	}
	return strings.Join(out, " ")
}

// TestRollout upgrades a shop of real processes with canaries that an operator
// releases; then one whose canary breaks, which is rolled back by itself and has
// left the others alone.
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
	if out := m.must("plan", "list", "shop"); !strings.Contains(out, "rollback:"+cl.Operation+"  COMPLETE") || !strings.Contains(out, "deploy") {
		t.Errorf("the plans:\n%s", out)
	}
	if out := m.must("plan", "show", "shop", "deploy"); !strings.HasPrefix(out, "deploy (serial strategy) (ERROR)\n") || !strings.Contains(out, "\nErrors:\n- ") {
		t.Errorf("the broken plan:\n%s", out)
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
