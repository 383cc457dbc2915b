package main

import (
	"path/filepath"
	"testing"

	"github.com/coopr/coopr/testing/shared"
)

func TestPlannerCases(t *testing.T) {
	file := filepath.Join(shared.Dir(t), "conformance", "planner-cases.json")
	for _, compat := range []bool{true, false} {
		passed, failed := runPlanner([]string{file}, compat)
		t.Logf("compat %v: %d passed, %d failed", compat, passed, failed)
		if failed > 0 || passed == 0 {
			t.Errorf("compat %v: %d of %d cases failed", compat, failed, passed+failed)
		}
	}
}
