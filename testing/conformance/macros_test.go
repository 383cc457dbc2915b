package main

import (
	"path/filepath"
	"testing"

	"github.com/coopr/coopr/testing/shared"
)

func TestMacroCases(t *testing.T) {
	passed, failed := runMacros([]string{filepath.Join(shared.Dir(t), "conformance", "macro-cases.json")})
	t.Logf("%d passed, %d failed", passed, failed)
	if failed > 0 || passed == 0 {
		t.Errorf("%d of %d cases failed", failed, passed+failed)
	}
}
