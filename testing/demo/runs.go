package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// wordcount is the job of the tour of runs.
//
//go:embed wordcount.yaml
var wordcount []byte

// badJob is a script that fails on node 1.
const badJob = `#!/bin/sh
echo "node $COOPR_NODE_INDEX has work to do"
[ "$COOPR_NODE_INDEX" != 1 ] || { echo "and cannot do it" >&2; exit 42; }
`

// latest holds the fields of a run that the tour reads.
type latest struct {
	ID      string `json:"id"`
	Status  string `json:"status"`
	Cluster struct {
		Status string `json:"status"`
		Nodes  []struct {
			ID string `json:"id"`
		} `json:"nodes"`
		ID string `json:"id"`
	} `json:"cluster"`
}

// walkRuns is the tour of clusters that live as long as one job.
func walkRuns(ctx context.Context, t *tour, m *mesh) error {
	began := time.Now()
	fmt.Fprintln(t.out, t.paint("1", "Coopr: clusters that live as long as one job"))
	t.chapter("Three agents, a program and a profile")
	if err := m.start("ada", "bob", "cyd"); err != nil {
		return err
	}
	if _, err := m.leader(ctx, "", len(m.agents)); err != nil {
		return err
	}
	if err := m.ready(ctx, "local", "shell"); err != nil {
		return err
	}
	for name, text := range map[string][]byte{"wordcount.yaml": wordcount, "job.sh": []byte(badJob)} {
		if err := os.WriteFile(filepath.Join(m.dir, name), text, 0o700); err != nil {
			return err
		}
	}
	t.say("The program counts words: each node counts those of its files, and one node adds them up.")
	t.say("The profile describes three plain nodes on this machine; those of a failed job are kept for a minute.")
	if err := t.show(ctx, m, "program", "put", "wordcount", "-f", filepath.Join(m.dir, "wordcount.yaml")); err != nil {
		return err
	}
	if err := t.show(ctx, m, "profile", "create", "three", "--provisioner", "local", "-p", "numMachines=3", "--keep-failed",
		"1m"); err != nil {
		return err
	}

	t.chapter("One command creates the nodes, runs the job and tears the nodes down")
	if err := t.show(ctx, m, "run", "--profile", "three", "--program", "wordcount"); err != nil {
		return err
	}
	r, err := m.awaitRun(ctx, "DEPROVISIONED")
	if err != nil {
		return err
	}
	t.say("The nodes of run %s are gone: they lived exactly as long as the job.", r.ID)

	t.chapter("A job that fails: its nodes are kept for inspection")
	t.commands("coopr run --profile three -- ./job.sh")
	var exit *exec.ExitError
	if err := m.cli(ctx, "run", "--profile", "three", "--", filepath.Join(m.dir, "job.sh")); !errors.As(err, &exit) || exit.ExitCode() != 42 {
		return fmt.Errorf("the job should end with 42: %w", err)
	}
	t.say("The command ended with the job's own exit code, 42.")
	if r, err = m.awaitRun(ctx, "WAITING"); err != nil {
		return err
	}
	if err := t.show(ctx, m, "runs", "get", r.ID); err != nil {
		return err
	}
	t.say("The nodes are still there. A local node is a folder with its files:")
	if err := t.showNodes(m, r); err != nil {
		return err
	}

	t.chapter("Kept for longer, then ended by hand")
	if err := t.show(ctx, m, "runs", "extend", r.ID, "1h"); err != nil {
		return err
	}
	if err := t.show(ctx, m, "runs", "deprovision", r.ID); err != nil {
		return err
	}
	if _, err = m.awaitRun(ctx, "DEPROVISIONED"); err != nil {
		return err
	}
	if err := t.show(ctx, m, "runs", "list"); err != nil {
		return err
	}
	if err := t.show(ctx, m, "profile", "stats", "three"); err != nil {
		return err
	}
	t.say("\nDone in %s. Everything is being cleaned up.", time.Since(began).Round(time.Second))
	return nil
}

// awaitRun waits until the cluster of the latest run has a status, and returns the run.
func (m *mesh) awaitRun(ctx context.Context, status string) (r latest, err error) {
	err = m.until(ctx, "run whose cluster is "+status, "", func([]member) bool {
		var list []latest
		if m.query(ctx, &list, "runs", "list", "--limit", "1") != nil || len(list) == 0 {
			return false
		}
		r = list[0]
		return r.Cluster.Status == status
	})
	return r, err
}

// showNodes lists the folders of a run's nodes.
func (t *tour) showNodes(m *mesh, r latest) error {
	dir := filepath.Join(m.dir, "nodes", r.Cluster.ID)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	t.commands("ls nodes/" + r.Cluster.ID)
	t.quote(strings.Join(names, "  "))
	if len(names) != len(r.Cluster.Nodes) {
		return fmt.Errorf("%s has %d nodes, not %d", dir, len(names), len(r.Cluster.Nodes))
	}
	return nil
}
