package main

import (
	"testing"
)

func TestMacroCases(t *testing.T) {
	passed, failed := runMacros([]string{"testdata/macro-cases.json"})
	t.Logf("%d passed, %d failed", passed, failed)
	if failed > 0 || passed == 0 {
		t.Errorf("%d of %d cases failed", failed, passed+failed)
	}
}
