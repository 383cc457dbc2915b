package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// changes is the part of the tour in which a running cluster changes: it grows, is upgraded with
// canaries, has a bad upgrade undone and a dead node repaired.
func changes(ctx context.Context, t *tour, m *mesh, shop, address string) error {
	t.chapter("The shop grows")
	if err := t.show(ctx, m, "cluster", "grow", clusterName, "--nodes", "1"); err != nil {
		return err
	}

	t.chapter("An upgrade, node by node, with a person's approval")
	t.say("Version 2 of the web servers has another greeting and a health check every half second.")
	second := []string{
		`echo "greeting = $greeting"`, `echo "greeting = $greeting, version 2"`,
		"restart_on_configure: false", "restart_on_configure: false\nhealth-check: {interval: 500, grace-period: 1s, " +
			"max-consecutive-failures: 2}",
	}
	file, err := m.edited(shop, "shop-web-2.yaml", second...)
	if err != nil {
		return err
	}
	if err := t.show(ctx, m, "import", file); err != nil {
		return err
	}
	if err := t.show(ctx, m, "cluster", "upgrade", clusterName, "--canary", "--detach"); err != nil {
		return err
	}
	phase, err := m.stepsAre(ctx, "WAITING", 0)
	if err != nil {
		return err
	}
	t.say("\nTwo canaries wait, and nothing happens until somebody releases the first one:")
	if err := t.show(ctx, m, "plan", "resume", clusterName, "deploy", phase); err != nil {
		return err
	}
	if _, err := m.stepsAre(ctx, "WAITING", 1); err != nil {
		return err
	}
	if err := t.show(ctx, m, "plan", "show", clusterName, "deploy"); err != nil {
		return err
	}
	t.say("\nThe first canary is well. After the second one the others follow by themselves:")
	if err := t.show(ctx, m, "plan", "resume", clusterName, "deploy", phase); err != nil {
		return err
	}
	if err := t.show(ctx, m, "cluster", "watch", clusterName); err != nil {
		return err
	}

	t.chapter("A bad upgrade undoes itself")
	t.say("Version 3 of the web servers does not start.")
	third := append(second, "shop check --wait 20s", "echo 'version 3 is broken' >&2; exit 100; shop check")
	if file, err = m.edited(shop, "shop-web-3.yaml", third...); err != nil {
		return err
	}
	if err := t.show(ctx, m, "import", file); err != nil {
		return err
	}
	upgrade := []string{"cluster", "upgrade", clusterName, "--strategy", "serial"}
	var code *exec.ExitError
	if err := t.show(ctx, m, upgrade...); !errors.As(err, &code) || code.ExitCode() != 1 {
		return fmt.Errorf("the bad upgrade should have failed: %w", err)
	}
	if err := t.visit(ctx, address, 3); err != nil {
		return err
	}

	t.chapter("A node is killed, and repaired")
	if err := t.killNode(ctx, m); err != nil {
		return err
	}
	if err := t.show(ctx, m, "operation", "list", "--cluster", clusterName); err != nil {
		return err
	}

	t.chapter("Everything is in the audit log, a chain that nobody can change unnoticed")
	if err := t.show(ctx, m, "audit", "list", "--cluster", clusterName, "--type", "operation.*,plan.*", "--oldest-first"); err != nil {
		return err
	}
	return t.show(ctx, m, "audit", "verify")
}

// edited writes the example's web server, with some texts replaced, to a file of the demo, and
// returns the file's path.
func (m *mesh) edited(shop, name string, oldnew ...string) (string, error) {
	b, err := os.ReadFile(filepath.Join(shop, "services", "shop-web.yaml"))
	if err != nil {
		return "", err
	}
	for i := 0; i < len(oldnew); i += 2 {
		if !strings.Contains(string(b), oldnew[i]) {
			return "", fmt.Errorf("shop-web.yaml does not contain %q any more", oldnew[i])
		}
	}
	file := filepath.Join(m.dir, name)
	if here, err := os.Getwd(); err == nil {
		if rel, err := filepath.Rel(here, file); err == nil && filepath.IsLocal(rel) {
			file = rel // as a person would type it
		}
	}
	return file, os.WriteFile(file, []byte(strings.NewReplacer(oldnew...).Replace(string(b))), 0o600)
}

// await polls until ok returns true, for a minute at most.
func await(ctx context.Context, what string, ok func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		done, err := ok()
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("after a minute there is no %s: %w", what, errors.Join(err, ctx.Err()))
		case <-tick.C:
		}
	}
}

// stepsAre waits until the plan has a status and a number of complete steps in its first phase, and
// returns the name of that phase.
func (m *mesh) stepsAre(ctx context.Context, status string, complete int) (phase string, err error) {
	err = await(ctx, "plan that is "+status, func() (bool, error) {
		var p struct {
			Status string
			Phases []struct {
				Name  string
				Steps []struct{ Status string }
			}
		}
		if err := m.query(ctx, &p, "plan", "show", clusterName, "deploy"); err != nil || len(p.Phases) == 0 {
			return false, err
		}
		n := 0
		for _, s := range p.Phases[0].Steps {
			if s.Status == "COMPLETE" {
				n++
			}
		}
		phase = p.Phases[0].Name
		return p.Status == status && n == complete, nil
	})
	return phase, err
}

// killNode kills all processes of a web server's node and waits for the node's recovery.
func (t *tour) killNode(ctx context.Context, m *mesh) error {
	var c struct {
		ID    string
		Nodes []struct {
			Number   int `json:"nodenum"`
			Hostname string
		}
	}
	if err := m.query(ctx, &c, "cluster", "get", clusterName); err != nil {
		return err
	}
	last := c.Nodes[len(c.Nodes)-1] // the node that grow has added: a web server
	pids, err := processes(filepath.Join(m.dir, "nodes", c.ID, strconv.Itoa(last.Number)))
	if err != nil || len(pids) == 0 {
		return errors.Join(fmt.Errorf("no process runs on node %s", last.Hostname), err)
	}
	text := "kill -9"
	for _, pid := range pids {
		text += " " + strconv.Itoa(pid)
	}
	t.commands(text + "   # all processes of node " + last.Hostname)
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	t.say("The node's health check fails, and Coopr starts it again without being asked.")
	return await(ctx, "repaired node", func() (bool, error) {
		var ops []struct{ Type, Status string }
		err := m.query(ctx, &ops, "operation", "list", "--cluster", clusterName)
		for _, op := range ops {
			if op.Type == "recover" && op.Status == "succeeded" {
				return true, nil
			}
		}
		return false, err
	})
}
