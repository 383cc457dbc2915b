// Package shop_test checks the example's definitions: they are free of faults, the template's
// constraints allow the layouts of its comment, and every script is valid shell.
package shop_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/model/decode"
	"github.com/coopr/coopr/engine/operation"
)

func definitions(t *testing.T) model.Set {
	t.Helper()
	set := model.NewSet()
	err := filepath.WalkDir(".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		defs, err := decode.Classify(path, b)
		for _, d := range defs {
			set.Add(d)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func create(t *testing.T, nodes int) (*operation.Prepared, error) {
	t.Helper()
	return operation.Create(t.Context(), model.Caller{Tenant: "t", Actor: "a"},
		model.CreateCluster{Name: "my-shop", ClusterTemplate: "shop", NumMachines: model.Int(nodes)},
		definitions(t), operation.IDs{Cluster: "00000001", Operation: "o"})
}

func TestLayout(t *testing.T) {
	for _, nodes := range []int{3, 6, 100} {
		p, err := create(t, nodes)
		if err != nil {
			t.Fatalf("%d nodes: %v", nodes, err)
		}
		count := map[string]int{}
		for _, n := range p.Nodes {
			count[strings.Join(n.Services, "+")]++
		}
		if len(count) != 3 || count["shop-balancer"] != 1 || count["shop-store"] != 1 || count["shop-web"] != nodes-2 {
			t.Errorf("%d nodes: %v", nodes, count)
		}
	}
	for _, nodes := range []int{2, 101} {
		if _, err := create(t, nodes); err == nil || errors.Is(err, context.Canceled) {
			t.Errorf("%d nodes are taken", nodes)
		}
	}
}

func TestScripts(t *testing.T) {
	set := definitions(t)
	want := []string{"check", "configure", "install", "remove", "start", "stop"}
	for _, name := range set.Names(model.KindService) {
		d, _ := set.Definition(model.KindService, name)
		actions := d.Value.(*model.Service).Provisioner.Actions
		for _, action := range want {
			if _, ok := actions[action]; !ok {
				t.Errorf("%s has no action %s", name, action)
			}
		}
		for action, a := range actions {
			script, _ := a.Fields["script"].(string)
			if a.Type != "shell" || !strings.HasPrefix(script, "#!/bin/sh\n") || !slices.Contains(strings.Split(script, "\n"), "set -eu") {
				t.Errorf("%s %s is not a careful shell script", name, action)
			}
			cmd := exec.Command("sh", "-n")
			cmd.Stdin = strings.NewReader(script)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s %s: %v: %s", name, action, err, out)
			}
		}
	}
}
